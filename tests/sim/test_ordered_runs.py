"""Test that orders lose no transaction while nodes are killed."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tests.sim.guarantees import Violation
from tests.sim.ordered_run import OrderedRun
from tests.support.processes import processes

SEEDS = int(os.environ.get("SIM_ORDER_SEEDS", "12"))

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
    "compare": {"Compare"},
}


def run_seed(seed: int, *, kind: str, lost: bool) -> tuple[Counter[str], str | None]:
    run = OrderedRun(seed, kind, lost=lost)
    try:
        run.run()
    except (Violation, AssertionError) as broken:
        return run.history.counters, f"{kind}, seed {seed}: {broken!r}"
    return run.history.counters, None


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        ("move", False),
        ("recover", False),
        pytest.param("retire", False, marks=pytest.mark.slow),
        pytest.param("compare", False, marks=pytest.mark.slow),
        pytest.param("move", True, marks=pytest.mark.slow),
        pytest.param("retire", True, marks=pytest.mark.slow),
    ],
)
def test_orders_are_executed_while_nodes_are_killed(kind: str, lost: bool) -> None:
    counters: Counter[str] = Counter()
    with ProcessPoolExecutor(processes()) as pool:
        runs = list(pool.map(partial(run_seed, kind=kind, lost=lost), range(SEEDS), chunksize=4))
    broken = [why for _, why in runs if why is not None]
    assert not broken, "\n\n".join(broken[:3])
    for counted, _ in runs:
        counters += counted
    taken = {name.removeprefix("operator: ") for name in counters if name.startswith("operator: ")}
    assert taken >= STEPS[kind]
    if kind in ("move", "compare"):
        for fault in ("storage killed", "server killed", "operator killed"):
            assert counters[f"fault: {fault}"], fault
