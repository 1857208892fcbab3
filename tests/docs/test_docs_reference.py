"""The pages made from the code are those that the code would make now."""

from __future__ import annotations

import pytest

from docs.reference import HERE, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_up_to_date(name: str) -> None:
    assert (HERE / name).read_text() == PAGES[name](), "run: python -m docs.reference"
