"""Test that a server does not open a partition whose metadata in ZooKeeper were lost.

The storages hold what earlier sessions wrote. The tests look at each request that changes a disk.
"""

from __future__ import annotations

import pytest

from tests.support.memory_storages import MemoryStorage
from tests.support.replication_world import World
from tests.support.store_world import LIMITS, NAMES, everywhere, opened, put, start
from waltz.metadata.core.formats import NEW_PARTITION, UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.net.core.backoff import Backoff
from waltz.protocol import storage as st
from waltz_server.core.effects import RetrySession

_CHANGES = (
    st.TruncateRequest,
    st.TruncateBelowMarkRequest,
    st.SetLowWaterMarkRequest,
    st.AppendRequest,
)
_RESCUE = "waltz cluster rescue"


def _world(*storages: MemoryStorage, metadata: PartitionMetadata = NEW_PARTITION) -> World:
    world = World.of_store(LIMITS, Backoff(0.1, 1.0), storages)
    world.metadata = metadata
    return start(world)


def _changed(world: World) -> set[str]:
    """Return the storages to which a request was sent that changes a disk."""
    return {name for name, request, _ in world.calls if isinstance(request, _CHANGES)}


def _attempt(world: World, times: int) -> None:
    for _ in range(times):
        world.wake(RetrySession)


def test_server_does_not_open_partition_whose_metadata_vanished() -> None:
    """Without this rule it resolves the mark -1 when its session ids have caught up."""
    world = _world(*(MemoryStorage(name, last=9, session=4, low=5) for name in NAMES))
    world.connect()
    _attempt(world, 20)
    assert [storage.last for storage in world.storages.values()] == [9, 9, 9]
    assert _changed(world) == set()
    assert not world.core.is_open
    assert not world.core.healthy
    assert world.core.waiting_for is not None
    assert "storage a has session 4" in world.core.waiting_for
    assert _RESCUE in world.core.waiting_for
    assert any(_RESCUE in note for note in world.notes), "the log names the remedy"
    assert world.metadata.session_id == 0, "session ids do not catch up with the storages"


@pytest.mark.parametrize(
    "storage",
    [
        MemoryStorage("a", last=3, session=2),
        MemoryStorage("a", last=-1, session=2, low=3),
        MemoryStorage("a", last=-1, session=9),
    ],
    ids=["records", "low-water mark", "session that is not older"],
)
def test_evidence_of_an_earlier_session_keeps_partition_closed(storage: MemoryStorage) -> None:
    world = _world(
        MemoryStorage("b"), MemoryStorage("c"), storage, metadata=PartitionMetadata(0, 8, {})
    )
    world.connect("a", "b", "c")
    _attempt(world, 1)
    assert not world.core.is_open
    assert _changed(world) == set()
    assert _RESCUE in (world.core.waiting_for or "")


def test_first_session_that_failed_before_it_opened_is_no_evidence() -> None:
    world = _world(
        *(
            MemoryStorage(name, session=session)
            for name, session in zip(NAMES, (0, 1, -1), strict=True)
        ),
        metadata=PartitionMetadata(1, 1, {}),
    )
    world.connect()
    assert world.core.is_open
    assert world.core.waiting_for is None


def test_server_does_not_open_partition_with_metadata_of_an_older_backup() -> None:
    """Replica c diverged in session 5, and has left since; the old metadata let it vote."""
    old = {name: ReplicaState(5, UNRESOLVED) for name in NAMES}
    world = _world(
        MemoryStorage("a", last=20, session=9, low=10),
        MemoryStorage("b", last=20, session=9, low=10),
        MemoryStorage("c", last=15, session=5, low=2),
        metadata=PartitionMetadata(1, 5, old),
    )
    world.connect()
    _attempt(world, 10)
    assert not world.core.is_open
    assert _changed(world) == set()
    assert "has session 9, but ZooKeeper assigned session 6" in (world.core.waiting_for or "")


def test_partition_opens_when_metadata_are_rebuilt() -> None:
    world = _world(*(MemoryStorage(name, last=9, session=4, low=5) for name in NAMES))
    world.connect()
    _attempt(world, 3)
    world.metadata = PartitionMetadata(
        -1, 1004, {name: ReplicaState(4, UNRESOLVED) for name in NAMES}
    )
    world.version += 1
    _attempt(world, 1)
    assert world.core.is_open
    assert world.core.waiting_for is None
    assert world.core.high_water_mark == 9
    put(world, "x")
    assert everywhere(world)[-1] == "x"


