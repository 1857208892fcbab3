"""Test that the generated pages equal those that the code generates now."""

from __future__ import annotations

import pytest

from docs.reference import HERE, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_up_to_date(name: str) -> None:
    assert (HERE / name).read_text() == PAGES[name](), "run: python -m docs.reference"
