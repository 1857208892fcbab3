"""A replica takes part in the next session although the record at the mark is damaged on it."""

from __future__ import annotations

import pytest

from tests.support.memory_storages import MemoryStorage
from tests.support.store_world import NAMES, new_world, put, start
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState

_REQ_ID_BYTE = 10


@pytest.mark.parametrize(
    "entry", [ReplicaState(1, UNRESOLVED), ReplicaState(0, 9)], ids=["voter", "left earlier"]
)
def test_replica_with_a_damaged_record_at_the_mark_is_cut_after_it(entry: ReplicaState) -> None:
    world = new_world()
    session = 1 if entry.closing_mark == UNRESOLVED else 0
    world.storages = {
        "a": MemoryStorage("a", last=10, session=session),
        "b": MemoryStorage("b", last=9, session=1),
        "c": MemoryStorage("c", last=9, session=1),
    }
    voter = ReplicaState(1, UNRESOLVED)
    world.metadata = PartitionMetadata(1, 1, {"a": entry, "b": voter, "c": voter})
    replica = world.storages["a"]
    replica.damage(9, byte=_REQ_ID_BYTE)
    start(world)
    world.connect("b", "c")
    world.connect("a")
    assert world.active == set(NAMES)
    assert replica.marks[1:] == (9, 9)
    put(world, "next")
    replica.repair(9, world.storages["b"])
    assert replica.texts == world.storages["b"].texts == [*map(str, range(10)), "next"]
