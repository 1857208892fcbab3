"""Types what docs/kubernetes.md tells its reader to type, and sees what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import installing, resources
from e2e.kubectl import Kubectl
from e2e.operators import Operator
from e2e.waiting import until
from tests.docs.console import blocks
from tests.docs.reader import Reader

_PAGE = resources.HERE / "docs" / "kubernetes.md"
_UNINSTALL = "Uninstall"


@pytest.fixture
def reader(operator: Operator, tmp_path: Path) -> Iterator[Reader]:
    """A reader in the repository's folder, or what looks like it."""
    for name in ("charts", "examples"):
        (tmp_path / name).symlink_to(resources.HERE / name)
    yield Reader(tmp_path, {}, {})
    Kubectl("orders").delete_namespace()


def test_everything_is_as_the_page_says(reader: Reader) -> None:
    sections = dict.fromkeys(block.section for block in blocks(_PAGE))
    typed = reader.follow(_PAGE, *(name for name in sections if name != _UNINSTALL))
    assert typed > 25


def test_and_when_the_operator_is_uninstalled(reader: Reader, operator: Operator) -> None:
    assert reader.follow(_PAGE, _UNINSTALL) == 1
    installing.install()
    until(lambda: any(map(operator.leads, operator.pods())), 90, "an operator leads again")
