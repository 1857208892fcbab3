"""Answer the clients' reads of ranges of the log: of records or of headers. Pure.

A read may wait until its first transaction is committed. An answer comes from memory, or from one
read of a replica. Reads of a congested connection wait, and the number of reads of replicas in
progress is limited for each connection. See transcripts/clients/reading_ranges.txt.

If the client permits it, the server passes on the records of a replica in *disk form*: as they lie
on its disk, without a check. The client verifies them. If they are wrong, the client requests them
again without this permission. Then the storage verifies them, and another replica answers in place
of a damaged one. After an answer in disk form, the next range is read ahead (`ranges_ahead`).
"""

from __future__ import annotations

import struct
from collections import Counter, deque

from waltz.metadata.core.formats import UNRESOLVED
from waltz.protocol import RecordBatch, RecordHeader
from waltz.protocol import client_server as cs
from waltz.protocol.client_numbers import HEADERS_RESPONSE_TYPE
from waltz.protocol.records import EMPTY_BATCH
from waltz.protocol.stored import StoredBatch
from waltz_server.core.effects import (
    DisconnectClient,
    RangeReadTick,
    Ready,
    ScheduleTurn,
    SendToClient,
    StartTimer,
)
from waltz_server.core.peer import Peer
from waltz_server.core.reads.feed_cache import RECORD_HEADER_BYTES, FeedCache, headers_of_frames
from waltz_server.core.reads.ranges_ahead import RangeAhead, RangesAhead
from waltz_server.core.reads.read_purposes import MAX_ANSWER_BYTES, RangeRead, RangeRequest
from waltz_server.core.reads.recent_records import RecentRecords, records_within
from waltz_server.core.replication.replica_reads import ReplicaReads
from waltz_server.core.store_reports import ReadDone

TICK_SECONDS = 0.05
"""The length of a tick, the unit of waiting times. A read may wait up to two ticks longer than its
client has requested."""
READS_PER_CONNECTION = 4
"""Maximum number of reads of replicas in progress for one connection, in all its partitions."""
REQUESTS_PER_CONNECTION = 1000
"""Maximum number of unanswered requests of one connection in one partition."""

NOT_HERE = "the partition is not on this server: send the request to its present server"
NOT_OPEN = "the partition is not open yet: send the request again later"

# message type, request id, length of the error text, high-water mark, number of headers
_HEADERS_HEAD = struct.Struct(">b16siqi")
_NO_ERROR = -1  # The length of a text that is null.


