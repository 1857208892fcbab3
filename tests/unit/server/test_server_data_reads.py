"""Test that every read of data gets one answer, however replicas split their answers."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scripted_storages import record
from waltz.protocol import FrameDecoder, RecordBatch, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.frames import CLIENT_SERVER
from waltz_server.core.effects import Effect, Ready, SendToClient
from waltz_server.core.peer import Peer
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.core.reads.data_reads import DataReads
from waltz_server.core.reads.read_purposes import ReadPurpose, TransactionData
from waltz_server.core.reads.recent_records import RecentRecords
from waltz_server.core.replication.replica_reads import ReplicaReads
from waltz_server.core.store_reports import ReadDone, StoreReports

LAST = 40


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

    def read(self, peer: Peer, request: cs.TransactionDataRequest) -> list[Effect]:
        self.reads.read_data(peer, request, LAST)
        return self.ready.take()

    def done(self, done: ReadDone) -> list[Effect]:
        assert isinstance(done.purpose, TransactionData)
        self.reads.read_done(done.purpose, done)
        return self.ready.take()

    def close(self) -> list[Effect]:
        self.reads.close()
        return self.ready.take()


class RecordingStore(ReplicaReads):
    """Records the requested reads."""

    def __init__(self) -> None:
        super().__init__(0, Ready(), StoreReports())
        self.requested: list[Requested] = []

    def records(self, first_id: int, count: int, purpose: ReadPurpose) -> None:
        self.requested.append(Requested(first_id, count, purpose))


def answers(sent: list[Effect]) -> list[cs.TransactionDataResponse]:
    decoder = FrameDecoder(CLIENT_SERVER)
    decoder.version = 4
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


def test_repeated_data_reads_are_bounded_while_no_replica_answers() -> None:
    reads = Requests(0)
    store = reads.store
    patient, gone, left = Peer(4), Peer(4), Peer(4)
    for number in range(1000):
        for peer in (patient, gone):
            request = cs.TransactionDataRequest(ReqId(1, 1, 0, number), 7)
            assert reads.read(peer, request) == []
    assert len(store.requested) == 1
    reads.reads.lost(gone)
    assert reads.read(left, cs.TransactionDataRequest(ReqId(2, 1, 0, 0), 9)) == []
    sent = [effect for effect in reads.close() if isinstance(effect, SendToClient)]
    assert {send.peer for send in sent} == {patient, left}
    assert all(answer.error == "partition not ready" for answer in answers([*sent]))
    last = [a.req_id.seq for a in answers([s for s in sent if s.peer is patient])]
    assert last == list(range(1000 - len(last), 1000))
    assert 0 < len(last) <= 20
    fetched = ReadDone(store.requested[0].purpose, records=RecordBatch.of([record(7)]))
    assert reads.done(fetched) == []
