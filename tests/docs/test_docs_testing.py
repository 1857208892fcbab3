"""The programs of the page about tests, which need no cluster."""

from __future__ import annotations

from pathlib import Path

from tests.docs.reader import Reader

DOCS = Path(__file__).parents[2] / "docs"


def test_programs_of_testing_page_work(tmp_path: Path) -> None:
    reader = Reader(tmp_path, {}, {})
    assert reader.follow(DOCS / "testing.md") == 2
