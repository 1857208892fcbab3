"""Let the operator render other pod templates, as an operator of another version would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from waltz_operator.core.objects import pods, server, storage, zookeeper

VARIABLE = "RENDERED_BY"
"""The environment variable by which renderings differ."""


def render_as(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Let the operator render templates that an operator of ``version`` would render."""

    def pod_template(*arguments: Any, **options: Any) -> dict[str, Any]:
        template = pods.pod_template(*arguments, **options)
        container = template["spec"]["containers"][0]
        container["env"] = [*container["env"], {"name": VARIABLE, "value": version}]
        return template

    for module in (server, storage, zookeeper):
        monkeypatch.setattr(module, "pod_template", pod_template)


def rendered_by(template: Mapping[str, Any]) -> str | None:
    """Return the version that has rendered a template, None for the product's own rendering."""
    variables = template["spec"]["containers"][0]["env"]
    return next((each["value"] for each in variables if each["name"] == VARIABLE), None)
