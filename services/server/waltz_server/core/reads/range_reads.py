"""Reads of ranges of the log, records or headers; a read may wait for the first one. Pure.

An answer consists of batches from memory, or of one answer of a replica. A congested connection is
sent nothing, and the number of reads in progress per connection is limited. See
transcripts/clients/reading_ranges.txt.
"""

from __future__ import annotations

import struct
from collections import Counter, deque

from waltz.metadata.core.formats import UNRESOLVED
from waltz.protocol import RecordBatch, RecordHeader
from waltz.protocol import client_server as cs
from waltz.protocol.client_numbers import HEADERS_RESPONSE_TYPE
from waltz.protocol.records import EMPTY_BATCH
from waltz_server.core.effects import (
    DisconnectClient,
    RangeReadTick,
    Ready,
    ScheduleTurn,
    SendToClient,
    StartTimer,
)
from waltz_server.core.peer import Peer
from waltz_server.core.reads.feed_cache import HEADER_BYTES, FeedCache, headers_of_frames
from waltz_server.core.reads.read_purposes import MAX_ANSWER_BYTES, RangeRead, RangeRequest
from waltz_server.core.reads.recent_records import RecentRecords, within
from waltz_server.core.replication.replica_reads import ReplicaReads
from waltz_server.core.store_reports import ReadDone

TICK_SECONDS = 0.05
"""An empty answer may come about this much later than the wait that was requested."""
READS_PER_CONNECTION = 4
REQUESTS_PER_CONNECTION = 1000

NOT_HERE = "the partition is not on this server: send the request to its present server"
NOT_OPEN = "the partition is not open yet: send the request again later"

# type, request id, null as error, high-water mark, number of headers
_HEADERS_HEAD = struct.Struct(">b16siqi")
_NULL = -1


