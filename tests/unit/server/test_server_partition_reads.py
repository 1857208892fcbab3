"""Reads of single transactions through a partition: cached, shared, never beyond the mark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.partition_world import NAMES, mounted, new_world, opened, put, take_messages
from tests.support.replication_world import World, append
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.protocol import ReqId, checksum
from waltz.protocol import client_server as cs
from waltz.protocol import storage as st
from waltz_server.core.effects import BackoffOver, RecoveryOverdue
from waltz_server.core.peer import MOST_QUEUED_READS, Peer
from waltz_server.core.reads.data_reads import WAITING_PER_CONNECTION


def read(world: World, peer: Peer, wanted: int) -> None:
    world.core.read_data(peer, cs.TransactionDataRequest(ReqId(-1, 0, 0, wanted), wanted))
    world.settle()


def requested_reads(world: World) -> list[tuple[int, int]]:
    return [
        (r.first_id, r.max_records)
        for _, r, _ in world.calls
        if isinstance(r, st.BoundedRecordListRequest)
    ]


def test_data_just_committed_comes_from_memory() -> None:
    world = opened()
    peer = mounted(world, 1)
    put(world, peer, append("hello", header=3))
    take_messages(world, peer)
    world.calls.clear()
    read(world, peer, 0)
    (answer,) = take_messages(world, peer)
    assert (answer.data, answer.error) == (b"hello", None)
    assert checksum(answer.data) == answer.checksum
    assert world.calls == []
    assert world.core.data_cache_misses == 0


def test_concurrent_data_reads_share_one_read_ahead() -> None:
    world = opened(last=300)
    peer, other = Peer(4), Peer(1)
    world.hold(*NAMES)
    read(world, peer, 10)
    read(world, other, 10)
    read(world, other, 10)
    world.release(*NAMES)
    assert requested_reads(world) == [(10, 1)]
    assert [m.data for m in take_messages(world, peer)] == [b"10"]
    assert [m.data for m in take_messages(world, other)] == [b"10", b"10"]
    read(world, peer, 11)
    requested = requested_reads(world)
    assert requested[1][0] == 11
    assert requested[1][1] > 100, "small records: many in one read"
    read(world, peer, 12)
    read(world, peer, 11 + requested[1][1] - 1)
    assert len(requested_reads(world)) == 2
    assert [m.data for m in take_messages(world, peer)] == [
        b"11",
        b"12",
        b"%d" % (10 + requested[1][1]),
    ]
    assert world.core.data_cache_misses == 4


def test_data_read_never_goes_beyond_the_mark() -> None:
    world = opened(last=20)
    peer = Peer(4)
    read(world, peer, 5)
    read(world, peer, 15)
    assert requested_reads(world) == [(5, 1), (15, 6)]


@pytest.mark.parametrize("wanted", [-1, 3, 1000])
def test_data_read_of_an_absent_id_fails_until_it_is_committed(wanted: int) -> None:
    """Defect of the reference: an id requested too early stays unreadable until a restart."""
    world = opened(last=2)
    peer = mounted(world, 1, 2)
    read(world, peer, wanted)
    (answer,) = take_messages(world, peer)
    assert answer.data is None
    assert answer.error.startswith("com.wepay.waltz.store.exception.TransactionNotFoundException: ")
    assert str(wanted) in answer.error
    put(world, peer, append("three"))
    take_messages(world, peer)
    read(world, peer, 3)
    assert take_messages(world, peer)[0].data == b"three"


def test_failed_data_read_can_be_repeated() -> None:
    world = opened(last=5)
    peer = Peer(4)
    for storage in world.storages.values():
        storage.refusing[st.BoundedRecordListRequest] = "damaged"
    read(world, peer, 3)
    (answer,) = take_messages(world, peer)
    assert answer.error.startswith("com.wepay.waltz.store.exception.StoreException: ")
    assert "a, b, c" in answer.error
    for storage in world.storages.values():
        storage.refusing.clear()
    read(world, peer, 3)
    assert take_messages(world, peer)[0].data == b"3"


def test_data_read_before_the_partition_opens_is_refused() -> None:
    world = new_world(last=2)
    peer = Peer(4)
    read(world, peer, 1)
    assert take_messages(world, peer)[0].error is not None


# ---- the high-water mark


def read_mark(world: World, generation: int) -> int:
    peer = Peer(4)
    world.core.read_mark(peer, cs.HighWaterMarkRequest(ReqId(-1, generation, 0, 1)))
    world.settle()
    (answer,) = take_messages(world, peer)
    return int(answer.transaction_id)


def test_mark_request_gets_no_mark_until_a_session_of_the_new_generation_opens() -> None:
    """Another server has committed a transaction in generation 2."""
    world = opened(last=2)
    assert read_mark(world, 1) == 2
    states = dict.fromkeys(NAMES, ReplicaState(2, UNRESOLVED))
    world.metadata = PartitionMetadata(2, 2, states)
    world.version += 1
    for storage in world.storages.values():
        storage.serve_former_server(2, "3")
    world.hold(*NAMES)
    world.core.set_generation(3)
    world.settle()
    assert [read_mark(world, generation) for generation in (0, 1, 3)] == [UNRESOLVED] * 3
    assert world.core.high_water_mark is None
    world.release(*NAMES)
    assert [read_mark(world, generation) for generation in (0, 1, 3)] == [3] * 3
    assert world.core.high_water_mark == 3


def test_mark_is_not_answered_to_a_client_that_knows_a_newer_generation() -> None:
    world = opened(last=2)
    assert read_mark(world, 2) == UNRESOLVED


def test_long_queue_of_reads_is_shortened_when_the_recovery_is_overdue() -> None:
    """A connection with a long queue is not read, so its requests to other partitions wait."""
    kept = WAITING_PER_CONNECTION + MOST_QUEUED_READS
    world, peer = opened(last=kept + 50), Peer(4)
    world.hold(*NAMES)
    for wanted in range(kept + 50):
        read(world, peer, wanted)
    world.cut("b")
    world.cut("c")
    assert peer.has_long_queue, "the next session may open at once"
    while peer.has_long_queue:
        world.wake(RecoveryOverdue)
    refused = take_messages(world, peer)
    assert sorted(m.transaction_id for m in refused) == list(range(kept, kept + 50))
    assert all("no open store session" in m.error for m in refused)
    world.release(*NAMES)
    world.connect("b", "c")
    while not world.store.is_open:
        world.wake(BackoffOver)
    answered = take_messages(world, peer)
    assert sorted(m.transaction_id for m in answered) == list(range(kept))
    assert all(m.data == str(m.transaction_id).encode() for m in answered)


@pytest.mark.parametrize("answered", [False, True], ids=["no answer", "newer generation"])
def test_long_queue_of_reads_is_shortened_when_no_session_can_begin(answered: bool) -> None:
    kept = WAITING_PER_CONNECTION + MOST_QUEUED_READS
    world, peer = opened(last=kept + 50), Peer(4)
    world.hold(*NAMES)
    for wanted in range(kept + 50):
        read(world, peer, wanted)
    world.metadata_held = True
    world.cut("b")
    world.cut("c")
    assert peer.has_long_queue, "the next session may begin at once"
    order = world.metadata_orders.popleft()
    if answered:
        newer = replace(world.metadata, generation=world.metadata.generation + 1)
        world.store.metadata_read(order, newer, world.version)
    else:
        world.store.metadata_failed(order, "no answer")
    world.settle()
    refused = take_messages(world, peer)
    assert sorted(m.transaction_id for m in refused) == list(range(kept, kept + 50))
    assert not peer.has_long_queue
