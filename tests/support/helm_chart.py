"""Render the chart by Helm, and select objects from what it renders. Runs helm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from charts.generate import CHART

Object = dict[str, Any]
Render = Callable[..., list[Object]]


def template(
    helm: str,
    *values: str,
    texts: Sequence[str] = (),
    release: str = "mine",
    namespace: str = "here",
) -> subprocess.CompletedProcess[str]:
    """Run ``helm template``.

    ``values`` and ``texts`` have the form NAME=VALUE. Each VALUE of ``texts`` is a text, also if it
    is a number or ``true``.
    """
    arguments = [part for value in values for part in ("--set", value)]
    arguments += [part for text in texts for part in ("--set-string", text)]
    command = [helm, "template", release, str(CHART), "-n", namespace, "--kube-version", "1.33.0"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """Return the objects of a kind."""
    return [each for each in objects if each["kind"] == kind]
