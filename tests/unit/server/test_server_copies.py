"""Bounds of the copies that bring a replica up to date: appends wait for a storage at work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.memory_storages import MemoryStorage
from tests.support.replication_world import World
from tests.support.store_world import LIMITS, NAMES, everywhere, new_world, opened, put, start
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.protocol import storage as st
from waltz.protocol.stored import STORED_OVERHEAD_BYTES
from waltz_server.core.limits import ReplicationLimits

OF_THREE_RECORDS = [
    replace(LIMITS, copy_records=3),
    replace(LIMITS, copy_bytes=3 * (STORED_OVERHEAD_BYTES + 1)),
]
"""Bounds of a copy that allow three records with one byte of data."""

of_three_records = pytest.mark.parametrize("limits", OF_THREE_RECORDS, ids=["records", "bytes"])


def copies_to_c(world: World) -> list[int]:
    """Return the numbers of records of the appends to storage c."""
    return [
        request.records.count
        for name, request, _ in world.calls
        if name == "c" and isinstance(request, st.AppendRequest)
    ]


@of_three_records
def test_copies_of_a_recovery_are_bounded(limits: ReplicationLimits) -> None:
    world = new_world(limits)
    world.storages = {
        "a": MemoryStorage("a", last=9, session=0),
        "b": MemoryStorage("b", last=9, session=0),
        "c": MemoryStorage("c", last=1, session=0),
    }
    state = ReplicaState(0, UNRESOLVED)
    world.metadata = PartitionMetadata(1, 0, dict.fromkeys(NAMES, state))
    start(world)
    world.connect()
    assert copies_to_c(world) == [3, 3, 2]
    assert world.active == set(NAMES)
    assert everywhere(world) == [str(i) for i in range(10)]


@of_three_records
def test_copies_to_a_replica_that_lags_are_bounded(limits: ReplicationLimits) -> None:
    world = opened(replace(limits, tail_bytes=1))
    world.hold("c")
    put(world, *"abcdefghijkl")
    world.calls.clear()
    world.release("c")
    in_flight, copies = [2, 2], [3, 3, 2]
    assert copies_to_c(world) == in_flight + copies
    assert world.storages["c"].texts == [*"abcdefghijkl"]
