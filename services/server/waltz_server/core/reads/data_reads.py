"""Answer the requests of a partition's clients for the data of single transactions. Pure.

When a client reads a transaction of a recent batch, all transactions of this batch are cached. A
transaction that is not in memory is read from a replica. Such a read requests consecutive
transactions, its *window*. It serves all requests for transactions in its window. The window also
has transactions that no request wants yet, because most clients read forward. A failure is not
cached, so that a client can repeat a request that came too early. A *record tail* is the part of a
record after its request id: header, data length, data and checksum.

A request begins at the end of the *queue* of its connection. At the front of the queue it is
answered from memory, or it leaves the queue and *waits* for the read of its transaction. When the
read is done, the request goes back to the front of the queue, to be answered with the result.

The bounds, and the work that each of them limits:

* At most `READS_IN_FLIGHT` reads of `READ_BYTES`, or of one larger record, are under way for the
  partition.
* At most `WAITING_PER_CONNECTION` requests of one connection wait for reads. Its further requests
  wait in its queue, in their order. While the queue is long, the shell does not read the connection
  (see `Peer`). Without a store session, the newest requests are refused (see `session_delayed`).
* About `MAX_ANSWER_BYTES` are sent to a connection at once, and nothing to a congested connection:
  its requests wait in the queue until `writable`. Records that were read for these requests stay in
  memory only if the cache keeps them; otherwise they are read again.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from waltz.protocol import RecordBatch, ReqId
from waltz.protocol import client_server as cs
from waltz_server.core.appends.append import HEADER_BYTES
from waltz_server.core.effects import Ready, ScheduleTurn, SendToClient
from waltz_server.core.peer import Peer
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.core.reads.read_purposes import MAX_ANSWER_BYTES, TransactionData
from waltz_server.core.reads.recent_records import RecentRecords
from waltz_server.core.replication.replica_reads import ReplicaReads
from waltz_server.core.store_reports import ReadDone

READS_IN_FLIGHT = 2
"""Maximum number of reads of replicas under way for single transactions of one partition."""
READ_BYTES = 64 << 10
"""Maximum size of the records in the answer to one such read; its first record may be larger.

