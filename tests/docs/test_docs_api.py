"""Test that the API reference has every public name of the packages that it documents."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = re.findall(r"^## (waltz[\w.]*)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
UNDOCUMENTED = {"waltz.PLAINTEXT", "waltz.admin.Next", "waltz.admin.Step"}
"""Constants and unions without a docstring of their own."""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def names_on_page(site: Path) -> set[str]:
    """Every name that the page documents."""
    found = re.findall(r'<h[3-6] id="(waltz[\w.]*)"', (site / "api.html").read_text())
    return set(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_api_page_has_every_public_name(package: str, names_on_page: set[str]) -> None:
    public = {f"{package}.{name}" for name in importlib.import_module(package).__all__}
    if package == "waltz.spark":
        public.remove("waltz.spark.session")
        public.add("waltz.spark.session.session")
    assert public - names_on_page - UNDOCUMENTED == set()


def test_api_page_has_the_parameters_of_a_delegated_method(names_on_page: set[str]) -> None:
    assert "waltz.sync.SyncClient.append" in names_on_page
    assert "waltz.LogClient.append" in names_on_page
