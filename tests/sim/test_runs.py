"""Test simulated clusters: every guarantee holds, every fault and rare branch occurs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import pytest

from tests.sim.runner import Outcome, run_seeds
from tests.support.processes import processes

SEEDS = int(os.environ.get("SIM_SEEDS", "200"))
BLOCK = 20
QUICK = 2
"""The number of blocks that `make test` runs; the others are slow."""

BLOCKS = range(-(-SEEDS // BLOCK))
pytestmark = pytest.mark.timeout(900)


@dataclass(slots=True)
class Blocks:
    """The outcomes of the blocks that ran."""

    outcomes: dict[int, Outcome] = field(default_factory=dict)

    def outcome(self, block: int) -> Outcome:
        """Return the outcome of a block; run its seeds if they have not run yet."""
        if block not in self.outcomes:
            seeds = range(block * BLOCK, min(SEEDS, (block + 1) * BLOCK))
            self.outcomes[block] = run_seeds(seeds, processes())
        return self.outcomes[block]


@pytest.fixture(scope="module")
def blocks() -> Blocks:
    """The blocks of seeds, shared by all tests below."""
    return Blocks()


@pytest.mark.parametrize(
    "block",
    [block if block < QUICK else pytest.param(block, marks=pytest.mark.slow) for block in BLOCKS],
)
def test_seeds_keep_every_guarantee(blocks: Blocks, block: int) -> None:
    outcome = blocks.outcome(block)
    assert not outcome.violations, "\n\n".join(outcome.violations[:3])
    assert outcome.fewest_committed >= 1000
    assert outcome.fewest_faults >= 5


@pytest.mark.slow
def test_seeds_cover_every_fault_and_branch(blocks: Blocks) -> None:
    total = Outcome()
    for block in BLOCKS:
        total.counters.update(blocks.outcome(block).counters)
    assert not total.silent(), f"never occurred: {total.silent()}"