class RangeReads:
    """The unanswered requests of one partition's clients for ranges.

    A request is *waiting* until its first transaction is committed. Then it is *due*, until it is
    answered from memory or a read of a replica begins for it.
    """

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
        """Total length of all answers so far."""
        self._mark: int | None = None
        """The log's high-water mark; None before the first session opens, and after `close`."""
        self._confirmed = False
        """Whether the log certainly ends at the mark: no other server can have written since."""
        self._session_delayed = False
        """Whether it is unknown when the next session opens. Then no read of a replica begins."""
        self._unanswered: Counter[Peer] = Counter()
        """Number of unanswered requests of each connection."""
        self._due: dict[Peer, deque[RangeRead]] = {}
        """For each connection, the reads whose first transaction is committed, in order."""
        self._waiting: list[RangeRead] = []
        """Reads that wait for transactions that are not committed yet."""
        self._ahead = RangesAhead(replicas)
        self._reading: dict[RangeRead, None] = {}
        """Reads for which a read of a replica is in progress: an ordered set, so that a simulation
        run can be repeated."""
        self._timer_runs = False
        """Whether the timer of a tick is running."""

    def read_range(self, peer: Peer, request: RangeRequest) -> None:
        """Answer ``request``, now or later."""
        mark = self._mark
        if mark is None:
            self._ready.add(refusal(peer, request, NOT_OPEN, UNRESOLVED))
        elif request.first_id < 0:
            error = f"there is no transaction {request.first_id}: ids begin at 0"
            self._ready.add(refusal(peer, request, error, mark))
        elif self._unanswered[peer] >= REQUESTS_PER_CONNECTION:
            error = f"more than {REQUESTS_PER_CONNECTION} reads at once: wait for answers"
            self._ready.add(DisconnectClient(peer, error))
        else:
            self._unanswered[peer] += 1
            read = RangeRead(peer, request)
            if request.first_id <= mark:
                self._due.setdefault(peer, deque()).append(read)
                self._serve(peer)
            else:
                self._wait(read)

    def begin_generation(self) -> None:
        """Note that a new generation begins: until a session opens, others may extend the log."""
        self._confirmed = False

    def opened(self, mark: int) -> None:
        """Note that a store session has opened at ``mark``: the log ends there."""
        self._mark = mark
        self._session_delayed = False
        self._confirmed = True
        self._serve_arrived(mark)
        self.resume()

    def session_delayed(self) -> None:
        """Give up the reads of replicas in progress, and make their requests due again.

        The next session may open late. Until then, these reads would count for
        `READS_PER_CONNECTION`, and the connection's reads of other partitions would wait for them.
        """
        self._session_delayed = True
        for read in reversed(self._stop_reading()):  # So the oldest is first again.
            self._due.setdefault(read.peer, deque()).appendleft(read)

    def committed(self, mark: int, first_id: int, records: RecordBatch) -> None:
        """Note that the log has grown to ``mark``, by ``records``."""
        self._mark = mark
        self._recent.put(first_id, records)
        if self._waiting:
            self._serve_arrived(mark)

    def read_done(self, read: RangeRead, done: ReadDone) -> None:
        """Answer ``read`` with the result of its read of a replica."""
        if isinstance(read, RangeAhead):
            self._ahead_done(read, done)
            return
        if read not in self._reading:  # The connection was lost, or `_stop_reading` was called.
            return
        del self._reading[read]
        read.peer.range_reads -= 1
        self._answer_with(read, done)
        self._serve(read.peer)

    def writable(self, peer: Peer) -> None:
        """Continue to answer a connection that is no longer congested."""
        self._serve(peer)

    def tick(self) -> None:
        """Count one tick: answer the reads whose wait is over, and continue with those due.

        Drop ranges that were read ahead and were not requested in time.
        """
        self._timer_runs = False
        for read in self._waiting:
            read.ticks -= 1
        expired = [read for read in self._waiting if read.ticks <= 0]
        self._waiting = [read for read in self._waiting if read.ticks > 0]
        for read in expired:
            self._answer_empty(read)
        self._ahead.tick()
        self.resume()
        if self._waiting or self._ahead.holds_results:
            self._start_tick()

    def resume(self) -> None:
        """Continue with the reads that are due, after earlier answers went to the sockets."""
        for peer in list(self._due):
            self._serve(peer)

    def lost(self, peer: Peer) -> None:
        """Drop the reads of a closed connection.

        Its `Peer.range_reads` is not counted down: nothing uses the `Peer` any more.
        """
        self._due.pop(peer, None)
        self._unanswered.pop(peer, None)
        self._waiting = [read for read in self._waiting if read.peer is not peer]
        self._reading = {read: None for read in self._reading if read.peer is not peer}
        self._ahead.lost(peer)

    def close(self) -> None:
        """Refuse all reads, because this server releases the partition."""
        due = [read for queue in self._due.values() for read in queue]
        self._mark = None  # The new owner may extend the log, so the refusals have no mark.
        for read in (*due, *self._waiting, *self._stop_reading()):
            self._refuse(read, NOT_HERE)
        self._due.clear()
        self._waiting.clear()

    def _stop_reading(self) -> list[RangeRead]:
        """Drop the reads of replicas in progress; return the requests that wait for a result."""
        for read in self._reading:
            read.peer.range_reads -= 1
        requests = [*self._reading, *self._ahead.stop()]
        self._reading.clear()
        return requests

    def _wait(self, read: RangeRead) -> None:
        """Let ``read`` wait for its first transaction; answer it now if it must not wait."""
        request = read.request
        if isinstance(request, cs.RecordsRequest) and request.wait_ms > 0:
            # Round up, and add one tick because a part of the current tick may be over.
            read.ticks = int(request.wait_ms / 1000 / TICK_SECONDS) + 2
            self._waiting.append(read)
            self._start_tick()
        else:
            self._answer_empty(read)

    def _answer_empty(self, read: RangeRead) -> None:
        """Answer with an empty range if the log certainly ends at the mark; else refuse."""
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
        """Answer the due reads of a connection, or read a replica for them, within the limits."""
        queue = self._due.get(peer)
        bytes_before = self.answered_bytes
        while queue and not peer.congested:
            if self.answered_bytes - bytes_before >= MAX_ANSWER_BYTES:
                # These answers may fill the socket. The shell finds that out only when it sends
                # them, so the other reads wait for the next turn.
                self._ready.add(ScheduleTurn())
                return
            if not self._answer_from_memory(queue[0]) and not self._answer_ahead(queue[0]):
                if self._session_delayed:
                    return
                if peer.range_reads >= READS_PER_CONNECTION:
                    # Some of these reads may be of other partitions, which do not report the end of
                    # a read to this one. So try again after a tick.
                    self._start_tick()
                    return
                self._read_replica(queue[0])
            queue.popleft()
        if not queue:
            self._due.pop(peer, None)

    def _answer_from_memory(self, read: RangeRead) -> bool:
        """Answer ``read`` from memory; return False if the memory lacks its first transaction."""
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
            self._send(read, _headers_answer(request, read.peer.version, mark, headers))
        return bool(frames)

    def _answer_ahead(self, read: RangeRead) -> bool:
        """Answer ``read`` with a range that is read ahead, now or when its records arrive.

        Return False if the range of ``read`` is not read ahead.
        """
        if not self._ahead.expects(read):
            return False
        result = self._ahead.take(read)
        if result is not None:
            self._answer_with(read, result)
        return True

    def _ahead_done(self, ahead: RangeAhead, done: ReadDone) -> None:
        """Answer the request that waits for a range that was read ahead, if there is one."""
        waiting = self._ahead.done(ahead, done)
        if waiting is not None:
            self._answer_with(waiting, done)
        elif self._ahead.holds_results:
            self._start_tick()
        self._serve(ahead.peer)

    def _read_replica(self, read: RangeRead) -> None:
        """Read a replica for ``read``; the result arrives in `read_done`."""
        request, bounds, mark = read.request, read.bounds, self._mark
        assert mark is not None
        self._reading[read] = None
        read.peer.range_reads += 1
        count = min(bounds.max_records, mark + 1 - request.first_id)
        if isinstance(request, cs.RecordsRequest):
            self._replicas.read_records(
                request.first_id, count, bounds.max_bytes, read, stored=request.stored
            )
        else:
            self._replicas.read_headers(request.first_id, count, read)

    def _answer(
        self,
        read: RangeRead,
        records: RecordBatch = EMPTY_BATCH,
        headers: tuple[RecordHeader, ...] = (),
    ) -> None:
        """Answer ``read`` with ``records`` if it has requested records, else with ``headers``."""
        request, mark = read.request, self._mark
        assert mark is not None
        response: cs.RecordsResponse | cs.HeadersResponse
        if isinstance(request, cs.RecordsRequest):
            response = cs.RecordsResponse(request.req_id, None, mark, records)
        else:
            response = cs.HeadersResponse(request.req_id, None, mark, headers)
        self._send(read, cs.encode(response, read.peer.version))

    def _answer_with(self, read: RangeRead, done: ReadDone) -> None:
        """Answer ``read`` with the result of a read of a replica."""
        if done.error is not None:
            self._refuse(read, done.error)
        elif done.stored is not None:
            self._answer_stored(read, done.stored)
        elif done.records is not None:
            records = records_within(done.records, 0, read.bounds, at_least_one=True)
            self._answer(read, records=records)
        else:
            self._answer(read, headers=done.headers or ())

    def _answer_stored(self, read: RangeRead, records: StoredBatch) -> None:
        """Pass on records as they lie on a replica's disk. The client verifies them."""
        assert self._mark is not None
        response = cs.StoredRecordsResponse(read.request.req_id, self._mark, records)
        self._send(read, *cs.encode_parts(response, read.peer.version))
        self._ahead.begin(read, records.count, self._mark, most_reads=READS_PER_CONNECTION)

    def _refuse(self, read: RangeRead, error: str) -> None:
        mark = UNRESOLVED if self._mark is None or not self._confirmed else self._mark
        self._send(read, refusal(read.peer, read.request, error, mark).frames)

    def _send(self, read: RangeRead, frames: bytes, data: bytes | memoryview = b"") -> None:
        """Send the answer to ``read`` (see `SendToClient`), and count ``read`` as answered."""
        peer = read.peer
        self._unanswered[peer] -= 1
        if not self._unanswered[peer]:
            del self._unanswered[peer]
        self.answered_bytes += len(frames) + len(data)
        self._ready.add(SendToClient(peer, frames, data))

    def _start_tick(self) -> None:
        """Start the timer of a tick, unless it runs."""
        if not self._timer_runs:
            self._timer_runs = True
            self._ready.add(StartTimer(TICK_SECONDS, RangeReadTick()))


def refusal(peer: Peer, request: RangeRequest, error: str, mark: int) -> SendToClient:
    """Return the answer to a request that cannot be served.

    ``mark`` is the high-water mark, UNRESOLVED if this server does not know it.
    """
    response: cs.RecordsResponse | cs.HeadersResponse
    if isinstance(request, cs.RecordsRequest):
        response = cs.RecordsResponse(request.req_id, error, mark, EMPTY_BATCH)
    else:
        response = cs.HeadersResponse(request.req_id, error, mark, ())
    return SendToClient(peer, cs.encode(response, peer.version))


def _headers_answer(request: cs.HeadersRequest, version: int, mark: int, headers: bytes) -> bytes:
    """Return the encoded HeadersResponse with ``headers``, which are encoded already."""
    count = len(headers) // RECORD_HEADER_BYTES
    req_id = request.req_id.encode()
    head = _HEADERS_HEAD.pack(HEADERS_RESPONSE_TYPE, req_id, _NO_ERROR, mark, count)
    return cs.frame(head + headers, version)
