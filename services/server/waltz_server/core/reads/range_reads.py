"""Reads of ranges of the log, records or headers: now, or as soon as there is something. Pure.

An answer is made of whole batches from memory, or of what one replica delivers for one request. A
connection that does not drain is sent nothing, and only so many reads are under way for it.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from dataclasses import dataclass

from waltz.metadata.core.formats import UNRESOLVED
from waltz.protocol import RecordBatch, RecordHeader
from waltz.protocol import client_server as cs
from waltz.protocol.client_numbers import HEADERS_RESPONSE_TYPE
from waltz.protocol.records import EMPTY_BATCH
from waltz_server.core.effects import (
    Again,
    Drop,
    Fetched,
    PartitionEffect,
    Peer,
    ReadsTick,
    Send,
    Wake,
)
from waltz_server.core.reads.feed_cache import HEADER_BYTES, FeedCache, headers_of_frames
from waltz_server.core.reads.recent_records import Bounds, RecentRecords, within
from waltz_server.core.replication.replica_reads import StoreReads

TICK_SECONDS = 0.05
"""A read that waits may get its empty answer about so much later than it asked for."""
MAX_ANSWER_BYTES = 4 << 20
MAX_ANSWER_RECORDS = 1 << 16
MAX_ANSWER_HEADERS = 1 << 12
READS_PER_CONNECTION = 4
QUESTIONS_PER_CONNECTION = 1000

NOT_HERE = "the partition is not on this server: ask again, perhaps elsewhere"
NOT_OPEN = "the partition has not opened yet: ask again, perhaps elsewhere"

# type, request id, null as error, high-water mark, number of headers
_HEADERS_HEAD = struct.Struct(">b16siqi")
_NULL = -1

RangeRequest = cs.RecordsRequest | cs.HeadersRequest


@dataclass(eq=False, slots=True)
class Question:
    """One request that has not been answered; the token of the read that is made for it."""

    peer: Peer
    request: RangeRequest
    ticks: int = 0
    """Ticks until its time is up."""

    @property
    def bounds(self) -> Bounds:
        """What its answer may hold."""
        request = self.request
        if isinstance(request, cs.HeadersRequest):
            return Bounds(_clamped(request.max_headers, MAX_ANSWER_HEADERS), MAX_ANSWER_BYTES)
        return Bounds(
            _clamped(request.max_records, MAX_ANSWER_RECORDS),
            _clamped(request.max_bytes, MAX_ANSWER_BYTES),
        )


class RangeReads:
    """Who asked for what. Effects go to ``out``, which is the partition's."""

    def __init__(
        self,
        headers: FeedCache,
        recent: RecentRecords,
        store: StoreReads,
        out: list[PartitionEffect],
    ) -> None:
        self._headers = headers
        self._recent = recent
        self._store = store
        self._out = out
        self.answered_bytes = 0
        """Length of all answers so far."""
        self._mark: int | None = None
        self._confirmed = False
        """Whether the log ends at the mark for sure: others may have gone on without us."""
        self._open: Counter[Peer] = Counter()
        """Number of questions that have not been answered."""
        self._due: dict[Peer, deque[Question]] = {}
        """What can be answered, in order, as soon as the connection takes it."""
        self._waiting: list[Question] = []
        """What asks for transactions that are still to come."""
        self._reading: set[Question] = set()
        self._ticking = False

    def ask(self, peer: Peer, request: RangeRequest) -> None:
        """Answer ``request``, now or later."""
        mark = self._mark
        if mark is None:
            self._out.append(refusal(peer, request, NOT_OPEN, UNRESOLVED))
        elif request.first_id < 0:
            error = f"there is no transaction {request.first_id}: ids begin at 0"
            self._out.append(refusal(peer, request, error, mark))
        elif self._open[peer] >= QUESTIONS_PER_CONNECTION:
            error = f"more than {QUESTIONS_PER_CONNECTION} reads at once: wait for answers"
            self._out.append(Drop(peer, error))
        else:
            self._open[peer] += 1
            question = Question(peer, request)
            if request.first_id <= mark:
                self._due.setdefault(peer, deque()).append(question)
                self._serve(peer)
            else:
                self._wait(question)

    def unconfirmed(self) -> None:
        """A new generation begins: the log may have grown elsewhere, until a session opens."""
        self._confirmed = False

    def opened(self, mark: int) -> None:
        """The log ends at ``mark``: a store session has opened there."""
        self._mark = mark
        self._confirmed = True
        self._serve_arrived(mark)

    def committed(self, mark: int, first_id: int, records: RecordBatch) -> None:
        """The log has grown to ``mark``, by ``records``."""
        self._mark = mark
        self._recent.put(first_id, records)
        if self._waiting:
            self._serve_arrived(mark)

    def fetched(self, question: Question, fetched: Fetched) -> None:
        """What a replica delivered for ``question``."""
        if question not in self._reading:
            return
        self._reading.discard(question)
        question.peer.reads -= 1
        if fetched.error is not None:
            self._refuse(question, fetched.error)
        elif fetched.records is not None:
            records = within(fetched.records, 0, question.bounds, at_least_one=True)
            self._answer(question, records=records)
        else:
            self._answer(question, headers=fetched.headers or ())
        self._serve(question.peer)

    def writable(self, peer: Peer) -> None:
        """A congested connection drains again."""
        self._serve(peer)

    def tick(self) -> None:
        """`TICK_SECONDS` have passed: some have waited long enough, some may go on."""
        self._ticking = False
        for question in self._waiting:
            question.ticks -= 1
        over = [question for question in self._waiting if question.ticks <= 0]
        self._waiting = [question for question in self._waiting if question.ticks > 0]
        for question in over:
            self._nothing(question)
        self.resume()
        if self._waiting:
            self._tick()

    def resume(self) -> None:
        """Go on with what is due: what was answered has been sent, as far as it could be."""
        for peer in list(self._due):
            self._serve(peer)

    def lost(self, peer: Peer) -> None:
        """A connection is gone: nobody waits for its answers."""
        self._due.pop(peer, None)
        self._open.pop(peer, None)
        self._waiting = [q for q in self._waiting if q.peer is not peer]
        self._reading = {q for q in self._reading if q.peer is not peer}

    def close(self) -> None:
        """The partition is no longer here: say so to everybody who waits."""
        for question in self._reading:
            question.peer.reads -= 1
        asked = [question for queue in self._due.values() for question in queue]
        self._mark = None
        for question in (*asked, *self._waiting, *self._reading):
            self._refuse(question, NOT_HERE)
        self._due.clear()
        self._waiting.clear()
        self._reading.clear()

    def _wait(self, question: Question) -> None:
        request = question.request
        if isinstance(request, cs.RecordsRequest) and request.wait_ms > 0:
            # One more, because the tick under way is partly over.
            question.ticks = int(request.wait_ms / 1000 / TICK_SECONDS) + 2
            self._waiting.append(question)
            self._tick()
        else:
            self._nothing(question)

    def _nothing(self, question: Question) -> None:
        """Say that there is nothing yet, if that is known."""
        if self._confirmed:
            self._answer(question)
        else:
            self._refuse(question, NOT_OPEN)

    def _serve_arrived(self, mark: int) -> None:
        """Answer what waited for transactions that are there now."""
        arrived = [q for q in self._waiting if q.request.first_id <= mark]
        if arrived:
            self._waiting = [q for q in self._waiting if q.request.first_id > mark]
        for question in arrived:
            self._due.setdefault(question.peer, deque()).append(question)
        for peer in dict.fromkeys(question.peer for question in arrived):
            self._serve(peer)

    def _serve(self, peer: Peer) -> None:
        """Answer what is due on a connection, as far as it takes it."""
        queue = self._due.get(peer)
        begun = self.answered_bytes
        while queue and not peer.congested:
            if self.answered_bytes - begun >= MAX_ANSWER_BYTES:
                # Whether the connection takes that much shows when it has been sent.
                self._out.append(Again())
                return
            if not self._answer_from_memory(queue[0]):
                if peer.reads >= READS_PER_CONNECTION:
                    # Perhaps for other partitions, which do not tell when they are done.
                    self._tick()
                    return
                self._read(queue[0])
            queue.popleft()
        if not queue:
            self._due.pop(peer, None)

    def _answer_from_memory(self, question: Question) -> bool:
        request, bounds, mark = question.request, question.bounds, self._mark
        assert mark is not None
        if isinstance(request, cs.RecordsRequest):
            records = self._recent.get(request.first_id, bounds)
            if records is not None:
                self._answer(question, records=records)
            return records is not None
        count = min(bounds.max_records, mark + 1 - request.first_id)
        frames = self._headers.get(request.first_id, count)
        if frames:
            headers = headers_of_frames(frames)
            self._done(question, _headers_answer(request, question.peer.version, mark, headers))
        return bool(frames)

    def _read(self, question: Question) -> None:
        request, bounds, mark = question.request, question.bounds, self._mark
        assert mark is not None
        self._reading.add(question)
        question.peer.reads += 1
        count = min(bounds.max_records, mark + 1 - request.first_id)
        if isinstance(request, cs.RecordsRequest):
            self._store.bounded_records(request.first_id, count, bounds.max_bytes, question)
        else:
            self._store.headers(request.first_id, count, question)

    def _answer(
        self,
        question: Question,
        records: RecordBatch = EMPTY_BATCH,
        headers: tuple[RecordHeader, ...] = (),
    ) -> None:
        request, mark = question.request, self._mark
        assert mark is not None
        response: cs.RecordsResponse | cs.HeadersResponse
        if isinstance(request, cs.RecordsRequest):
            response = cs.RecordsResponse(request.req_id, None, mark, records)
        else:
            response = cs.HeadersResponse(request.req_id, None, mark, headers)
        self._done(question, cs.encode(response, question.peer.version))

    def _refuse(self, question: Question, error: str) -> None:
        mark = UNRESOLVED if self._mark is None or not self._confirmed else self._mark
        self._done(question, refusal(question.peer, question.request, error, mark).frames)

    def _done(self, question: Question, frames: bytes) -> None:
        peer = question.peer
        self._open[peer] -= 1
        if not self._open[peer]:
            del self._open[peer]
        self.answered_bytes += len(frames)
        self._out.append(Send(peer, frames))

    def _tick(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._out.append(Wake(TICK_SECONDS, ReadsTick()))


def refusal(peer: Peer, request: RangeRequest, error: str, mark: int) -> Send:
    """Return the answer to a request that cannot be done."""
    response: cs.RecordsResponse | cs.HeadersResponse
    if isinstance(request, cs.RecordsRequest):
        response = cs.RecordsResponse(request.req_id, error, mark, EMPTY_BATCH)
    else:
        response = cs.HeadersResponse(request.req_id, error, mark, ())
    return Send(peer, cs.encode(response, peer.version))


def _headers_answer(request: cs.HeadersRequest, version: int, mark: int, headers: bytes) -> bytes:
    count = len(headers) // HEADER_BYTES
    req_id = request.req_id.encode()
    head = _HEADERS_HEAD.pack(HEADERS_RESPONSE_TYPE, req_id, _NULL, mark, count)
    return cs.frame(head + headers, version)


def _clamped(number: int, most: int) -> int:
    """At least one: a bound never keeps a reader from going on."""
    return max(1, min(number, most))