class RangeReads:
    """The requests of one partition's clients for ranges."""

    def __init__(
        self,
        headers: FeedCache,
        recent: RecentRecords,
        replicas: ReplicaReads,
        ready: Ready,
    ) -> None:
        self._headers = headers
        self._recent = recent
        self._replicas = replicas
        self._ready = ready
        self.answered_bytes = 0
        """Length of all answers so far."""
        self._mark: int | None = None
        self._confirmed = False
        """Whether the log certainly ends at the mark: no other server can have written since."""
        self._open: Counter[Peer] = Counter()
        """Number of requests that have not been answered."""
        self._due: dict[Peer, deque[RangeRead]] = {}
        """Reads that can be answered, in order, as soon as the connection is not congested."""
        self._waiting: list[RangeRead] = []
        """Reads that wait for transactions that are not committed yet."""
        self._reading: set[RangeRead] = set()
        self._ticking = False

    def read_range(self, peer: Peer, request: RangeRequest) -> None:
        """Answer ``request``, now or later."""
        mark = self._mark
        if mark is None:
            self._ready.add(refusal(peer, request, NOT_OPEN, UNRESOLVED))
        elif request.first_id < 0:
            error = f"there is no transaction {request.first_id}: ids begin at 0"
            self._ready.add(refusal(peer, request, error, mark))
        elif self._open[peer] >= REQUESTS_PER_CONNECTION:
            error = f"more than {REQUESTS_PER_CONNECTION} reads at once: wait for answers"
            self._ready.add(DisconnectClient(peer, error))
        else:
            self._open[peer] += 1
            read = RangeRead(peer, request)
            if request.first_id <= mark:
                self._due.setdefault(peer, deque()).append(read)
                self._serve(peer)
            else:
                self._wait(read)

    def unconfirmed(self) -> None:
        """Note that a new generation begins: until a session opens, the log may grow elsewhere."""
        self._confirmed = False

    def opened(self, mark: int) -> None:
        """Note that a store session has opened at ``mark``: the log ends there."""
        self._mark = mark
        self._confirmed = True
        self._serve_arrived(mark)

    def committed(self, mark: int, first_id: int, records: RecordBatch) -> None:
        """Note that the log has grown to ``mark``, by ``records``."""
        self._mark = mark
        self._recent.put(first_id, records)
        if self._waiting:
            self._serve_arrived(mark)

    def read_done(self, read: RangeRead, done: ReadDone) -> None:
        """Answer ``read`` with the result of a replica."""
        if read not in self._reading:
            return
        self._reading.discard(read)
        read.peer.reads -= 1
        if done.error is not None:
            self._refuse(read, done.error)
        elif done.records is not None:
            records = within(done.records, 0, read.bounds, at_least_one=True)
            self._answer(read, records=records)
        else:
            self._answer(read, headers=done.headers or ())
        self._serve(read.peer)

    def writable(self, peer: Peer) -> None:
        """Continue to answer a connection that is no longer congested."""
        self._serve(peer)

    def tick(self) -> None:
        """Answer the reads whose wait is over: `TICK_SECONDS` have passed."""
        self._ticking = False
        for read in self._waiting:
            read.ticks -= 1
        over = [read for read in self._waiting if read.ticks <= 0]
        self._waiting = [read for read in self._waiting if read.ticks > 0]
        for read in over:
            self._nothing(read)
        self.resume()
        if self._waiting:
            self._tick()

    def resume(self) -> None:
        """Continue with the reads that are due, after earlier answers went to the sockets."""
        for peer in list(self._due):
            self._serve(peer)

    def lost(self, peer: Peer) -> None:
        """Drop the reads of a closed connection."""
        self._due.pop(peer, None)
        self._open.pop(peer, None)
        self._waiting = [read for read in self._waiting if read.peer is not peer]
        self._reading = {read for read in self._reading if read.peer is not peer}

    def close(self) -> None:
        """Refuse all reads, because this server releases the partition."""
        for read in self._reading:
            read.peer.reads -= 1
        asked = [read for queue in self._due.values() for read in queue]
        self._mark = None
        for read in (*asked, *self._waiting, *self._reading):
            self._refuse(read, NOT_HERE)
        self._due.clear()
        self._waiting.clear()
        self._reading.clear()

    def _wait(self, read: RangeRead) -> None:
        request = read.request
        if isinstance(request, cs.RecordsRequest) and request.wait_ms > 0:
            # One more than needed, because a part of the current tick is over.
            read.ticks = int(request.wait_ms / 1000 / TICK_SECONDS) + 2
            self._waiting.append(read)
            self._tick()
        else:
            self._nothing(read)

    def _nothing(self, read: RangeRead) -> None:
        """Answer with an empty range, if the log certainly ends at the mark."""
        if self._confirmed:
            self._answer(read)
        else:
            self._refuse(read, NOT_OPEN)

    def _serve_arrived(self, mark: int) -> None:
        """Answer the reads that waited for transactions up to ``mark``."""
        arrived = [read for read in self._waiting if read.request.first_id <= mark]
        if arrived:
            self._waiting = [read for read in self._waiting if read.request.first_id > mark]
        for read in arrived:
            self._due.setdefault(read.peer, deque()).append(read)
        for peer in dict.fromkeys(read.peer for read in arrived):
            self._serve(peer)

    def _serve(self, peer: Peer) -> None:
        """Answer the reads that are due on a connection, until it is congested."""
        queue = self._due.get(peer)
        begun = self.answered_bytes
        while queue and not peer.congested:
            if self.answered_bytes - begun >= MAX_ANSWER_BYTES:
                # Congestion is known only when this much has been handed to the socket.
                self._ready.add(ScheduleTurn())
                return
            if not self._answer_from_memory(queue[0]):
                if peer.reads >= READS_PER_CONNECTION:
                    # They may be of other partitions, which report nothing here: try again later.
                    self._tick()
                    return
                self._read(queue[0])
            queue.popleft()
        if not queue:
            self._due.pop(peer, None)

    def _answer_from_memory(self, read: RangeRead) -> bool:
        request, bounds, mark = read.request, read.bounds, self._mark
        assert mark is not None
        if isinstance(request, cs.RecordsRequest):
            records = self._recent.get(request.first_id, bounds)
            if records is not None:
                self._answer(read, records=records)
            return records is not None
        count = min(bounds.max_records, mark + 1 - request.first_id)
        frames = self._headers.get(request.first_id, count)
        if frames:
            headers = headers_of_frames(frames)
            self._done(read, _headers_answer(request, read.peer.version, mark, headers))
        return bool(frames)

    def _read(self, read: RangeRead) -> None:
        request, bounds, mark = read.request, read.bounds, self._mark
        assert mark is not None
        self._reading.add(read)
        read.peer.reads += 1
        count = min(bounds.max_records, mark + 1 - request.first_id)
        if isinstance(request, cs.RecordsRequest):
            self._replicas.bounded_records(request.first_id, count, bounds.max_bytes, read)
        else:
            self._replicas.headers(request.first_id, count, read)

    def _answer(
        self,
        read: RangeRead,
        records: RecordBatch = EMPTY_BATCH,
        headers: tuple[RecordHeader, ...] = (),
    ) -> None:
        request, mark = read.request, self._mark
        assert mark is not None
        response: cs.RecordsResponse | cs.HeadersResponse
        if isinstance(request, cs.RecordsRequest):
            response = cs.RecordsResponse(request.req_id, None, mark, records)
        else:
            response = cs.HeadersResponse(request.req_id, None, mark, headers)
        self._done(read, cs.encode(response, read.peer.version))

    def _refuse(self, read: RangeRead, error: str) -> None:
        mark = UNRESOLVED if self._mark is None or not self._confirmed else self._mark
        self._done(read, refusal(read.peer, read.request, error, mark).frames)

    def _done(self, read: RangeRead, frames: bytes) -> None:
        peer = read.peer
        self._open[peer] -= 1
        if not self._open[peer]:
            del self._open[peer]
        self.answered_bytes += len(frames)
        self._ready.add(SendToClient(peer, frames))

    def _tick(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._ready.add(StartTimer(TICK_SECONDS, RangeReadTick()))


def refusal(peer: Peer, request: RangeRequest, error: str, mark: int) -> SendToClient:
    """Return the answer to a request that cannot be served."""
    response: cs.RecordsResponse | cs.HeadersResponse
    if isinstance(request, cs.RecordsRequest):
        response = cs.RecordsResponse(request.req_id, error, mark, EMPTY_BATCH)
    else:
        response = cs.HeadersResponse(request.req_id, error, mark, ())
    return SendToClient(peer, cs.encode(response, peer.version))


def _headers_answer(request: cs.HeadersRequest, version: int, mark: int, headers: bytes) -> bytes:
    count = len(headers) // HEADER_BYTES
    req_id = request.req_id.encode()
    head = _HEADERS_HEAD.pack(HEADERS_RESPONSE_TYPE, req_id, _NULL, mark, count)
    return cs.frame(head + headers, version)