A larger answer is no faster for a client that reads many records at random, and each answer delays
the appends beside it.
"""
WAITING_PER_CONNECTION = 256
"""Maximum number of requests of one connection that wait for reads of replicas."""

_MAX_READ_AHEAD = 256  # The most records of one read.
# Errors have the form of Waltz 0.13.2: the class name of an exception, then the text.
_NOT_FOUND = "com.wepay.waltz.store.exception.TransactionNotFoundException"
_STORE_ERROR = "com.wepay.waltz.store.exception.StoreException"
_NOT_OPEN = f"{_STORE_ERROR}: the partition has no open store session"
_RELEASED = "partition not ready"

_MEAN_WEIGHT = 8
"""A new size moves the mean size of records towards it by their difference divided by this."""

_ANSWER_TYPE = b"\x07"  # message type of TransactionDataResponse
_ID_AND_HAS_DATA = struct.Struct(">q?")  # transaction id, whether data follow


class _QueuedRequest(NamedTuple):
    """A request in the queue of its connection, for the data of the transaction ``wanted``."""

    req_id: ReqId
    wanted: int
    error: str | None = None
    """Why the read of the transaction failed, None if no read of it has failed."""


@dataclass(slots=True)
class _ClientReads:
    """The unanswered requests of one connection."""

    queue: deque[_QueuedRequest] = field(default_factory=deque)
    """The requests that are not answered and do not wait for a read, in order."""
    awaited_ids: set[int] = field(default_factory=set)
    """The transactions that the waiting requests of the connection want."""
    num_waiting: int = 0
    """Number of requests that wait for reads; several may wait for one transaction."""


class DataReads:
    """The unanswered requests for single transactions, and the reads of replicas for them."""

    def __init__(
        self,
        partition: int,
        cache: DataCache,
        recent: RecentRecords,
        replicas: ReplicaReads,
        ready: Ready,
    ) -> None:
        self._partition = partition
        self._cache = cache
        self._recent = recent
        self._replicas = replicas
        self._ready = ready
        self._mark: int | None = None
        """The high-water mark at the last request."""
        self._clients: dict[Peer, _ClientReads] = {}
        """The connections with unanswered requests."""
        self._waiting: dict[int, dict[Peer, list[ReqId]]] = {}
        """The requests that wait for a read, by transaction id and connection."""
        self._unread: dict[int, None] = {}
        """The transactions in ``_waiting`` that no read under way includes: an ordered set."""
        self._next_starts: deque[int] = deque()
        """First transactions of the next reads: the answer to an earlier read ended before them."""
        self._windows: dict[int, int] = {}
        """For each read under way: its first transaction id, and its number of transactions."""
        self._unfinished: dict[Peer, None] = {}
        """The connections that got `MAX_ANSWER_BYTES`; `resume` continues in the next turn."""
        self._mean_bytes: float | None = None
        """Mean size of a record, None before any record is measured."""
        self.data_cache_misses = 0
        """Number of times that a request had to wait for a read of a replica."""

    def committed(self, records: RecordBatch) -> None:
        """Measure the size of committed records, which decides how many records a read includes."""
        self._learn_size(len(records.wire) // records.count)

    def read_data(
        self, peer: Peer, request: cs.TransactionDataRequest, high_water_mark: int | None
    ) -> None:
        """Answer ``request`` now from memory, or later.

        ``high_water_mark`` is None before the first store session has opened. If no session is open
        and the connection's queue is long, the request is refused: see `session_delayed`.
        """
        self._mark = high_water_mark
        client = self._clients.setdefault(peer, _ClientReads())
        client.queue.append(_QueuedRequest(request.req_id, request.transaction_id))
        peer.queued_reads += 1
        self._serve(peer)
        if not self._replicas.is_open:
            self._shorten_queue(peer, client)

    def session_delayed(self) -> None:
        """Refuse the newest requests of long queues, because it is unknown when a session opens.

        A connection with a long queue is not read. Its requests to other partitions must not wait
        for the replicas of this partition.
        """
        for peer, client in self._clients.items():
            self._shorten_queue(peer, client)

    def read_done(self, purpose: TransactionData, done: ReadDone) -> None:
        """Answer the requests for the records that were read.

        If the answer ended before a record that a request waits for, another read begins with this
        record. If the read failed, refuse the requests for its records. No request is answered
        directly: a connection may be congested now. So each request goes back to the front of the
        queue of its connection, and `_serve` answers it from there.
        """
        first_id = purpose.first_id
        window = range(first_id, first_id + self._windows.pop(first_id))
        records: dict[int, bytes] = {}
        parts = done.records.parts() if done.records is not None else ()
        for transaction_id, _, tail in parts:
            self._cache.put(self._partition, transaction_id, tail)
            self._learn_size(len(tail))
            if transaction_id in self._waiting:
                records[transaction_id] = tail
        if done.error is None:
            requests = self._take_waiting(records, None)
        else:
            failed_ids = [n for n in window if n in self._waiting]
            requests = self._take_waiting(failed_ids, f"{_STORE_ERROR}: {done.error}")
        self._plan_reads_of_missing(window)
        for peer, queued in requests.items():
            # These requests are older than those in the queue.
            self._clients[peer].queue.extendleft(reversed(queued))
            peer.queued_reads += len(queued)
            self._serve(peer, records)
        self._read_replicas()

    def _take_waiting(
        self, transaction_ids: Iterable[int], error: str | None
    ) -> dict[Peer, list[_QueuedRequest]]:
        """Take the requests that wait for these transactions; return them with ``error``."""
        requests: dict[Peer, list[_QueuedRequest]] = {}
        for transaction_id in transaction_ids:
            for peer, req_ids in self._waiting.pop(transaction_id).items():
                client = self._clients[peer]
                client.awaited_ids.remove(transaction_id)
                client.num_waiting -= len(req_ids)
                requests.setdefault(peer, []).extend(
                    _QueuedRequest(req_id, transaction_id, error) for req_id in req_ids
                )
            self._unread.pop(transaction_id, None)
        return requests

    def writable(self, peer: Peer) -> None:
        """Continue to answer a connection that is no longer congested."""
        self._serve(peer)

    def resume(self) -> None:
        """Continue with the connections that got all bytes of their turn."""
        unfinished, self._unfinished = self._unfinished, {}
        for peer in unfinished:
            self._serve(peer)

    def lost(self, peer: Peer) -> None:
        """Drop the requests of a closed connection."""
        self._unfinished.pop(peer, None)
        client = self._clients.pop(peer, None)
        if client is None:
            return
        peer.queued_reads -= len(client.queue)
        for wanted in client.awaited_ids:
            req_ids_by_peer = self._waiting[wanted]
            del req_ids_by_peer[peer]
            if not req_ids_by_peer:
                del self._waiting[wanted]
                self._unread.pop(wanted, None)

    def close(self) -> None:
        """Refuse the requests that wait, because this server releases the partition."""
        for wanted, req_ids_by_peer in self._waiting.items():
            for peer, req_ids in req_ids_by_peer.items():
                for req_id in req_ids:
                    self._refuse(peer, req_id, wanted, _RELEASED)
        for peer, client in self._clients.items():
            peer.queued_reads -= len(client.queue)
            for queued in client.queue:
                self._refuse(peer, queued.req_id, queued.wanted, _RELEASED)
        self._waiting.clear()
        self._clients.clear()
        self._unread.clear()
        self._next_starts.clear()
        self._unfinished.clear()

    def _shorten_queue(self, peer: Peer, client: _ClientReads) -> None:
        """Refuse the newest requests of a connection while its queue is long."""
        while client.queue and peer.has_long_queue:
            refused = client.queue.pop()
            peer.queued_reads -= 1
            self._refuse(peer, refused.req_id, refused.wanted, _NOT_OPEN)

    def _serve(self, peer: Peer, records: Mapping[int, bytes] | None = None) -> None:
        """Answer the queued requests of a connection, or let them wait for reads.

        Stop at the bounds that the module's docstring lists. ``records`` has the record tails of a
        read that has just ended, by id.
        """
        client = self._clients.get(peer)
        if client is None:
            return
        sent_bytes = 0
        while client.queue and not peer.congested:
            if sent_bytes >= MAX_ANSWER_BYTES:
                # These answers may fill the socket. The shell finds that out only when it sends
                # them, so the other requests wait for the next turn.
                self._unfinished[peer] = None
                self._ready.add(ScheduleTurn())
                break
            answer = self._answer_now(peer, client.queue[0], records or {})
            if answer is not None:
                sent_bytes += len(answer.frames)
                self._ready.add(answer)
            elif not self._wait(peer, client, client.queue[0]):
                break
            client.queue.popleft()
            peer.queued_reads -= 1
        if not client.queue and not client.awaited_ids:
            del self._clients[peer]
        self._read_replicas()

    def _answer_now(
        self, peer: Peer, queued: _QueuedRequest, records: Mapping[int, bytes]
    ) -> SendToClient | None:
        """Return the answer to a request, None if its transaction must be read from a replica."""
        req_id, wanted, error = queued
        if error is not None:
            return _failure(peer, req_id, wanted, error)
        if self._mark is None or not 0 <= wanted <= self._mark:
            error = f"{_NOT_FOUND}: partition={self._partition} transactionId={wanted}"
            return _failure(peer, req_id, wanted, error)
        tail = (
            records.get(wanted)
            or self._cache.get(self._partition, wanted)
            or self._from_recent(wanted)
        )
        return None if tail is None else _answer(peer, req_id, wanted, tail)

    def _wait(self, peer: Peer, client: _ClientReads, queued: _QueuedRequest) -> bool:
        """Let a request wait for the read of its transaction.

        Return False if `WAITING_PER_CONNECTION` requests of the connection wait already.
        """
        wanted = queued.wanted
        if client.num_waiting >= WAITING_PER_CONNECTION:
            return False
        client.num_waiting += 1
        if wanted not in client.awaited_ids:
            client.awaited_ids.add(wanted)
            if wanted not in self._waiting:
                self._waiting[wanted] = {}
                if not self._is_being_read(wanted):
                    self._unread[wanted] = None
            self._waiting[wanted][peer] = []
        self._waiting[wanted][peer].append(queued.req_id)
        self.data_cache_misses += 1
        return True

    def _from_recent(self, wanted: int) -> bytes | None:
        """Cache the recent batch that contains ``wanted``; return the record tail of ``wanted``."""
        batch = self._recent.batch_with(wanted)
        if batch is None:
            return None
        wanted_tail = None
        for transaction_id, _, tail in batch.parts():
            self._cache.put(self._partition, transaction_id, tail)
            if transaction_id == wanted:
                wanted_tail = tail
        return wanted_tail

    def _is_being_read(self, wanted: int) -> bool:
        return any(first <= wanted < first + count for first, count in self._windows.items())

    def _plan_reads_of_missing(self, window: range) -> None:
        """Plan reads of the wanted transactions of ``window`` that the answer did not have.

        A next read begins with the first of them: one from a lower id could end before it again.
        """
        missing = [n for n in window if n in self._waiting and not self._is_being_read(n)]
        self._unread.update(dict.fromkeys(missing))
        self._next_starts.extend(missing[:1])

    def _read_replicas(self) -> None:
        """Read the transactions that requests wait for, until `READS_IN_FLIGHT` are under way.

        A read begins with the first of ``_next_starts``; without one, it includes the transaction
        that has been unread for longest.
        """
        while self._unread and len(self._windows) < READS_IN_FLIGHT:
            if self._next_starts:
                first_id = self._next_starts.popleft()
                if first_id not in self._unread:
                    continue
            else:
                first_id = self._first_of_window(next(iter(self._unread)))
            assert self._mark is not None
            assert first_id not in self._windows, "a transaction is read once at a time"
            count = min(self._window_size(), self._mark + 1 - first_id)
            assert count > 0, "only committed transactions are read"
            for transaction_id in range(first_id, first_id + count):
                self._unread.pop(transaction_id, None)
            self._windows[first_id] = count
            self._replicas.read_records(first_id, count, READ_BYTES, TransactionData(first_id))

    def _window_size(self) -> int:
        """Return how many records a read requests: about `READ_BYTES`."""
        if self._mean_bytes is None:
            return 1
        fitting = int(READ_BYTES // max(self._mean_bytes, 1.0))
        return min(max(fitting, 1), _MAX_READ_AHEAD)

    def _first_of_window(self, wanted: int) -> int:
        """Return the first transaction of a read that includes ``wanted``.

        Unread transactions shortly before ``wanted`` are read, too. Example: the window is 16
        records, ``wanted`` is 100, and 90 and 95 are unread as well: the read begins with 90.
        """
        lowest = max(0, wanted - self._window_size() + 1)
        return next(n for n in range(lowest, wanted + 1) if n in self._unread)

    def _learn_size(self, size: int) -> None:
        """Include ``size``, the size of a record in bytes, in the moving average."""
        mean = self._mean_bytes
        self._mean_bytes = float(size) if mean is None else mean + (size - mean) / _MEAN_WEIGHT

    def _refuse(self, peer: Peer, req_id: ReqId, wanted: int, error: str) -> None:
        self._ready.add(_failure(peer, req_id, wanted, error))


def _answer(peer: Peer, req_id: ReqId, transaction_id: int, record_tail: bytes) -> SendToClient:
    """Return the answer with the bytes of ``record_tail`` after its header, unchanged."""
    body = b"".join(
        (
            _ANSWER_TYPE,
            req_id.encode(),
            _ID_AND_HAS_DATA.pack(transaction_id, True),
            memoryview(record_tail)[HEADER_BYTES:],
        )
    )
    return SendToClient(peer, cs.frame(body, peer.version))


def _failure(peer: Peer, req_id: ReqId, transaction_id: int, error: str) -> SendToClient:
    response: Any = cs.TransactionDataResponse(req_id, transaction_id, None, error=error)
    return SendToClient(peer, cs.encode(response, peer.version))
