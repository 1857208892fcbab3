"""Render the chart by Helm, and select objects from what it renders. Runs helm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from charts.generate import CHART

Object = dict[str, Any]
Render = Callable[..., list[Object]]


def template(helm: str, *values: str) -> subprocess.CompletedProcess[str]:
    """Run ``helm template`` for the release ``mine`` in the namespace ``here``.

    ``values`` have the form NAME=VALUE.
    """
    arguments = [part for value in values for part in ("--set", value)]
    command = [helm, "template", "mine", str(CHART), "-n", "here", "--kube-version", "1.33.0"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """Return the objects of a kind."""
    return [each for each in objects if each["kind"] == kind]
