"""Test that orders lose no transaction while nodes are killed."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tests.sim.ordered_run import OrderedRun
from tests.sim.sim_cluster import Result
from tests.support.processes import num_processes

SEEDS = int(os.environ.get("SIM_ORDER_SEEDS", "6"))

STEPS = {
    "move": {
        "CreateReplicas",
        "SwitchOff",
        "CopyReplica",
        "SwitchOn",
        "ChangeAssignment",
        "DropReplicas",
    },
    "retire": {"ChangeAssignment", "DropReplicas"},
    "recover": {"CopyReplica", "SwitchOn"},
    "compare": {"comparison"},
}


def run_seed(seed: int, *, kind: str, lost: bool) -> Result:
    return OrderedRun(seed, kind, lost=lost).result()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        ("move", False),
        ("recover", False),
        ("retire", False),
        ("compare", False),
        ("move", True),
        ("retire", True),
    ],
)
def test_orders_are_executed_while_nodes_are_killed(kind: str, lost: bool) -> None:
    counters: Counter[str] = Counter()
    with ProcessPoolExecutor(num_processes()) as pool:
        runs = list(pool.map(partial(run_seed, kind=kind, lost=lost), range(SEEDS), chunksize=4))
    violations = [f"{kind}, {run.violation}" for run in runs if run.violation is not None]
    assert not violations, "\n\n".join(violations[:3])
    for run in runs:
        counters += run.counters
    prefix = "administrator: "
    taken = {name.removeprefix(prefix) for name in counters if name.startswith(prefix)}
    assert taken >= STEPS[kind]
    if kind in ("move", "compare"):
        for fault in ("storage killed", "server killed", "administrator killed"):
            assert counters[f"fault: {fault}"], fault
