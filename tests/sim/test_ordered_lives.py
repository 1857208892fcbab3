"""Replicas are moved, retired, recovered and compared while nodes die: nothing is lost."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tests.sim.ordered_life import OrderedLife
from tests.sim.promises import Violation

SEEDS = int(os.environ.get("SIM_ORDER_SEEDS", "12"))

STEPS = {
    "move": {"Hold", "SwitchOff", "Fill", "SwitchOn", "Reassign", "Drop"},
    "retire": {"Reassign", "Drop"},
    "recover": {"Fill", "SwitchOn"},
    "compare": {"Compare"},
}


def live(seed: int, *, kind: str, lost: bool) -> tuple[Counter[str], str | None]:
    life = OrderedLife(seed, kind, lost=lost)
    try:
        life.run()
    except (Violation, AssertionError) as broken:
        return life.story.counters, f"{kind}, seed {seed}: {broken!r}"
    return life.story.counters, None


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        ("move", False),
        ("retire", False),
        ("recover", False),
        ("compare", False),
        ("move", True),
        ("retire", True),
    ],
)
def test_orders_are_carried_out_while_nodes_die(kind: str, lost: bool) -> None:
    counters: Counter[str] = Counter()
    with ProcessPoolExecutor() as pool:
        lives = list(pool.map(partial(live, kind=kind, lost=lost), range(SEEDS), chunksize=4))
    broken = [why for _, why in lives if why is not None]
    assert not broken, "\n\n".join(broken[:3])
    for counted, _ in lives:
        counters += counted
    taken = {name.removeprefix("operator: ") for name in counters if name.startswith("operator: ")}
    assert taken >= STEPS[kind]
    if kind in ("move", "compare"):
        for fault in ("storage killed", "server killed", "operator killed"):
            assert counters[f"fault: {fault}"], fault
