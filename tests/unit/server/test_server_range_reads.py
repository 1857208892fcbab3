"""Reads of ranges through a partition: from memory, from replicas, and with a wait."""

from __future__ import annotations

import gc
import weakref

import pytest

from tests.support.partition_world import NAMES, mounted, new_world, opened, put
from tests.support.range_reader import FORGETFUL, Reader, ids, storage_requests, texts, written
from tests.support.replication_world import append
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz.protocol import storage as st
from waltz_server.core.effects import DisconnectClient, RangeReadTick
from waltz_server.core.partition import PartitionSettings
from waltz_server.core.peer import Peer
from waltz_server.core.reads.range_reads import (
    READS_PER_CONNECTION,
    REQUESTS_PER_CONNECTION,
    TICK_SECONDS,
)
from waltz_server.core.reads.read_purposes import MAX_ANSWER_BYTES

# ---- committed transactions


def test_range_at_the_end_of_the_log_comes_from_memory() -> None:
    world, reader = written(6), Reader()
    reader.records(world, 2, most=3)
    (answer,) = reader.take_answers(world)
    assert (answer.error, answer.high_water_mark) == (None, 5)
    assert texts(answer) == ["2", "3", "4"]
    assert [r.req_id for r in answer.records] == [ReqId(1, 1, 0, n) for n in (2, 3, 4)]
    assert world.calls == []


def test_older_range_comes_from_one_read_of_a_replica() -> None:
    world, reader = opened(FORGETFUL, last=300), Reader()
    world.calls.clear()
    reader.records(world, 10, most=50)
    (answer,) = reader.take_answers(world)
    assert ids(answer) == list(range(10, 60))
    assert [type(r) for r in storage_requests(world)] == [st.BoundedRecordListRequest]


def test_range_never_goes_beyond_the_mark() -> None:
    world, reader = opened(FORGETFUL, last=9), Reader()
    peer = mounted(world, 1, 9)
    world.hold("b", "c")
    put(world, peer, append("not committed yet"))
    assert world.storages["a"].last == 10
    world.calls.clear()
    world.held = {"b", "c"}
    reader.records(world, 8)
    world.release("b", "c")
    answers = reader.take_answers(world)
    assert ids(answers[0]) == [8, 9]
    assert answers[0].high_water_mark in (9, 10)


@pytest.mark.parametrize("settings", [None, FORGETFUL])
def test_byte_bound_leaves_at_least_one_record(settings: PartitionSettings | None) -> None:
    world, reader = opened(settings), Reader()
    peer = mounted(world, 1)
    put(world, peer, *(append("x" * 100) for _ in range(10)))
    for size, count in ((0, 1), (-5, 1), (139, 1), (280, 2), (1 << 20, 10)):
        reader.records(world, 0, size=size)
        (answer,) = reader.take_answers(world)
        assert len(answer.records) == count, size
    reader.records(world, 4, most=0)
    assert ids(reader.take_answers(world)[0]) == [4]


def test_surplus_records_of_an_older_storage_are_cut_off() -> None:
    world, reader = opened(FORGETFUL, last=100), Reader()
    for storage in world.storages.values():
        storage.ignores_bytes = True
    reader.records(world, 5, size=430)
    (answer,) = reader.take_answers(world)
    assert 1 < len(answer.records) < 12
    assert len(answer.records.wire) <= 430


