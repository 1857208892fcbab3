"""Reads of data: whatever comes back, and in whatever portions, everybody gets one answer."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripted_storages import record
from waltz.protocol import FrameDecoder, RecordBatch, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.frames import CLIENT_SERVER
from waltz_server.core.effects import Fetched, Peer, Send
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.core.reads.data_reads import Reads
from waltz_server.core.reads.recent_records import RecentRecords
from waltz_server.core.replication.replica_reads import StoreReads

LAST = 40


@dataclass(frozen=True)
class Asked:
    """A read that the store was asked for."""

    first_id: int
    count: int
    token: object


class RecordingStore(StoreReads):
    """Notes the reads it is asked for."""

    def __init__(self) -> None:
        super().__init__(0, [])
        self.asked: list[Asked] = []

    def records(self, first_id: int, count: int, token: object) -> None:
        self.asked.append(Asked(first_id, count, token))


def answers(sent: list[Send]) -> list[cs.TransactionDataResponse]:
    decoder = FrameDecoder(CLIENT_SERVER)
    decoder.version = 4
    found = [cs.decode(body, 4) for body in decoder.feed(b"".join(s.frames for s in sent))]
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
@settings(max_examples=300, deadline=None)
def test_every_question_gets_one_answer(steps: list[tuple[str, int]], cache_bytes: int) -> None:
    store, peer = RecordingStore(), Peer(4)
    reads = Reads(0, DataCache(cache_bytes), RecentRecords(0), store)
    questions: dict[int, int] = {}
    got: list[cs.TransactionDataResponse] = []

    def answer(position: int, limit: int | None) -> None:
        asked = store.asked.pop(position % len(store.asked))
        if limit is None:
            fetched = Fetched(asked.token, error="nobody could deliver")
        else:
            count = min(asked.count, limit)
            found = [record(i) for i in range(asked.first_id, asked.first_id + count)]
            fetched = Fetched(asked.token, records=RecordBatch.of(found))
        got.extend(answers(reads.records_fetched(fetched)))

    for number, (what, argument) in enumerate(steps):
        match what:
            case "read":
                request = cs.TransactionDataRequest(ReqId(1, 1, 0, number), argument)
                questions[number] = argument
                got += answers(reads.read(peer, request, LAST))
            case "deliver" if store.asked:
                answer(number, argument)
            case "fail" if store.asked:
                answer(number, None)
    while store.asked:
        answer(0, 1)
    assert sorted(m.req_id.seq for m in got) == sorted(questions)
    for message in got:
        wanted = questions[message.req_id.seq]
        assert message.transaction_id == wanted
        assert message.error is not None or message.data == b"%d" % wanted


def test_a_read_that_falls_short_does_not_disturb_one_that_began_there() -> None:
    store, peer = RecordingStore(), Peer(4)
    reads = Reads(0, DataCache(0), RecentRecords(0), store)

    def ask(wanted: int) -> None:
        request = cs.TransactionDataRequest(ReqId(1, 1, 0, wanted), wanted)
        assert reads.read(peer, request, LAST) == []

    def deliver(asked: Asked, count: int) -> list[int]:
        found = RecordBatch.of(record(asked.first_id + i) for i in range(count))
        sent = reads.records_fetched(Fetched(asked.token, records=found))
        return [m.transaction_id for m in answers(sent)]

    ask(39)
    assert deliver(store.asked.pop(), 1) == [39]
    ask(20)
    ask(10)
    later, earlier = store.asked
    assert (later.first_id, earlier.first_id) == (20, 10)
    assert earlier.count > 10, "reading ahead covers what the other read began with"
    store.asked.clear()
    assert deliver(earlier, 1) == [10]
    assert store.asked == [], "the read that began there is still under way"
    assert deliver(later, 1) == [20]


def test_what_was_just_committed_is_not_read_from_replicas() -> None:
    store, peer, recent = RecordingStore(), Peer(4), RecentRecords(1 << 20)
    recent.put(0, RecordBatch.of(record(i) for i in range(3)))
    recent.put(3, RecordBatch.of(record(i) for i in range(3, 5)))
    reads = Reads(0, DataCache(1 << 20), recent, store)
    for wanted in (4, 3, 0, 2):
        request = cs.TransactionDataRequest(ReqId(1, 1, 0, wanted), wanted)
        (answer,) = answers(reads.read(peer, request, LAST))
        assert (answer.transaction_id, answer.data) == (wanted, b"%d" % wanted)
    assert reads.data_cache_misses == 0
    uncached = Reads(0, DataCache(0), recent, store)
    request = cs.TransactionDataRequest(ReqId(1, 1, 0, 9), 3)
    assert [a.data for a in answers(uncached.read(peer, request, LAST))] == [b"3"]
    assert store.asked == []


def test_questions_do_not_pile_up_while_nobody_can_answer() -> None:
    store = RecordingStore()
    reads = Reads(0, DataCache(0), RecentRecords(0), store)
    patient, gone, left = Peer(4), Peer(4), Peer(4)
    for number in range(1000):
        for peer in (patient, gone):
            request = cs.TransactionDataRequest(ReqId(1, 1, 0, number), 7)
            assert reads.read(peer, request, LAST) == []
    assert len(store.asked) == 1
    reads.lost(gone)
    assert reads.read(left, cs.TransactionDataRequest(ReqId(2, 1, 0, 0), 9), LAST) == []
    sent = reads.close()
    assert {send.peer for send in sent} == {patient, left}
    assert all(answer.error == "partition not ready" for answer in answers(sent))
    last = [a.req_id.seq for a in answers([s for s in sent if s.peer is patient])]
    assert last == list(range(1000 - len(last), 1000))
    assert 0 < len(last) <= 20
    fetched = Fetched(store.asked[0].token, records=RecordBatch.of([record(7)]))
    assert reads.records_fetched(fetched) == []
