"""Test that every read of data gets one answer, however replicas split their answers."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.memory_storages import record
from waltz.protocol import FrameDecoder, RecordBatch, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.frames import CLIENT_SERVER
from waltz_server.core.effects import Effect, Ready, ScheduleTurn, SendToClient
from waltz_server.core.peer import MOST_QUEUED_READS, Peer
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.core.reads.data_reads import (
    READ_BYTES,
    READS_IN_FLIGHT,
    WAITING_PER_CONNECTION,
    DataReads,
)
from waltz_server.core.reads.read_purposes import MAX_ANSWER_BYTES, ReadPurpose, TransactionData
from waltz_server.core.reads.recent_records import RecentRecords
from waltz_server.core.replication.replica_reads import ReplicaReads
from waltz_server.core.store_reports import ReadDone, StoreReports

LAST = 40
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Requested:
    """A read that was requested from the store."""

    first_id: int
    count: int
    purpose: ReadPurpose


class Requests:
    """Reads of data, over a store that records the requests, and the answers that they send."""

    def __init__(self, cache_bytes: int, recent: RecentRecords | None = None) -> None:
        self.store, self.ready = RecordingStore(), Ready()
        self.reads = DataReads(
            0, DataCache(cache_bytes), recent or RecentRecords(0), self.store, self.ready
        )

    def read(
        self, peer: Peer, request: cs.TransactionDataRequest, last: int = LAST
    ) -> list[Effect]:
        self.reads.read_data(peer, request, last)
        return self.ready.take()

    def done(self, done: ReadDone) -> list[Effect]:
        assert isinstance(done.purpose, TransactionData)
        self.reads.read_done(done.purpose, done)
        return self.ready.take()

    def deliver(self, requested: Requested, count: int, size: int = 0) -> list[Effect]:
        """Answer a read with its first ``count`` records, whose data have ``size`` bytes."""
        text = "x" * size if size else None
        found = [record(requested.first_id + i, text) for i in range(count)]
        return self.done(ReadDone(requested.purpose, records=RecordBatch.of(found)))

    def writable(self, peer: Peer) -> list[Effect]:
        peer.congested = False
        self.reads.writable(peer)
        return self.ready.take()

    def resume(self) -> list[Effect]:
        self.reads.resume()
        return self.ready.take()

    def close(self) -> list[Effect]:
        self.reads.close()
        return self.ready.take()


class RecordingStore(ReplicaReads):
    """Records the requested reads."""

    def __init__(self) -> None:
        super().__init__(0, Ready(), StoreReports())
        self.requested: list[Requested] = []
        self.has_session = True

    @property
    def is_open(self) -> bool:
        return self.has_session

    def read_records(
        self,
        first_id: int,
        count: int,
        max_bytes: int,
        purpose: ReadPurpose,
        *,
        stored: bool = False,
    ) -> None:
        assert max_bytes == READ_BYTES
        assert not stored
        self.requested.append(Requested(first_id, count, purpose))


def answers(sent: list[Effect]) -> list[cs.TransactionDataResponse]:
    spec = CLIENT_SERVER.limited_to(4)
    decoder = FrameDecoder(spec)
    decoder.feed(spec.hello(dialer=False))
    found = [
        cs.decode(body, 4)
        for body in decoder.feed(b"".join(s.frames for s in sent if isinstance(s, SendToClient)))
    ]
    return [m for m in found if isinstance(m, cs.TransactionDataResponse)]


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, LAST)),
        st.tuples(st.just("deliver"), st.integers(1, 10)),
        st.tuples(st.just("fail"), st.just(0)),
    ),
    max_size=30,
)


@given(_STEPS, st.integers(0, 4000))
@settings(max_examples=300)
def test_every_data_read_gets_one_answer(steps: list[tuple[str, int]], cache_bytes: int) -> None:
    reads, peer = Requests(cache_bytes), Peer(4)
    store = reads.store
    questions: dict[int, int] = {}
    got: list[cs.TransactionDataResponse] = []

    def answer(position: int, limit: int | None) -> None:
        requested = store.requested.pop(position % len(store.requested))
        if limit is None:
            fetched = ReadDone(requested.purpose, error="no replica could deliver")
        else:
            count = min(requested.count, limit)
            found = [record(i) for i in range(requested.first_id, requested.first_id + count)]
            fetched = ReadDone(requested.purpose, records=RecordBatch.of(found))
        got.extend(answers(reads.done(fetched)))

    for number, (what, argument) in enumerate(steps):
        match what:
            case "read":
                request = cs.TransactionDataRequest(ReqId(1, 1, 0, number), argument)
                questions[number] = argument
                got += answers(reads.read(peer, request))
            case "deliver" if store.requested:
                answer(number, argument)
            case "fail" if store.requested:
                answer(number, None)
    while store.requested:
        answer(0, 1)
    assert sorted(m.req_id.seq for m in got) == sorted(questions)
    for message in got:
        wanted = questions[message.req_id.seq]
        assert message.transaction_id == wanted
        assert message.error is not None or message.data == b"%d" % wanted


def test_short_read_does_not_repeat_a_later_read_in_progress() -> None:
    reads, peer = Requests(0), Peer(4)
    store = reads.store

    def ask(wanted: int) -> None:
        request = cs.TransactionDataRequest(ReqId(1, 1, 0, wanted), wanted)
        assert reads.read(peer, request) == []

    def deliver(requested: Requested, count: int) -> list[int]:
        found = RecordBatch.of(record(requested.first_id + i) for i in range(count))
        sent = reads.done(ReadDone(requested.purpose, records=found))
        return [m.transaction_id for m in answers(sent)]

    ask(39)
    assert deliver(store.requested.pop(), 1) == [39]
    ask(20)
    ask(10)
    later, earlier = store.requested
    assert (later.first_id, earlier.first_id) == (20, 10)
    assert earlier.count > 10, "reading ahead covers what the other read began with"
    store.requested.clear()
    assert deliver(earlier, 1) == [10]
    assert store.requested == [], "the read that began there is still under way"
    assert deliver(later, 1) == [20]


def test_recent_records_are_not_read_from_replicas() -> None:
    peer, recent = Peer(4), RecentRecords(1 << 20)
    recent.put(0, RecordBatch.of(record(i) for i in range(3)))
    recent.put(3, RecordBatch.of(record(i) for i in range(3, 5)))
    reads = Requests(1 << 20, recent)
    for wanted in (4, 3, 0, 2):
        request = cs.TransactionDataRequest(ReqId(1, 1, 0, wanted), wanted)
        (answer,) = answers(reads.read(peer, request))
        assert (answer.transaction_id, answer.data) == (wanted, b"%d" % wanted)
    assert reads.reads.data_cache_misses == 0
    uncached = Requests(0, recent)
    request = cs.TransactionDataRequest(ReqId(1, 1, 0, 9), 3)
    assert [a.data for a in answers(uncached.read(peer, request))] == [b"3"]
    assert reads.store.requested == uncached.store.requested == []


def test_repeated_data_reads_are_bounded_and_answered_while_no_session_is_open() -> None:
    """A client repeats its request while the partition has no open session."""
    reads = Requests(0)
    store = reads.store
    store.has_session = False
    patient, gone, left = Peer(4), Peer(4), Peer(4)
    refused: list[int] = []
    for number in range(1500):
        for peer in (patient, gone):
            request = cs.TransactionDataRequest(ReqId(1, 1, 0, number), 7)
            found = answers(reads.read(peer, request))
            assert all("no open store session" in (answer.error or "") for answer in found)
            refused += [answer.req_id.seq for answer in found if peer is patient]
    assert len(store.requested) == 1
    reads.reads.lost(gone)
    assert reads.read(left, cs.TransactionDataRequest(ReqId(2, 1, 0, 0), 9)) == []
    sent = [effect for effect in reads.close() if isinstance(effect, SendToClient)]
    assert {send.peer for send in sent} == {patient, left}
    assert all(answer.error == "partition not ready" for answer in answers([*sent]))
    last = [a.req_id.seq for a in answers([s for s in sent if s.peer is patient])]
    assert len(last) <= WAITING_PER_CONNECTION + MOST_QUEUED_READS
    assert last + refused == list(range(1500)), "each request is answered once"
    assert patient.queued_reads == gone.queued_reads == 0
    fetched = ReadDone(store.requested[0].purpose, records=RecordBatch.of([record(7)]))
    assert reads.done(fetched) == []


# ---- bounds


def data_request(wanted: int, number: int = 0) -> cs.TransactionDataRequest:
    return cs.TransactionDataRequest(ReqId(1, 1, 0, number), wanted)


def ids(sent: list[Effect]) -> list[int]:
    return [answer.transaction_id for answer in answers(sent)]


def deliver_all(reads: Requests) -> tuple[list[int], int]:
    """Answer all reads completely; return the ids that were answered, and the number of reads."""
    got, lists = [], 0
    while reads.store.requested:
        assert len(reads.store.requested) <= READS_IN_FLIGHT
        requested = reads.store.requested.pop(0)
        lists += 1
        got += ids(reads.deliver(requested, requested.count))
    return got, lists


def test_cold_reads_in_any_order_are_merged_into_few_lists() -> None:
    reads, peers, last = Requests(0), [Peer(4) for _ in range(25)], 4_999
    wanted = list(range(last + 1))
    Random(1).shuffle(wanted)
    for number, each in enumerate(wanted):
        assert reads.read(peers[number % len(peers)], data_request(each), last) == []
    got, lists = deliver_all(reads)
    assert sorted(got) == list(range(last + 1))
    assert lists < 100


def test_repeated_reads_of_one_transaction_do_not_use_up_the_bound_of_a_connection() -> None:
    reads, peer = Requests(0), Peer(4)
    # The count of a connection begins anew when none of its requests waits: one always waits.
    assert reads.read(peer, data_request(0), 0) == []
    slow = reads.store.requested.pop()
    for wanted in range(1, WAITING_PER_CONNECTION):
        for number in range(3):
            assert reads.read(peer, data_request(wanted, number), wanted) == []
        assert peer.queued_reads == 0, "the bound of the connection is not reached"
        assert deliver_all(reads)[0] == [wanted] * 3
    assert ids(reads.deliver(slow, 1)) == [0]


def test_waiting_transactions_of_a_connection_are_bounded() -> None:
    reads, peer, other = Requests(0), Peer(4), Peer(4)
    count = WAITING_PER_CONNECTION + 300
    for each in range(count):
        assert reads.read(peer, data_request(each), count) == []
    assert peer.queued_reads == 300
    assert reads.read(other, data_request(count), count) == []
    assert other.queued_reads == 0, "the queue of one connection does not hold up another"
    got, _ = deliver_all(reads)
    assert sorted(got) == list(range(count + 1))
    assert peer.queued_reads == 0


def test_read_of_a_long_queue_is_refused_only_without_a_session() -> None:
    reads, peer = Requests(0), Peer(4)
    most = WAITING_PER_CONNECTION + MOST_QUEUED_READS
    for each in range(most):
        assert reads.read(peer, data_request(each), most + 9) == []
    assert not peer.has_long_queue
    assert reads.read(peer, data_request(most), most + 9) == []
    assert peer.has_long_queue
    reads.store.has_session = False
    refused = answers(reads.read(peer, data_request(most + 1), most + 9))
    assert [answer.transaction_id for answer in refused] == [most + 1, most]
    assert all("no open store session" in (answer.error or "") for answer in refused)
    assert peer.queued_reads == MOST_QUEUED_READS
    reads.reads.lost(peer)
    assert peer.queued_reads == 0
    assert deliver_all(reads)[0] == []


def test_reads_beyond_the_bound_of_a_connection_fail_when_no_session_opens() -> None:
    """The connection is read again, so that its requests to other partitions do not wait."""
    reads, peer, other = Requests(0), Peer(4), Peer(4)
    most = WAITING_PER_CONNECTION + MOST_QUEUED_READS
    for each in range(most + 500):
        assert reads.read(peer, data_request(each), most + 500) == []
    assert reads.read(other, data_request(0), most + 500) == []
    reads.store.has_session = False
    reads.reads.session_delayed()
    assert sorted(ids(reads.ready.take())) == list(range(most, most + 500))
    assert not peer.has_long_queue
    reads.store.has_session = True
    got, _ = deliver_all(reads)
    assert sorted(got) == [0, *range(most)], "the other requests wait for the next session"


def test_closed_partition_refuses_the_queue_of_a_connection() -> None:
    reads, peer = Requests(0), Peer(4)
    count = WAITING_PER_CONNECTION + 3
    for each in range(count):
        reads.read(peer, data_request(each), count)
    assert sorted(ids(reads.close())) == list(range(count))
    assert peer.queued_reads == 0


@pytest.mark.parametrize("cache_bytes", [0, MEGABYTE])
def test_congested_connection_is_sent_nothing_until_it_is_writable(cache_bytes: int) -> None:
    reads, peer, absent = Requests(cache_bytes), Peer(4), LAST + 1
    assert reads.read(peer, data_request(7)) == []
    peer.congested = True
    assert reads.deliver(reads.store.requested.pop(), 1) == []
    assert reads.read(peer, data_request(absent)) == []
    sent = reads.writable(peer)
    if not cache_bytes:
        # The record was not kept: it is read again.
        sent += reads.deliver(reads.store.requested.pop(), 1)
    assert sorted(ids(sent)) == [7, absent]
    assert peer.queued_reads == 0


def test_cached_megabyte_is_sent_in_bounded_portions() -> None:
    """The server learns only after sending whether the connection is congested."""
    reads, peer, count = Requests(8 * MEGABYTE), Peer(4), 100
    reads.read(peer, data_request(7))
    assert ids(reads.deliver(reads.store.requested.pop(), 1, MEGABYTE)) == [7]
    peer.congested = True
    for number in range(count):
        assert reads.read(peer, data_request(7, number)) == []
    assert peer.queued_reads == count
    sent, portions = reads.writable(peer), []
    while any(isinstance(effect, SendToClient) for effect in sent):
        frames = [effect.frames for effect in sent if isinstance(effect, SendToClient)]
        assert sum(map(len, frames)) < MAX_ANSWER_BYTES + 2 * MEGABYTE
        assert any(isinstance(effect, ScheduleTurn) for effect in sent) == (peer.queued_reads > 0)
        portions.append(len(frames))
        sent = reads.resume()
    assert sum(portions) == count
    assert peer.queued_reads == 0


def test_uncached_megabyte_is_sent_in_bounded_portions() -> None:
    """A record that no cache keeps is read again for each portion."""
    reads, peers = Requests(0), [Peer(4) for _ in range(3)]
    for peer in peers:
        for number in range(10):
            assert reads.read(peer, data_request(7, number)) == []
    answered = 0
    while reads.store.requested:
        sent = reads.deliver(reads.store.requested.pop(), 1, MEGABYTE)
        for peer in peers:
            size = sum(
                len(e.frames) for e in sent if isinstance(e, SendToClient) and e.peer is peer
            )
            assert size < MAX_ANSWER_BYTES + 2 * MEGABYTE
        answered += sum(isinstance(effect, SendToClient) for effect in sent)
        reads.resume()
    assert answered == 30


def test_read_continues_where_an_answer_ended_early() -> None:
    reads, peer = Requests(0), Peer(4)
    reads.read(peer, data_request(LAST))
    assert ids(reads.deliver(reads.store.requested.pop(), 1)) == [LAST]
    for wanted in (5, 0, 20, 10):
        assert reads.read(peer, data_request(wanted)) == []
    first, second = reads.store.requested
    assert [(each.first_id, each.count) for each in (first, second)] == [(5, 36), (0, 41)]
    reads.store.requested.clear()
    assert ids(reads.deliver(first, 3)) == [5]
    assert reads.store.requested == [], "the other read under way includes the missing ones"
    assert ids(reads.deliver(second, 12)) == [0, 10]
    (third,) = reads.store.requested
    assert third.first_id == 20
    assert ids(deliver_and_clear(reads)) == [20]


def deliver_and_clear(reads: Requests) -> list[Effect]:
    (requested,) = reads.store.requested
    reads.store.requested.clear()
    return reads.deliver(requested, 1)