def test_range_answers_are_bounded_by_the_server() -> None:
    world, reader = opened(), Reader()
    peer = mounted(world, 1)
    put(world, peer, *(append("x" * (MAX_ANSWER_BYTES // 4)) for _ in range(6)))
    reader.records(world, 0, size=2**31 - 1)
    (answer,) = reader.take_answers(world)
    assert len(answer.records.wire) <= MAX_ANSWER_BYTES


def test_range_read_tries_all_replicas_before_it_fails() -> None:
    world, reader = opened(FORGETFUL, last=20), Reader()
    for name in NAMES:
        world.storages[name].refusing[st.BoundedRecordListRequest] = "damaged"
    del world.storages["c"].refusing[st.BoundedRecordListRequest]
    reader.records(world, 3, most=2)
    assert ids(reader.take_answers(world)[0]) == [3, 4]
    world.storages["c"].refusing[st.BoundedRecordListRequest] = "damaged"
    reader.records(world, 3, most=2)
    (answer,) = reader.take_answers(world)
    assert "a, b, c" in answer.error
    assert answer.high_water_mark == 20


# ---- headers


def test_headers_from_memory_equal_those_appended() -> None:
    world, reader = written(100), Reader()
    reader.headers(world, 40, most=30)
    (answer,) = reader.take_answers(world)
    assert [h.transaction_id for h in answer.headers] == list(range(40, 70))
    assert [(h.req_id.seq, h.header) for h in answer.headers[:2]] == [(40, 120), (41, 123)]
    assert (answer.error, answer.high_water_mark) == (None, 99)
    assert world.calls == []


def test_older_headers_come_from_a_replica() -> None:
    world, reader = opened(last=300), Reader()
    world.calls.clear()
    reader.headers(world, 7, most=200)
    (answer,) = reader.take_answers(world)
    assert [h.transaction_id for h in answer.headers] == list(range(7, 207))
    assert [type(r) for r in storage_requests(world)] == [st.RecordHeaderListRequest]
    reader.headers(world, 301)
    assert reader.take_answers(world)[0].headers == ()


# ---- refused ranges


def test_impossible_ranges_are_refused() -> None:
    world, reader = new_world(last=5), Reader()
    reader.records(world, 0)
    reader.headers(world, 0)
    answers = reader.take_answers(world)
    assert [a.high_water_mark for a in answers] == [UNRESOLVED, UNRESOLVED]
    assert all("is not open yet" in a.error for a in answers)
    world.connect()
    reader.records(world, -1)
    reader.headers(world, -7)
    answers = reader.take_answers(world)
    assert [a.high_water_mark for a in answers] == [5, 5]
    assert "-1" in answers[0].error
    assert "-7" in answers[1].error


# ---- waits for later transactions


def test_range_beyond_the_mark_without_a_wait_is_empty_at_once() -> None:
    world, reader = written(3), Reader()
    reader.records(world, 3)
    (answer,) = reader.take_answers(world)
    assert (answer.error, answer.high_water_mark, len(answer.records)) == (None, 2, 0)
    reader.records(world, 3, wait_ms=1)
    assert reader.take_answers(world) == []


def test_waiting_range_read_is_answered_by_the_next_commit() -> None:
    world, reader, other = written(3), Reader(), Reader()
    peer = mounted(world, 2, 2)
    reader.records(world, 3, wait_ms=10_000)
    other.records(world, 4, wait_ms=10_000)
    world.hold(*NAMES)
    put(world, peer, append("3", client=2))
    assert reader.take_answers(world) == []
    world.release(*NAMES)
    (answer,) = reader.take_answers(world)
    assert (texts(answer), answer.high_water_mark) == (["3"], 3)
    assert other.take_answers(world) == []
    put(world, peer, append("4", client=2), append("5", client=2))
    assert texts(other.take_answers(world)[0]) == ["4", "5"]


def test_waiting_range_read_is_answered_empty_when_its_time_is_over() -> None:
    world, reader = written(3), Reader()
    reader.records(world, 3, wait_ms=200)
    waited = 0.0
    while not (answers := reader.take_answers(world)):
        waited += world.wake(RangeReadTick)
    assert 0.2 <= waited <= 0.2 + 3 * TICK_SECONDS
    assert (answers[0].error, len(answers[0].records)) == (None, 0)
    assert not any(isinstance(w.timer, RangeReadTick) for w in world.wakes), "no read waits"


def test_waiting_range_read_is_answered_by_a_session_that_opens_at_a_higher_mark() -> None:
    """Another server owned the partition in between, and wrote the awaited transactions."""
    world, reader = written(3), Reader()
    peer = mounted(world, 2, 2)
    reader.records(world, 3, wait_ms=60_000)
    world.hold(*NAMES)
    put(world, peer, append("3", client=2))
    for name in NAMES:
        world.storages[name].handle(world.waiting(name)[0])
    for name in NAMES:
        world.cut(name)
    world.held.clear()
    world.connect()
    while not world.core.store.is_open:
        world.wake(type(next(w.timer for w in world.wakes)))
    (answer,) = reader.take_answers(world)
    assert texts(answer) == ["3"]


# ---- bounds


def test_congested_reader_is_sent_nothing_until_it_drains() -> None:
    world, slow, quick = written(5), Reader(congested=True), Reader()
    for first_id in (0, 2):
        slow.records(world, first_id)
    quick.records(world, 1)
    assert len(quick.take_answers(world)) == 1
    assert slow.take_answers(world) == []
    slow.drain(world)
    assert [ids(a)[0] for a in slow.take_answers(world)] == [0, 2]


def test_answers_to_a_draining_reader_are_sent_in_bounded_portions() -> None:
    """The server learns only after sending whether the connection is congested."""
    world, slow = opened(), Reader(congested=True)
    peer = mounted(world, 1)
    put(world, peer, append("x" * (MAX_ANSWER_BYTES // 2)))
    for _ in range(10):
        slow.records(world, 0)
    slow.drain(world)
    assert len(slow.take_answers(world)) == 2
    slow.peer.congested = True
    assert world.turn()
    assert slow.take_answers(world) == []
    slow.drain(world)
    portions = [len(slow.take_answers(world))]
    while world.turn():
        portions.append(len(slow.take_answers(world)))
    assert portions == [2, 2, 2, 2]


def test_reads_of_replicas_are_bounded_per_connection() -> None:
    world, reader, other = opened(FORGETFUL, last=300), Reader(), Reader()
    world.hold(*NAMES)
    count = READS_PER_CONNECTION + 3
    for first_id in range(count):
        reader.records(world, first_id, most=1)
    waiting = [r for name in NAMES for r in world.waiting(name)]
    assert len(waiting) == READS_PER_CONNECTION == reader.peer.range_reads
    other.records(world, 9, most=1)
    world.release(*NAMES)
    assert len(other.take_answers(world)) == 1
    assert sorted(ids(a)[0] for a in reader.take_answers(world)) == list(range(count))
    assert reader.peer.range_reads == 0


def test_reader_blocked_by_reads_of_other_partitions_continues_after_a_tick() -> None:
    world, reader = opened(FORGETFUL, last=30), Reader()
    reader.peer.range_reads = READS_PER_CONNECTION
    reader.records(world, 3, most=1)
    assert reader.take_answers(world) == []
    world.wake(RangeReadTick)
    assert reader.take_answers(world) == []
    reader.peer.range_reads = 0
    world.wake(RangeReadTick)
    assert ids(reader.take_answers(world)[0]) == [3]


def test_connection_with_too_many_open_range_reads_is_closed() -> None:
    world, reader = written(1), Reader()
    for _ in range(REQUESTS_PER_CONNECTION):
        reader.records(world, 5, wait_ms=1000)
    assert not any(isinstance(e, DisconnectClient) for e in world.events)
    reader.records(world, 0)
    (drop,) = (e for e in world.events if isinstance(e, DisconnectClient))
    assert drop.peer is reader.peer


def test_answered_range_reads_allow_new_ones() -> None:
    world, reader = written(1), Reader()
    for _ in range(REQUESTS_PER_CONNECTION + 50):
        reader.records(world, 0)
        reader.records(world, 7)
    assert len(reader.take_answers(world)) == 2 * REQUESTS_PER_CONNECTION + 100


# ---- ends


def test_close_refuses_all_open_range_reads() -> None:
    world, reader = opened(FORGETFUL, last=30), Reader()
    world.hold(*NAMES)
    reader.records(world, 31, wait_ms=1000)
    for first_id in range(READS_PER_CONNECTION + 1):
        reader.records(world, first_id)
    reader.headers(world, 0)
    world.core.close()
    world.settle()
    answers = reader.take_answers(world)
    assert len(answers) == READS_PER_CONNECTION + 3
    assert all("not on this server" in a.error for a in answers)
    assert {a.high_water_mark for a in answers} == {UNRESOLVED}
    assert reader.peer.range_reads == 0
    world.release(*NAMES)
    reader.records(world, 3)
    assert len(reader.take_answers(world)) == 1


def test_close_refuses_range_reads_in_the_order_of_their_requests() -> None:
    world, readers = opened(FORGETFUL, last=30), [Reader() for _ in range(8)]
    world.hold(*NAMES)
    for first_id in range(READS_PER_CONNECTION):
        for reader in readers:
            reader.records(world, first_id)
    world.core.close()
    world.settle()
    for reader in readers:
        refused = [answer.req_id.seq for answer in reader.take_answers(world)]
        assert refused == list(range(READS_PER_CONNECTION))


def test_lost_reader_is_forgotten() -> None:
    world, reader = opened(FORGETFUL, last=30), Reader()
    world.hold(*NAMES)
    reader.records(world, 3)
    reader.records(world, 31, wait_ms=1000)
    world.core.lost(reader.peer)
    world.release(*NAMES)
    put(world, mounted(world, 1, 30), append("31"))
    world.wake(RangeReadTick)
    assert reader.take_answers(world) == []


def test_waiting_range_read_gets_transactions_of_another_owner_when_the_session_opens() -> None:
    world, reader = written(3), Reader()
    reader.records(world, 3, wait_ms=60_000)
    world.metadata = PartitionMetadata(2, 1, dict.fromkeys(NAMES, ReplicaState(1, UNRESOLVED)))
    world.version += 1
    for storage in world.storages.values():
        storage.serve_former_server(1, "of another owner")
    world.core.set_generation(3)
    world.settle()
    (answer,) = reader.take_answers(world)
    assert texts(answer) == ["of another owner"]


class ObservedPeer(Peer):
    """A peer whose end can be observed."""

    __slots__ = ("__weakref__",)


def test_server_keeps_nothing_of_a_lost_reader() -> None:
    world, reader = opened(FORGETFUL, last=30), Reader()
    reader.peer = ObservedPeer(5)
    kept = weakref.ref(reader.peer)
    reader.records(world, 31, wait_ms=1000)
    world.core.lost(reader.peer)
    del reader
    gc.collect()
    assert kept() is None


def test_empty_answer_is_refused_until_a_session_of_the_generation_opens() -> None:
    """Until a session of the new one opens, the log may have grown on another server."""
    world, reader = written(4), Reader()
    world.core.read_range(reader.peer, cs.RecordsRequest(ReqId(-1, 2, 0, 0), 0, 9, 99, 0))
    world.settle()
    (answer,) = reader.take_answers(world)
    assert answer.error is not None
    assert answer.high_water_mark == UNRESOLVED

    world.hold(*NAMES)
    world.core.set_generation(2)
    world.settle()
    reader.records(world, 2)
    reader.records(world, 4)
    reader.records(world, 4, wait_ms=100)
    for _ in range(4):
        world.wake(RangeReadTick)
    known, unknown, late = reader.take_answers(world)
    world.release(*NAMES)
    assert ids(known) == [2, 3]
    assert (unknown.error, unknown.high_water_mark) == (late.error, UNRESOLVED)
    assert unknown.error is not None
    reader.records(world, 4)
    (answer,) = reader.take_answers(world)
    assert (answer.error, answer.high_water_mark, ids(answer)) == (None, 3, [])
