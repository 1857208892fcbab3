"""Simulated clusters from seeds: every guarantee holds, every fault and rare branch occurs."""

from __future__ import annotations

import os

import pytest

from tests.sim.runner import COUNTERS_THAT_MUST_OCCUR, run_seeds

SEEDS = int(os.environ.get("SIM_SEEDS", "200"))


@pytest.mark.timeout(900)
def test_seeds_pass_and_cover_every_fault_and_branch() -> None:
    outcome = run_seeds(range(SEEDS), workers=os.cpu_count() or 1)
    assert not outcome.violations, "\n\n".join(outcome.violations[:3])
    silent = [name for name in COUNTERS_THAT_MUST_OCCUR if not outcome.counters[name]]
    assert not silent, f"never occurred: {silent}"
    assert outcome.fewest_committed >= 1000
    assert outcome.fewest_faults >= 5
