"""Run the commands of docs/kubernetes.md and of the tutorial, and compare what they print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import installing, resources
from e2e.kubectl import Kubectl
from e2e.operators import Operator
from e2e.waiting import until
from tests.docs.console import blocks
from tests.docs.pages import ON_KUBERNETES, PAGES
from tests.docs.reader import Reader

_PAGE = resources.REPOSITORY / "docs" / "kubernetes.md"
_TUTORIAL = "docs/tutorial.md"
_UNINSTALL = "Uninstall"


@pytest.fixture
def reader(operator: Operator, tmp_path: Path) -> Iterator[Reader]:
    """A `Reader`, which runs the commands of a page; its folder has the charts and examples."""
    for name in ("charts", "examples"):
        (tmp_path / name).symlink_to(resources.REPOSITORY / name)
    yield Reader(tmp_path, {}, {})
    Kubectl("orders").delete_namespace()


def test_commands_of_the_page_print_the_output_that_it_shows(reader: Reader) -> None:
    sections = dict.fromkeys(block.section for block in blocks(_PAGE))
    num_commands = reader.follow(_PAGE, *(name for name in sections if name != _UNINSTALL))
    assert num_commands > 25, "the commands of the page are found"


def test_commands_of_the_tutorial_print_the_output_that_it_shows(
    reader: Reader, tmp_path: Path
) -> None:
    for block in blocks(PAGES[_TUTORIAL]):
        if block.title is not None:
            (tmp_path / block.title).write_text(block.text)
    num_commands = reader.follow(PAGES[_TUTORIAL], ON_KUBERNETES[_TUTORIAL])
    assert num_commands > 7, "the commands of the tutorial are found"


@pytest.mark.alone
def test_commands_of_the_uninstall_section_print_the_output_that_it_shows(
    reader: Reader, operator: Operator
) -> None:
    assert reader.follow(_PAGE, _UNINSTALL) == 1
    installing.install()
    until(operator.has_leader, 90, "an operator is the leader again")
