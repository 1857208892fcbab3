"""Test simulated clusters: every guarantee holds, every fault and rare branch occurs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.nodes_run import APPENDS, FAULTS
from tests.sim.runner import Outcome, run_seeds
from tests.support.processes import num_processes

SEEDS = int(os.environ.get("SIM_SEEDS", "56"))
QUICK = 8
"""The number of seeds that `make test` runs; the others are slow."""

FRESH = int(os.environ.get("SIM_FRESH_SEEDS", "8"))
"""The number of seeds that follow from the commit: each commit runs others."""

ROT_SEEDS = range(600, 612)
"""The seeds that are run with bits that flip on disks."""

FIRST_FRESH = 1_000_000
"""A fresh seed is never one of the fixed seeds."""

ROOT = Path(__file__).parents[2]
REPEAT = "repeat a seed by: python -m tests.sim.runner --history --seed …"
HISTORY = """
import hashlib
from tests.sim.nodes_run import NodesRun

run = NodesRun(3, detailed=True)
run.run()
print(hashlib.sha256(run.history.render(run.clock.now, run.clock.now).encode()).hexdigest())
"""
"""Prints the digest of the history of a run with two partitions."""

pytestmark = pytest.mark.timeout(900)


def checked(seeds: range) -> Outcome:
    """Run ``seeds``, and check that they keep every guarantee under enough faults."""
    outcome = run_seeds(seeds, num_processes())
    assert not outcome.violations, "\n\n".join((*outcome.violations[:3], REPEAT))
    assert outcome.fewest_committed >= APPENDS
    assert outcome.fewest_faults >= FAULTS
    return outcome


def test_seeds_keep_every_guarantee() -> None:
    checked(range(QUICK))


@pytest.mark.slow
def test_seeds_cover_every_fault_and_branch() -> None:
    outcome = checked(range(QUICK, QUICK + SEEDS))
    missing = outcome.missing_counters()
    assert not missing, f"never occurred: {missing}"


@pytest.mark.slow
def test_flipped_bits_are_found_and_repaired_in_every_seed() -> None:
    outcome = run_seeds(ROT_SEEDS, num_processes(), rot=True)
    assert not outcome.violations, "\n\n".join((*outcome.violations[:3], f"{REPEAT} --rot 1"))
    assert outcome.counters["fault: bit flipped"]
    assert outcome.counters["rot: records repaired"]
    assert outcome.counters["rot: a storage compared its replicas"]


@pytest.mark.slow
def test_fresh_seeds_keep_every_guarantee() -> None:
    """The fixed seeds find a defect only when it is new; other seeds may find an old one."""
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    first = FIRST_FRESH + int(found.stdout[:8], 16)
    checked(range(first, first + FRESH))


@pytest.mark.slow
def test_same_seed_has_the_same_history_in_every_process() -> None:
    """The order of a set of strings, or of objects by their addresses, must not matter."""
    runs = [history_of(hash_seed) for hash_seed in ("1", "2")]
    digests = {run.communicate()[0] for run in runs}
    assert [run.returncode for run in runs] == [0, 0]
    assert len(digests) == 1


def history_of(hash_seed: str) -> subprocess.Popen[str]:
    """Start a process that prints the digest of a history."""
    return subprocess.Popen(
        [sys.executable, "-c", HISTORY],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        text=True,
    )
