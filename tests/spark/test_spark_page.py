"""Run docs/spark.md from its first line to its last; ``e2e`` runs its Kubernetes commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.reader import Reader

ROOT = Path(__file__).parents[2]
CLUSTERS = ("waltz-local", "flights")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory beside the examples, in which no cluster is left running."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    yield tmp_path
    for name in CLUSTERS:
        if (tmp_path / name / "cluster.json").exists():
            Reader(tmp_path, {}, {}).type(f"waltz local down --dir {name}")


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_commands_of_spark_page_print_the_output_that_it_shows(place: Path) -> None:
    assert Reader(place, {}, {}).follow(ROOT / "docs/spark.md") > 10
