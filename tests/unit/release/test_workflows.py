"""The CI runs all tests, refuses skipped ones, and keeps the screenshots that tests save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.browser import SCREENSHOTS

ROOT = Path(__file__).parents[3]
FOLDER = SCREENSHOTS.relative_to(ROOT).as_posix()


@pytest.fixture
def workflow() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    return read


def steps_of_tests(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = workflow["jobs"]["test"]["steps"]
    return found


def position(steps: list[dict[str, Any]], action: str) -> int:
    """Return the place of the only step that runs a command or uses an action."""
    (found,) = (
        place
        for place, step in enumerate(steps)
        if step.get("run") == action or step.get("uses", "").startswith(f"{action}@")
    )
    return found


def test_workflow_refuses_skipped_tests(workflow: dict[str, Any]) -> None:
    assert workflow["env"] == {"WALTZ_CI": "1"}


def test_workflow_installs_a_browser_before_the_tests(workflow: dict[str, Any]) -> None:
    steps = steps_of_tests(workflow)
    browser = position(steps, "browser-actions/setup-chrome")
    assert steps[browser]["with"]["install-chromedriver"] is True
    assert browser < position(steps, "make test-all")


def test_workflow_keeps_the_screenshots_also_of_failed_tests(workflow: dict[str, Any]) -> None:
    steps = steps_of_tests(workflow)
    upload = position(steps, "actions/upload-artifact")
    assert position(steps, "make test-all") < upload
    assert steps[upload]["with"]["path"].rstrip("/") == FOLDER
    assert steps[upload]["if"] == "${{ !cancelled() }}"
    assert "matrix.python" in steps[upload]["with"]["name"], "names of artifacts are unique"


def test_ci_script_prints_where_the_screenshots_are() -> None:
    lines = (ROOT / ".ci/run").read_text().splitlines()
    tests = next(place for place, line in enumerate(lines) if line.startswith("make test-others"))
    assert any("echo" in line and f"$PWD/{FOLDER}" in line for line in lines[tests:])
