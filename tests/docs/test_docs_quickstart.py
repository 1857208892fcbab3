"""The quickstart, typed from its first line to its last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.reader import Reader

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory in which no cluster is left running."""
    yield tmp_path
    if (tmp_path / "waltz-local" / "cluster.json").exists():
        Reader(tmp_path, {}, {}).type("waltz local down")


def test_the_quickstart_works(place: Path) -> None:
    reader = Reader(place, {}, {})
    assert reader.follow(DOCS / "quickstart.md") > 10
