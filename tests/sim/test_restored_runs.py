"""Test that a disk restored from a copy of the present session loses no transaction."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.sim.restored_run import RestoredRun
from tests.sim.sim_cluster import Result
from tests.support.processes import num_processes

SEEDS = int(os.environ.get("SIM_RESTORED_SEEDS", "8"))


def run_seed(seed: int) -> Result:
    return RestoredRun(seed).result()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_storage_restored_within_its_session_loses_no_committed_transaction() -> None:
    counters: Counter[str] = Counter()
    with ProcessPoolExecutor(num_processes()) as pool:
        runs = list(pool.map(run_seed, range(SEEDS), chunksize=2))
    violations = [run.violation for run in runs if run.violation is not None]
    assert not violations, "\n\n".join(violations[:3])
    for run in runs:
        counters += run.counters
    assert counters["recovery: the vote was below a committed id for a while"]
