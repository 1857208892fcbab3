"""The slots and estimates of the lock table are those of the vectors (spec/behaviour.md section 4).

0.13.2 refuses an append if an open one uses any slot of its locks, although the locks may differ.
Here an append waits only if all slots of a lock are in use, which is a subset of those cases.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

from waltz_server.core.appends.lock_table import LockTable, Slots


def test_slots_of_a_lock_equal_the_vectors(vectors: Path) -> None:
    for case in json.loads((vectors / "locks.json").read_text())["slots"]:
        assert case["numHashFuncs"] == 3
        table = LockTable(case["tableSize"], 0)
        assert list(*table.slots([case["lockHash"]])) == case["slots"], case


def test_estimates_and_open_locks_of_a_scenario_equal_the_vectors(vectors: Path) -> None:
    scenario = json.loads((vectors / "locks.json").read_text())["scenario"]
    table = LockTable(scenario["tableSize"], scenario["initialHighWaterMark"])
    held: Counter[int] = Counter()
    active: dict[int, Slots] = {}
    for step in scenario["steps"]:
        if step["op"] == "begin":
            if _begin(table, held, step):
                taken = table.slots(step["write"] + step["append"])
                table.hold(taken)
                held.update(chain(*taken))
                active[step["request"]] = taken
        else:
            taken = active.pop(step["request"])
            table.release(taken, step["transactionId"])
            held.subtract(chain(*taken))
        assert len(active) == step["active"], step
    everything = table.slots(range(1000))
    assert not active or table.any_busy(everything)


def _begin(table: LockTable, held: Counter[int], step: dict[str, Any]) -> bool:
    """Compare a step with the table; return whether the vectors grant it."""
    checked = table.slots(step["write"] + step["read"])
    wanted = checked + table.slots(step["append"])
    granted: bool = step["granted"]
    assert granted == (not any(held[slot] for slot in chain(*wanted))), step
    assert not (granted and table.any_busy(wanted)), step
    assert table.last_taken(checked) == step["lockHighWaterMark"], step
    return granted
