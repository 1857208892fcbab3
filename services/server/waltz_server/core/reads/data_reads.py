"""Answer the requests of a partition's clients for the data of single transactions. Pure.

When a client reads a transaction of a recent batch, all transactions of this batch are cached.
Requests for the same transaction share one read of a replica. Such a read includes a few
transactions after the requested one, because most clients read forward. A failure is not cached, so
that a client can repeat a request that came too early.
"""

from __future__ import annotations

import struct
from typing import Any

from waltz.protocol import RecordBatch, ReqId
from waltz.protocol import client_server as cs
from waltz_server.core.appends.append import HEADER_BYTES
from waltz_server.core.effects import Ready, SendToClient
from waltz_server.core.peer import Peer
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.core.reads.read_purposes import TransactionData
from waltz_server.core.reads.recent_records import RecentRecords
from waltz_server.core.replication.replica_reads import ReplicaReads
from waltz_server.core.store_reports import ReadDone

_READ_AHEAD_BYTES = 256 << 10
_MAX_READ_AHEAD = 256
_NOT_FOUND = "com.wepay.waltz.store.exception.TransactionNotFoundException"
_STORE_ERROR = "com.wepay.waltz.store.exception.StoreException"

_REQUESTS_KEPT = 16
"""How many requests of one connection for one transaction are kept; the oldest is dropped.

A client repeats its request while the partition has no open session. Without this bound, the
repeated requests would fill the memory."""

_MEAN_WEIGHT = 8
"""A new measurement changes the mean size by the difference divided by this number."""

_ANSWER_TYPE = b"\x07"  # message type of TransactionDataResponse
_ANSWER_TAIL = struct.Struct(">q?")  # transaction id, whether data follow


class DataReads:
    """The reads of replicas under way, and the requests that wait for their results."""

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
        self._windows: dict[int, int] = {}
        """For each read under way: its first transaction id, and its number of transactions."""
        self._waiting: dict[int, list[tuple[Peer, ReqId]]] = {}
        """The requests that wait for each transaction."""
        self._mean_bytes: float | None = None
        """Mean size of a record, None before any record is measured."""
        self.data_cache_misses = 0

    def committed(self, records: RecordBatch) -> None:
        """Measure the size of committed records, which decides how many records a read includes."""
        self._learn_size(len(records.wire) // records.count)

    def read_data(
        self, peer: Peer, request: cs.TransactionDataRequest, high_water_mark: int | None
    ) -> None:
        """Answer from memory immediately, or after a read of a replica.

        ``high_water_mark`` is None before the first store session has opened.
        """
        wanted = request.transaction_id
        if high_water_mark is None or not 0 <= wanted <= high_water_mark:
            error = f"{_NOT_FOUND}: partition={self._partition} transactionId={wanted}"
            self._ready.add(_failure(peer, request.req_id, wanted, error))
            return
        tail = self._cache.get(self._partition, wanted) or self._from_recent(wanted)
        if tail is not None:
            self._ready.add(_answer(peer, request.req_id, wanted, tail))
            return
        self.data_cache_misses += 1
        waiting = self._waiting.setdefault(wanted, [])
        mine = [each for each in waiting if each[0] is peer]
        if len(mine) >= _REQUESTS_KEPT:
            waiting.remove(mine[0])
        waiting.append((peer, request.req_id))
        if len(waiting) == 1 and not self._is_being_read(wanted):
            ahead = 1
            if self._mean_bytes is not None:
                ahead = int(_READ_AHEAD_BYTES // max(self._mean_bytes, 1.0))
            self._fetch(wanted, min(max(ahead, 1), _MAX_READ_AHEAD, high_water_mark - wanted + 1))

    def read_done(self, purpose: TransactionData, done: ReadDone) -> None:
        """Answer the requests for the records that were read.

        If the read returned fewer records than requested, read each missing record that a request
        waits for separately. If the read failed, refuse the requests for its records.
        """
        first_id = purpose.first_id
        count = self._windows.pop(first_id)
        if done.records is not None:
            for transaction_id, _, tail in done.records.parts():
                self._cache.put(self._partition, transaction_id, tail)
                self._learn_size(len(tail))
                for peer, req_id in self._waiting.pop(transaction_id, ()):
                    self._ready.add(_answer(peer, req_id, transaction_id, tail))
        for missing in range(first_id, first_id + count):
            if missing not in self._waiting:
                continue
            if done.error is None:
                if not self._is_being_read(missing):
                    self._fetch(missing, 1)
                continue
            for peer, req_id in self._waiting.pop(missing):
                error = f"{_STORE_ERROR}: {done.error}"
                self._ready.add(_failure(peer, req_id, missing, error))

    def lost(self, peer: Peer) -> None:
        """Drop the requests of a closed connection."""
        for wanted, waiting in list(self._waiting.items()):
            left = [each for each in waiting if each[0] is not peer]
            if left:
                self._waiting[wanted] = left
            else:
                del self._waiting[wanted]

    def close(self) -> None:
        """Refuse the requests that wait, because this server releases the partition."""
        closed, self._waiting = self._waiting, {}
        for wanted, waiting in closed.items():
            for peer, req_id in waiting:
                self._ready.add(_failure(peer, req_id, wanted, "partition not ready"))

    def _from_recent(self, wanted: int) -> bytes | None:
        """Cache the recent batch that contains ``wanted``; return the record tail of ``wanted``."""
        batch = self._recent.batch_with(wanted)
        found = None
        for transaction_id, _, tail in batch.parts() if batch is not None else ():
            self._cache.put(self._partition, transaction_id, tail)
            if transaction_id == wanted:
                found = tail
        return found

    def _is_being_read(self, wanted: int) -> bool:
        return any(first <= wanted < first + count for first, count in self._windows.items())

    def _fetch(self, first_id: int, count: int) -> None:
        self._windows[first_id] = count
        self._replicas.records(first_id, count, TransactionData(first_id))

    def _learn_size(self, size: int) -> None:
        mean = self._mean_bytes
        self._mean_bytes = float(size) if mean is None else mean + (size - mean) / _MEAN_WEIGHT


def _answer(peer: Peer, req_id: ReqId, transaction_id: int, record_tail: bytes) -> SendToClient:
    """Build the answer from a record tail without its header; the other bytes stay unchanged."""
    body = b"".join(
        (
            _ANSWER_TYPE,
            req_id.encode(),
            _ANSWER_TAIL.pack(transaction_id, True),
            memoryview(record_tail)[HEADER_BYTES:],
        )
    )
    return SendToClient(peer, cs.frame(body, peer.version))


def _failure(peer: Peer, req_id: ReqId, transaction_id: int, error: str) -> SendToClient:
    response: Any = cs.TransactionDataResponse(req_id, transaction_id, None, error=error)
    return SendToClient(peer, cs.encode(response, peer.version))
