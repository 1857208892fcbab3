"""Every planted bug is found in the product's text, and the simulator catches the quickest ones."""

from __future__ import annotations

import pytest

from tests.sim.mutants import PLANTED, ROOT, hunt
from tests.sim.planting import Planted

QUICK = (
    "the last record of a batch is dropped",
    "one of three is a quorum",
    "the fastest replica commits",
    "an id is given twice",
    "records cached under the wrong id",
    "locks compared too strictly",
    "outcomes shifted by one",
    "a batch conflicts with its own locks",
    "a waiting read never times out",
)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_planted_text_is_found_once_and_compiles(planted: Planted) -> None:
    path, text = planted.place(ROOT)
    assert text != path.read_text()
    compile(text, str(path), "exec")


def test_names_of_planted_bugs_are_unique() -> None:
    assert len({planted.name for planted in PLANTED}) == len(PLANTED)


@pytest.mark.parametrize("name", QUICK)
def test_quickest_planted_bugs_are_caught(name: str) -> None:
    (planted,) = (p for p in PLANTED if p.name == name)
    assert hunt(planted, seeds=20).guarantee is not None
