"""Ranges of records in their form on disk: passed on from replicas, and read ahead."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.garbage import kept_garbage
from tests.support.partition_world import NAMES, mounted, opened, put
from tests.support.range_reader import FORGETFUL, Reader, ids, storage_requests, texts, written
from tests.support.replication_world import World, append
from tests.support.stored_records import stored_form
from waltz.protocol import RecordBatch
from waltz.protocol import storage as st
from waltz.protocol.storage import STORED_LISTS_SINCE
from waltz.protocol.stored import StoredBatch
from waltz_server.core.effects import RangeReadTick
from waltz_server.core.reads.ranges_ahead import TICKS_HELD
from waltz_server.core.store_reports import ReadDone

# ---- records in their form on disk


def test_stored_range_is_passed_on_as_it_lies_on_a_disk() -> None:
    world, reader = opened(FORGETFUL, last=300), Reader(version=7)
    world.calls.clear()
    reader.records(world, 10, most=50, stored=True)
    (answer,) = reader.take_answers(world)
    (request,) = storage_requests(world)
    assert isinstance(request, st.StoredRecordListRequest)
    assert (request.first_id, request.last_id, request.max_records) == (10, 59, 50)
    wire = RecordBatch.of(world.storages["a"].records[10:60])
    assert (answer.high_water_mark, answer.records) == (300, stored_form(wire))


def test_stored_range_in_memory_is_answered_in_wire_form() -> None:
    world, reader = written(6), Reader(version=7)
    reader.records(world, 2, most=3, stored=True)
    assert texts(reader.take_answers(world)[0]) == ["2", "3", "4"]
    assert world.calls == []


def test_stored_range_is_not_sent_to_a_client_that_requests_verified_records() -> None:
    world, reader = opened(FORGETFUL, last=300), Reader(version=7)
    reader.records(world, 10, most=5)
    assert ids(reader.take_answers(world)[0]) == [10, 11, 12, 13, 14]


def test_stored_range_never_goes_beyond_the_mark() -> None:
    world, reader = opened(FORGETFUL, last=9), Reader(version=7)
    peer = mounted(world, 1, 9)
    world.hold("b", "c")
    put(world, peer, append("not committed yet"))
    assert world.storages["a"].last == 10
    world.calls.clear()
    world.held = {"b", "c"}
    reader.records(world, 8, stored=True)
    world.release("b", "c")
    (request,) = [r for r in storage_requests(world) if isinstance(r, st.StoredRecordListRequest)]
    assert request.last_id == 9
    assert reader.take_answers(world)[0].records.count == 2


def test_stored_range_keeps_the_bounds_with_at_least_one_record() -> None:
    world, reader = opened(FORGETFUL), Reader(version=7)
    peer = mounted(world, 1)
    put(world, peer, *(append("x" * 100) for _ in range(10)))
    for size, count in ((0, 1), (-5, 1), (139, 1), (280, 2), (1 << 20, 10)):
        reader.records(world, 0, size=size, stored=True)
        (answer,) = reader.take_answers(world)
        assert answer.records.count == count, size
        assert len(answer.records.raw) == 140 * count
    reader.records(world, 4, most=0, stored=True)
    assert reader.take_answers(world)[0].records.count == 1


@pytest.mark.parametrize(
    ("count", "size"),
    [(0, 0), (3, 120), (2, 1001)],
    ids=["no record", "beyond the mark or the bound", "too many bytes"],
)
def test_stored_range_that_breaks_its_bounds_is_read_from_another_replica(
    count: int, size: int
) -> None:
    world, reader = opened(FORGETFUL, last=20), Reader(version=7)
    world.storages["a"].scripted[st.StoredRecordListRequest] = StoredBatch(count, bytes(size))
    for _ in range(4):
        reader.records(world, 19, most=2, size=1000, stored=True)
        (answer,) = reader.take_answers(world)
        wire = RecordBatch.of(world.storages["b"].records[19:])
        assert answer.records == stored_form(wire)


def test_stored_range_of_an_older_storage_is_answered_in_wire_form() -> None:
    world, reader = opened(FORGETFUL, last=100), Reader(version=7)
    for storage in world.storages.values():
        storage.version = STORED_LISTS_SINCE - 1
    reader.records(world, 5, most=3, stored=True)
    assert ids(reader.take_answers(world)[0]) == [5, 6, 7]


def test_stored_range_read_tries_all_replicas_before_it_fails() -> None:
    world, reader = opened(FORGETFUL, last=20), Reader(version=7)
    for name in NAMES:
        world.storages[name].refusing[st.StoredRecordListRequest] = "damaged index"
    reader.records(world, 3, most=2, stored=True)
    (answer,) = reader.take_answers(world)
    assert "a, b, c" in answer.error
    reader.records(world, 3, most=2)
    assert ids(reader.take_answers(world)[0]) == [3, 4]


# ---- ranges that are read ahead


def forgetful() -> World:
    """Return a partition with the records 0 to 300, which are only on disks."""
    world = opened(FORGETFUL, last=300)
    world.calls.clear()
    return world


def firsts(world: World) -> list[int]:
    """Return the first ids of all reads that storages have done."""
    return [request.first_id for request in storage_requests(world)]


def read_two(world: World, reader: Reader) -> None:
    """Let ``reader`` read 0 to 19, in two ranges; then 20 to 29 are read ahead."""
    for first_id in (0, 10):
        reader.records(world, first_id, most=10, stored=True)
        assert reader.take_answers(world)[0].records.count == 10
    assert firsts(world) == [0, 10, 20]


def hold_after(world: World, first_id: int) -> None:
    """Let all storages hang after the read of ``first_id``."""

    def hold(_: str, request: Any, __: Any) -> None:
        if request.first_id == first_id:
            world.hold(*NAMES)

    world.on_call = hold


def request_range_under_way(world: World, reader: Reader) -> None:
    """Let ``reader`` read 0 to 19, and request 20 to 29 while the read ahead of them hangs."""
    hold_after(world, 10)
    for first_id in (0, 10):
        reader.records(world, first_id, most=10, stored=True)
    reader.take_answers(world)
    reader.records(world, 20, most=10, stored=True)


def test_next_range_of_a_sequential_reader_is_read_ahead() -> None:
    world, reader = forgetful(), Reader(version=7)
    hold_after(world, 20)
    read_two(world, reader)
    reader.records(world, 20, most=10, wait_ms=1000, stored=True)
    (answer,) = reader.take_answers(world)
    assert answer.records == stored_form(RecordBatch.of(world.storages["a"].records[20:30]))


def test_first_range_of_a_reader_is_not_followed_by_a_read_ahead() -> None:
    world, reader = forgetful(), Reader(version=7)
    for first_id in (0, 50, 70):
        reader.records(world, first_id, most=10, stored=True)
    assert firsts(world) == [0, 50, 70]


def test_reader_waits_for_the_range_that_is_being_read_ahead() -> None:
    world, reader = forgetful(), Reader(version=7)
    request_range_under_way(world, reader)
    assert reader.take_answers(world) == []
    assert reader.peer.range_reads == 1
    world.release(*NAMES)
    assert [each.records.count for each in reader.take_answers(world)] == [10]
    assert firsts(world) == [0, 10, 20, 30]


def test_range_that_is_read_ahead_is_dropped_by_another_request() -> None:
    world, reader = forgetful(), Reader(version=7)
    read_two(world, reader)
    reader.records(world, 20, most=10)
    reader.records(world, 5, most=10, stored=True)
    verified, stored = reader.take_answers(world)
    assert ids(verified) == list(range(20, 30))
    assert stored.records == stored_form(RecordBatch.of(world.storages["a"].records[5:15]))
    assert firsts(world) == [0, 10, 20, 20, 5]
    assert reader.peer.range_reads == 0
    assert not reader.peer.has_range_ahead


@pytest.mark.parametrize("bounds", [{"most": 9}, {"most": 10, "size": 500}])
def test_range_ahead_with_other_bounds_is_not_the_answer(bounds: dict[str, int]) -> None:
    world, reader = forgetful(), Reader(version=7)
    read_two(world, reader)
    reader.records(world, 20, stored=True, **bounds)
    assert reader.take_answers(world)[0].records.count <= 9 + ("size" in bounds)
    assert firsts(world) == [0, 10, 20, 20, *firsts(world)[4:]]


def test_dropped_range_that_is_being_read_ahead_is_no_answer() -> None:
    world, reader = forgetful(), Reader(version=7)
    hold_after(world, 10)
    for first_id in (0, 10, 200):
        reader.records(world, first_id, most=10, stored=True)
    reader.take_answers(world)
    assert reader.peer.range_reads == 2
    world.release(*NAMES)
    (answer,) = reader.take_answers(world)
    assert answer.records == stored_form(RecordBatch.of(world.storages["a"].records[200:210]))
    assert reader.peer.range_reads == 0


def test_headers_do_not_drop_the_range_that_is_read_ahead() -> None:
    world, reader = forgetful(), Reader(version=7)
    read_two(world, reader)
    reader.headers(world, 0)
    reader.records(world, 20, most=10, stored=True)
    assert firsts(world).count(20) == 1


def test_range_ahead_never_goes_beyond_the_mark() -> None:
    world, reader = forgetful(), Reader(version=7)
    for first_id in (281, 291, 301):
        reader.records(world, first_id, most=10, stored=True)
    assert [each.records.count for each in reader.take_answers(world)] == [10, 10, 0]
    assert [(r.first_id, r.last_id) for r in storage_requests(world)] == [(281, 290), (291, 300)]
    reader.records(world, 285, most=10, stored=True)
    reader.records(world, 295, most=10, stored=True)
    assert not reader.peer.has_range_ahead


def test_failed_read_ahead_is_no_answer() -> None:
    world, reader = forgetful(), Reader(version=7)

    def refuse(_: str, request: Any, __: Any) -> None:
        if request.first_id == 10:
            for storage in world.storages.values():
                storage.refusing[type(request)] = "damaged"

    world.on_call = refuse
    for first_id in (0, 10):
        reader.records(world, first_id, most=10, stored=True)
    reader.take_answers(world)
    assert not reader.peer.has_range_ahead
    for storage in world.storages.values():
        storage.refusing.clear()
    reader.records(world, 20, most=10, stored=True)
    assert reader.take_answers(world)[0].records.count == 10


def test_range_ahead_of_an_older_storage_is_the_answer_in_wire_form() -> None:
    world, reader = forgetful(), Reader(version=7)

    def downgrade(_: str, request: Any, __: Any) -> None:
        if request.first_id == 10:
            for storage in world.storages.values():
                storage.version = STORED_LISTS_SINCE - 1

    world.on_call = downgrade
    for first_id in (0, 10, 20):
        reader.records(world, first_id, most=10, stored=True)
    *_, last = reader.take_answers(world)
    assert ids(last) == list(range(20, 30))
    assert firsts(world) == [0, 10, 20]


def test_connection_has_one_range_ahead_in_all_partitions() -> None:
    first, second, reader = forgetful(), forgetful(), Reader(version=7)
    read_two(first, reader)
    for first_id in (0, 10):
        reader.records(second, first_id, most=10, stored=True)
    assert firsts(second) == [0, 10]
    reader.records(first, 0, most=10, stored=True)
    reader.records(second, 20, most=10, stored=True)
    assert firsts(second) == [0, 10, 20, 30]


def test_congested_reader_has_no_range_ahead() -> None:
    world, reader = forgetful(), Reader(version=7)
    reader.records(world, 0, most=10, stored=True)
    hold_after(world, 0)
    world.hold(*NAMES)
    reader.records(world, 10, most=10, stored=True)
    reader.peer.congested = True
    world.release(*NAMES)
    assert len(reader.take_answers(world)) == 2
    assert firsts(world) == [0, 10]


def test_close_refuses_the_request_that_waits_for_a_range_ahead() -> None:
    world, reader = forgetful(), Reader(version=7)
    hold_after(world, 10)
    for first_id in (0, 10, 20):
        reader.records(world, first_id, most=10, stored=True)
    reader.take_answers(world)
    world.core.close()
    world.settle()
    (answer,) = reader.take_answers(world)
    assert answer.error is not None
    assert reader.peer.range_reads == 0
    assert not reader.peer.has_range_ahead
    world.release(*NAMES)
    assert reader.take_answers(world) == []


def test_range_ahead_of_a_reader_that_pauses_is_dropped() -> None:
    world, reader = forgetful(), Reader(version=7)
    hold_after(world, 20)
    read_two(world, reader)
    for _ in range(TICKS_HELD):
        assert reader.peer.has_range_ahead
        world.wake(RangeReadTick)
    assert not reader.peer.has_range_ahead
    assert not any(isinstance(w.timer, RangeReadTick) for w in world.wakes), "nothing is held"
    reader.records(world, 20, most=10, stored=True)
    world.release(*NAMES)
    assert [each.records.count for each in reader.take_answers(world)] == [10]
    assert firsts(world)[:4] == [0, 10, 20, 20]


def test_range_ahead_is_forgotten_when_the_next_session_is_delayed() -> None:
    world, reader = forgetful(), Reader(version=7)
    request_range_under_way(world, reader)
    assert (reader.peer.range_reads, reader.peer.has_range_ahead) == (1, True)
    world.core._ranges.session_delayed()
    assert (reader.peer.range_reads, reader.peer.has_range_ahead) == (0, False)
    world.core._ranges.opened(300)
    world.release(*NAMES)
    assert [each.records.count for each in reader.take_answers(world)] == [10]


@pytest.mark.parametrize("under_way", [True, False])
def test_range_ahead_of_a_lost_reader_is_forgotten(under_way: bool) -> None:
    world, reader = forgetful(), Reader(version=7)
    if under_way:
        hold_after(world, 10)
    for first_id in (0, 10):
        reader.records(world, first_id, most=10, stored=True)
    reader.take_answers(world)
    world.core.lost(reader.peer)
    world.release(*NAMES)
    ahead = world.core._ranges._ahead
    assert [*ahead._ahead, *ahead._reading, *ahead._next_ids] == []
    assert reader.take_answers(world) == []


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "dropped"])
def test_range_read_ahead_is_freed_without_the_garbage_collector(taken: bool) -> None:
    """A server runs the collector seldom: a cycle would keep 4 MiB for each range until then."""
    world, reader = forgetful(), Reader(version=7)
    with kept_garbage() as garbage:
        read_two(world, reader)
        reader.records(world, 20 if taken else 200, most=10, stored=True)
        assert reader.take_answers(world)[0].records.count == 10
    assert not [each for each in garbage if isinstance(each, ReadDone)]
