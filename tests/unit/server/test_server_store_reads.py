"""Reads through a partition's store; replicas that lag and catch up."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from tests.support.memory_storages import MemoryStorage
from tests.support.replication_world import World
from tests.support.store_world import (
    LIMITS,
    NAMES,
    kinds,
    new_world,
    opened,
    put,
    reopen,
    start,
)
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.protocol import storage as st
from waltz_server.core.effects import BackoffOver
from waltz_server.core.reads.read_purposes import FeedHeaders, TransactionData
from waltz_server.core.replication.replica_reads import READS_PER_STORAGE
from waltz_server.core.store_reports import ReadDone

PURPOSE = TransactionData(0)
MANY_BYTES = 1 << 20

# ---- replicas that lag


def test_slow_replica_is_sent_batches_from_memory() -> None:
    world = opened()
    world.hold("c")
    put(world, *(str(i) for i in range(20)))
    assert len(world.waiting("c")) == LIMITS.batches_in_flight
    world.release("c")
    assert world.storages["c"].texts == [str(i) for i in range(20)]
    assert kinds(world, "a") == kinds(world, "b") == kinds(world, "c")
    assert set(kinds(world, "c")) == {"AppendRequest"}


def test_replica_behind_the_memory_copies_from_its_peers() -> None:
    world = opened(replace(LIMITS, tail_bytes=1))
    world.hold("c")
    put(world, *(str(i) for i in range(300)))
    world.release("c")
    assert world.storages["c"].texts == [str(i) for i in range(300)]
    assert "BoundedRecordListRequest" in kinds(world, "a") + kinds(world, "b")
    put(world, "more")
    assert world.storages["c"].texts[-1] == "more"
    assert world.active == set(NAMES)


def test_failed_copy_drops_the_lagging_replica_and_keeps_the_session() -> None:
    world = opened(replace(LIMITS, tail_bytes=1))
    for name in "ab":
        world.storages[name].refusing[st.BoundedRecordListRequest] = "unreadable"
    world.hold("c")
    put(world, *(str(i) for i in range(30)))
    session = world.core.session_id
    world.release("c")
    assert world.core.session_id == session
    assert world.active == {"a", "b"}
    put(world, "more")
    assert [t for _, t in world.committed()][-1] == "more"


def test_unreadable_copy_source_is_replaced_by_another() -> None:
    world = opened(replace(LIMITS, tail_bytes=1))
    world.hold("c")
    world.storages["a"].refusing[st.BoundedRecordListRequest] = "reading is off"
    put(world, *(str(i) for i in range(30)))
    world.release("c")
    assert world.active == set(NAMES)
    assert world.storages["c"].texts == world.storages["b"].texts


def test_lagging_replica_copies_from_sources_that_are_damaged_at_different_records() -> None:
    world = opened(replace(LIMITS, tail_bytes=1))
    world.hold("c")
    put(world, *(str(i) for i in range(30)))
    for name, damaged in (("a", (5, 6)), ("b", (15, 16))):
        world.storages[name].read_limit = 1  # so that each of them is asked for a damaged record
        world.storages[name].damage(*damaged)
    world.release("c")
    assert world.active == set(NAMES)
    assert world.storages["c"].texts == [str(i) for i in range(30)]


def test_record_damaged_in_both_sources_drops_only_the_lagging_replica() -> None:
    world = opened(replace(LIMITS, tail_bytes=1))
    world.hold("c")
    put(world, *(str(i) for i in range(30)))
    for name in "ab":
        world.storages[name].damage(9)
    world.release("c")
    assert world.active == {"a", "b"}


def test_recovery_copies_from_a_readable_source() -> None:
    """The nearest replica ahead has a vote, but cannot be copied from."""
    world = _three_logs()
    world.storages["a"].refusing[st.BoundedRecordListRequest] = "reading is off"
    start(world)
    world.connect()
    assert world.active == set(NAMES)
    assert len(set(map(len, (world.storages[n].texts for n in NAMES)))) == 1
    assert any("a cannot be read from 2 on: reading is off" in note for note in world.notes)


def test_recovery_copies_from_sources_that_are_damaged_at_different_records() -> None:
    world = _three_logs()
    world.storages["a"].damage(4)
    world.storages["b"].damage(3)
    start(world)
    world.connect()
    assert world.active == set(NAMES)
    assert world.storages["c"].texts == [str(i) for i in range(10)]


def _three_logs() -> World:
    """Return a world whose replicas have logs of different length from the last session."""
    world = new_world()
    world.storages = {
        "a": MemoryStorage("a", last=5, session=0),
        "b": MemoryStorage("b", last=9, session=0),
        "c": MemoryStorage("c", last=1, session=0),
    }
    world.metadata = PartitionMetadata(1, 0, dict.fromkeys(NAMES, ReplicaState(0, UNRESOLVED)))
    return world


class ShiftedStorage(MemoryStorage):
    """Answers a list of records with later ones, which no correct storage does."""

    def handle(self, request: Any) -> Any:
        if isinstance(request, st.BoundedRecordListRequest):
            request = replace(request, first_id=request.first_id + 1)
        return super().handle(request)


def test_copy_of_other_records_is_not_passed_on() -> None:
    world = _three_logs()
    world.storages["a"] = ShiftedStorage("a", last=5, session=0)
    start(world)
    world.connect()
    assert world.active == set(NAMES)
    assert any("a cannot be read from 2 on" in note for note in world.notes)


def test_replica_that_is_not_assigned_yet_is_tried_again_after_a_backoff() -> None:
    world = start(new_world())
    world.storages["c"].refusing[st.LastSessionInfoRequest] = "not assigned"
    world.connect()
    assert world.active == {"a", "b"}
    session = world.core.session_id
    assert any("c is not ready: not assigned" in note for note in world.notes)
    assert [world.wake(BackoffOver), world.wake(BackoffOver)] == [0.1, 0.2]
    world.storages["c"].refusing.clear()
    world.wake(BackoffOver)
    assert world.active == set(NAMES)
    assert world.core.session_id == session


# ---- reads


def test_read_goes_to_another_replica_when_one_fails() -> None:
    world = opened()
    put(world, "1", "2", "3")
    world.storages["a"].refusing[st.BoundedRecordListRequest] = "damaged"
    world.take_events()
    for _ in range(4):
        world.core.reads.read_records(0, 2, MANY_BYTES, PURPOSE)
        world.settle()
    fetched = [e for e in world.events if isinstance(e, ReadDone)]
    assert len(fetched) == 4
    for each in fetched:
        assert each.records is not None
        assert [r.data for r in each.records] == [b"1", b"2"]


def test_read_that_all_replicas_refuse_names_those_tried() -> None:
    world = opened()
    put(world, "1")
    for storage in world.storages.values():
        storage.refusing[st.BoundedRecordListRequest] = "damaged"
    world.take_events()
    world.core.reads.read_records(0, 1, MANY_BYTES, PURPOSE)
    world.settle()
    (fetched,) = world.events
    assert fetched.purpose is PURPOSE
    assert "a, b, c" in fetched.error


def test_reads_of_replicas_never_go_beyond_the_mark() -> None:
    world = opened()
    put(world, "1", "2")
    world.hold("b", "c")
    put(world, "uncommitted")
    world.core.reads.read_records(0, 10, MANY_BYTES, PURPOSE)
    world.core.reads.read_headers(1, 10, FeedHeaders())
    world.release("b", "c")
    records, headers = (e for e in world.events if isinstance(e, ReadDone))
    assert records.records is not None
    assert records.records.count == 2
    assert headers.headers is not None
    assert [h.transaction_id for h in headers.headers] == [1]


def test_reads_of_replicas_wait_for_the_next_session() -> None:
    world = opened()
    put(world, "1")
    world.cut("a")
    world.cut("b")
    world.core.reads.read_records(0, 1, MANY_BYTES, PURPOSE)
    world.settle()
    assert not any(isinstance(e, ReadDone) for e in world.events)
    world.connect("a", "b")
    reopen(world)
    assert [e.purpose for e in world.events if isinstance(e, ReadDone)] == [PURPOSE]


def test_read_tries_in_the_next_session_the_replicas_that_refused_it_before() -> None:
    world = opened()
    put(world, "1")
    damaged: dict[type, str] = {st.BoundedRecordListRequest: "damaged"}
    world.storages["a"].refusing |= damaged
    world.hold("b", "c")
    world.core.reads.read_records(0, 1, MANY_BYTES, PURPOSE)
    world.settle()
    assert kinds(world, "a")[-1] == "BoundedRecordListRequest"
    assert not any(isinstance(e, ReadDone) for e in world.events)
    world.storages["a"].refusing.clear()
    world.storages["b"].refusing |= damaged
    world.storages["c"].refusing |= damaged
    world.core.set_generation(2)
    world.release("b", "c")
    (fetched,) = [e for e in world.events if isinstance(e, ReadDone)]
    assert fetched.records is not None


def test_waiting_read_tries_all_replicas_in_the_next_session() -> None:
    """A short loss of all connections does not fail the reads that were under way."""
    world = opened()
    put(world, "1")
    world.hold(*NAMES)
    world.core.reads.read_records(0, 1, MANY_BYTES, PURPOSE)
    world.settle()
    (first,) = [name for name in NAMES if world.waiting(name)]
    world.cut(first)
    (second,) = [name for name in NAMES if world.waiting(name)]
    world.cut(second)
    world.held.clear()
    assert not any(isinstance(e, ReadDone) for e in world.events)
    world.connect(first, second)
    (last,) = set(NAMES) - {first, second}
    world.cut(last)
    world.take_events()
    reopen(world)
    (fetched,) = [e for e in world.events if isinstance(e, ReadDone)]
    assert fetched.records is not None


def test_read_whose_storage_is_lost_goes_to_another_replica() -> None:
    world = opened()
    put(world, "1")
    world.hold("a", "b", "c")
    world.core.reads.read_records(0, 1, MANY_BYTES, PURPOSE)
    world.settle()
    (reading_from,) = [name for name in NAMES if world.waiting(name)]
    world.held.clear()
    world.cut(reading_from)
    (fetched,) = [e for e in world.events if isinstance(e, ReadDone)]
    assert fetched.records is not None


def test_slow_replica_is_read_from_less_often() -> None:
    world = opened()
    put(world, "1")
    reading_from = []
    for _ in range(60):
        world.hold(*NAMES)
        world.core.reads.read_records(0, 1, MANY_BYTES, PURPOSE)
        world.settle()
        (name,) = [n for n in NAMES if world.waiting(n)]
        request = world.waiting(name)[0]
        world.held.clear()
        world._asked.clear()
        answer = world.storages[name].handle(request)
        world.store.answered(name, request, answer, 500.0 if name == "a" else 1.0)
        world.settle()
        reading_from.append(name)
    assert reading_from.count("a") < 6 < reading_from.count("b")


def test_read_goes_only_to_replicas_that_have_the_id() -> None:
    world = opened()
    put(world, "1")
    world.hold("c")
    put(world, "2")
    world.calls.clear()
    for _ in range(9):
        world.core.reads.read_records(1, 1, MANY_BYTES, PURPOSE)
        world.settle()
    assert len([e for e in world.events if isinstance(e, ReadDone) and e.records]) == 9
    assert "BoundedRecordListRequest" not in kinds(world, "c")
    assert not any(isinstance(r, st.BoundedRecordListRequest) for r in world.waiting("c"))


# ---- bounds


def done_ids(world: World) -> list[int]:
    return [
        each.transaction_id
        for event in world.events
        if isinstance(event, ReadDone) and event.records is not None
        for each in event.records
    ]


def test_reads_under_way_are_bounded_at_each_storage() -> None:
    """An append must not wait behind many reads on the connection to a storage."""
    world = opened()
    put(world, *map(str, range(20)))
    world.take_events()
    world.hold(*NAMES)
    for first_id in range(20):
        world.core.reads.read_records(first_id, 1, MANY_BYTES, PURPOSE)
    world.settle()
    assert [len(world.waiting(name)) for name in NAMES] == [READS_PER_STORAGE] * 3
    world.release(*NAMES)
    assert sorted(done_ids(world)) == list(range(20)), "no read is lost"


def test_storage_that_hangs_does_not_stop_the_reads_of_other_replicas() -> None:
    world = opened()
    put(world, *map(str, range(20)))
    world.take_events()
    world.hold("a")
    for first_id in range(20):
        world.core.reads.read_records(first_id, 1, MANY_BYTES, PURPOSE)
    world.settle()
    assert len(world.waiting("a")) == READS_PER_STORAGE
    assert len(done_ids(world)) == 20 - READS_PER_STORAGE
    world.release("a")
    assert sorted(done_ids(world)) == list(range(20))


def test_reads_whose_only_replica_is_busy_wait_for_it() -> None:
    world = opened()
    put(world, *map(str, range(5)))
    world.take_events()
    for name in "b", "c":
        world.storages[name].refusing[st.BoundedRecordListRequest] = "damaged"
    world.hold("a")
    for first_id in range(5):
        world.core.reads.read_records(first_id, 1, MANY_BYTES, PURPOSE)
    world.settle()
    assert len(world.waiting("a")) == READS_PER_STORAGE
    assert done_ids(world) == []
    world.release("a")
    assert sorted(done_ids(world)) == list(range(5))


def test_reads_that_wait_are_sent_in_their_order() -> None:
    world = opened()
    put(world, *map(str, range(20)))
    world.calls.clear()
    world.hold(*NAMES)
    for first_id in range(20):
        world.core.reads.read_records(first_id, 1, MANY_BYTES, PURPOSE)
    world.settle()
    world.release(*NAMES)
    sent = [r.first_id for _, r, _ in world.calls if isinstance(r, st.BoundedRecordListRequest)]
    assert sorted(sent) == list(range(20))
    assert all(n < later + 3 * READS_PER_STORAGE for n, later in pairwise(sent))
