"""The lock table's slots and estimates are the recorded ones (spec/behaviour.md section 4).

The reference refuses an append that wants a slot which an open one holds, even if the lock itself
is free. Here only locks that may be open make an append wait: a subset of what the reference
refuses.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

from waltz_server.core.appends.lock_table import LockTable, Slots


def test_slots(vectors: Path) -> None:
    for case in json.loads((vectors / "locks.json").read_text())["slots"]:
        assert case["numHashFuncs"] == 3
        table = LockTable(case["tableSize"], 0)
        assert list(*table.slots([case["lockHash"]])) == case["slots"], case


def test_scenario(vectors: Path) -> None:
    scenario = json.loads((vectors / "locks.json").read_text())["scenario"]
    table = LockTable(scenario["tableSize"], scenario["initialHighWaterMark"])
    held: Counter[int] = Counter()
    active: dict[int, Slots] = {}
    for step in scenario["steps"]:
        if step["op"] == "begin":
            if _begin(table, held, step):
                taken = table.slots(step["write"] + step["append"])
                table.begin(taken)
                held.update(chain(*taken))
                active[step["request"]] = taken
        else:
            taken = active.pop(step["request"])
            table.end(taken, step["transactionId"])
            held.subtract(chain(*taken))
        assert len(active) == step["active"], step
    everything = table.slots(range(1000))
    assert not active or table.any_open(everything)


def _begin(table: LockTable, held: Counter[int], step: dict[str, Any]) -> bool:
    """Compare a step with the table; returns whether the reference granted it."""
    checked = table.slots(step["write"] + step["read"])
    wanted = checked + table.slots(step["append"])
    granted: bool = step["granted"]
    assert granted == (not any(held[slot] for slot in chain(*wanted))), step
    assert not (granted and table.any_open(wanted)), step
    assert table.last_taken(checked) == step["lockHighWaterMark"], step
    return granted
