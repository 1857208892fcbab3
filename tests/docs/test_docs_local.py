"""Run the pages that create a local cluster, from the first line to the last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import waltz
from tests.docs.console import blocks
from tests.docs.pages import ON_KUBERNETES, ROOT
from tests.docs.reader import Reader


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory beside the examples, in which no cluster is left running."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    yield tmp_path
    if (tmp_path / "waltz-local" / "cluster.json").exists():
        Reader(tmp_path, {}, {}).type("waltz local down")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark_starts_quickly")
@pytest.mark.parametrize(
    "page", ["README.md", "docs/quickstart.md", "docs/tutorial.md", "examples/README.md"]
)
def test_commands_of_local_page_work(page: str, place: Path) -> None:
    sections = dict.fromkeys(block.section for block in blocks(ROOT / page))
    local = [section for section in sections if section != ON_KUBERNETES.get(page)]
    assert Reader(place, {}, {}).follow(ROOT / page, *local) > 5


def test_package_docstring_has_the_lines_of_the_readme_example() -> None:
    """Its lines are those of the README's, which is run, but for where the cluster is."""
    (example,) = (b.text for b in blocks(ROOT / "README.md") if b.title == "guests.py")
    text = waltz.__doc__
    assert text is not None
    shown = [line.strip() for line in text.splitlines()]
    for line in example.splitlines():
        if not any(word in line for word in ("pathlib", "connect(")):
            assert line.strip() in shown
