"""Fixtures of the tests that render the chart by Helm."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import yaml

from tests.support.helm_chart import Object, Render, template


@pytest.fixture(scope="package")
def helm() -> str:
    found = shutil.which("helm")
    if found is None:
        pytest.skip("helm is not installed: rendering the chart is skipped")
    return found


@pytest.fixture(scope="package")
def render(helm: str) -> Render:
    """A function that returns the rendered objects for some values."""

    def rendered(*values: str, **options: Any) -> list[Object]:
        ran = template(helm, *values, **options)
        assert ran.returncode == 0, ran.stderr
        return [each for each in yaml.safe_load_all(ran.stdout) if each]

    return rendered