def test_running_server_whose_metadata_vanish_begins_no_session_on_them() -> None:
    world = opened()
    put(world, "x", "y")
    world.metadata, world.version = NEW_PARTITION, 0
    world.cut("a")
    world.cut("b")
    _attempt(world, 3)
    assert not world.core.is_open
    assert "lost or restored from an older backup" in (world.core.waiting_for or "")
    assert world.metadata == NEW_PARTITION
    assert [storage.last for storage in world.storages.values()] == [1, 1, 1]


def test_replica_with_an_unconfirmed_mark_is_cut_below_it() -> None:
    """Replica c left session 5 at 10; session 6, which never opened, marked it at 20."""
    states = {
        "a": ReplicaState(7, UNRESOLVED),
        "b": ReplicaState(7, UNRESOLVED),
        "c": ReplicaState(5, 10),
    }
    world = _world(
        MemoryStorage("a", last=30, session=7, low=15),
        MemoryStorage("b", last=30, session=7, low=15),
        MemoryStorage("c", last=20, session=6, low=20, local=10),
        metadata=PartitionMetadata(1, 7, states),
    )
    world.connect()
    cuts = [r for name, r, _ in world.calls if isinstance(r, st.TruncateBelowMarkRequest)]
    assert [(cut.transaction_id, cut.low_water_mark) for cut in cuts] == [(10, 20)]
    assert world.core.is_open
    assert world.core.active_replicas == {"a", "b", "c"}


def test_replicas_that_contradict_the_metadata_of_an_open_session_are_logged_once() -> None:
    world = _world(
        *(MemoryStorage(name, session=5) for name in "abc"),
        *(MemoryStorage(name, last=9, session=9) for name in "de"),
        metadata=PartitionMetadata(1, 5, {name: ReplicaState(5, UNRESOLVED) for name in "abc"}),
    )
    world.connect()
    assert world.core.is_open
    assert world.core.active_replicas == {"a", "b", "c"}
    assert _changed(world) == {"a", "b", "c"}
    [note] = [note for note in world.notes if "has session 9" in note]
    assert "session 6 continues with a, b, c and admits no other replica" in note
    assert note.endswith(_RESCUE)


@pytest.mark.parametrize("restarted", [False, True], ids=["fence", "session on the disk"])
def test_server_that_lost_a_race_does_not_report_lost_metadata(restarted: bool) -> None:
    """Another server begins a newer session after this server's write, before its first request."""
    states = dict.fromkeys(NAMES, ReplicaState(0, UNRESOLVED))
    world = _world(
        *(MemoryStorage(name, last=9, session=0) for name in NAMES),
        metadata=PartitionMetadata(1, 0, states),
    )
    for storage in world.storages.values():
        storage.serve_former_server(2)
        if restarted:
            storage.restart()
    world.metadata = PartitionMetadata(2, 2, states)
    world.version += 1
    world.connect("a")
    assert world.core.waiting_for is None, "the metadata are not read again yet"
    _attempt(world, 1)
    assert world.core.waiting_for is None
    assert any("generation 2 has begun on another server" in note for note in world.notes)
    assert not any("lost" in note or _RESCUE in note for note in world.notes), world.notes


def test_server_whose_lost_metadata_name_a_newer_generation_drops_the_earlier_reason() -> None:
    world = _world(*(MemoryStorage(name, last=9, session=4, low=5) for name in NAMES))
    world.connect()
    _attempt(world, 2)
    assert _RESCUE in (world.core.waiting_for or "")
    world.metadata = PartitionMetadata(2, 5, dict.fromkeys(NAMES, ReplicaState(4, UNRESOLVED)))
    world.version += 1
    _attempt(world, 1)
    assert world.core.waiting_for is None


def test_open_session_that_a_replica_refuses_names_a_newer_session_as_a_possible_reason() -> None:
    world = _world(
        *(MemoryStorage(name, session=5) for name in "abc"),
        metadata=PartitionMetadata(1, 5, {name: ReplicaState(5, UNRESOLVED) for name in "abc"}),
    )
    world.connect("a", "b")
    assert world.core.is_open
    world.storages["c"].handle(st.LastSessionInfoRequest(7, 0, 0))
    world.connect("c")
    [note] = [note for note in world.notes if "has session 7" in note]
    assert "Unless another server has begun a newer session, the metadata" in note
