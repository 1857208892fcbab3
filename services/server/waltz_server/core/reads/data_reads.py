"""Reads of committed transactions for one partition's clients: cached, shared, bounded. Pure.

A batch at the log's end is taken apart when one of its transactions is asked for, and all of them
are cached. Requests for one transaction share one read, and a read takes along a few transactions
behind the wanted one, because readers mostly go forward. A failed read is forgotten, so that asking
too early does no harm.
"""

from __future__ import annotations

import struct
from typing import Any

from waltz.protocol import RecordBatch, ReqId
from waltz.protocol import client_server as cs
from waltz_server.core.effects import Fetched, Peer, Send
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.core.reads.recent_records import RecentRecords
from waltz_server.core.replication.replica_reads import StoreReads

_READ_AHEAD_BYTES = 256 << 10
_MAX_READ_AHEAD = 256
_NOT_FOUND = "com.wepay.waltz.store.exception.TransactionNotFoundException"
_STORE_ERROR = "com.wepay.waltz.store.exception.StoreException"

_ASKED_AT_ONCE = 16
"""Of one connection's questions for one transaction so many are kept, the last ones: it asks again
and again while nobody can answer."""

_ANSWER_TAIL = struct.Struct(">q?")
_HEADER_BYTES = 4


class Reads:
    """What is being read, and who waits for it."""

    def __init__(
        self, partition: int, cache: DataCache, recent: RecentRecords, store: StoreReads
    ) -> None:
        self._partition = partition
        self._cache = cache
        self._recent = recent
        self._store = store
        self._windows: dict[int, int] = {}
        """Reads under way: first id to count."""
        self._askers: dict[int, list[tuple[Peer, ReqId]]] = {}
        self._mean_bytes: float | None = None
        self.data_cache_misses = 0

    def committed(self, records: RecordBatch) -> None:
        """Learn how long records are, to know how many to read at once."""
        self._learn_size(len(records.wire) // records.count)

    def read(
        self, peer: Peer, request: cs.TransactionDataRequest, high_water_mark: int | None
    ) -> list[Send]:
        """Answer from the cache, or begin a read; returns what can be sent at once."""
        wanted = request.transaction_id
        if high_water_mark is None or not 0 <= wanted <= high_water_mark:
            error = f"{_NOT_FOUND}: partition={self._partition} transactionId={wanted}"
            return [_failure(peer, request.req_id, wanted, error)]
        tail = self._cache.get(self._partition, wanted) or self._from_recent(wanted)
        if tail is not None:
            return [_answer(peer, request.req_id, wanted, tail)]
        self.data_cache_misses += 1
        askers = self._askers.setdefault(wanted, [])
        mine = [asker for asker in askers if asker[0] is peer]
        if len(mine) >= _ASKED_AT_ONCE:
            askers.remove(mine[0])
        askers.append((peer, request.req_id))
        if len(askers) == 1 and not self._under_way(wanted):
            ahead = 1
            if self._mean_bytes is not None:
                ahead = int(_READ_AHEAD_BYTES // max(self._mean_bytes, 1.0))
            self._fetch(wanted, min(max(ahead, 1), _MAX_READ_AHEAD, high_water_mark - wanted + 1))
        return []

    def records_fetched(self, fetched: Fetched) -> list[Send]:
        """Answer those who waited for these records; read again what fell short."""
        first_id = fetched.token
        count = self._windows.pop(first_id)
        out: list[Send] = []
        if fetched.records is not None:
            for transaction_id, _, tail in fetched.records.parts():
                self._cache.put(self._partition, transaction_id, tail)
                self._learn_size(len(tail))
                for peer, req_id in self._askers.pop(transaction_id, ()):
                    out.append(_answer(peer, req_id, transaction_id, tail))
        for missing in range(first_id, first_id + count):
            if missing not in self._askers:
                continue
            if fetched.error is None:
                if not self._under_way(missing):
                    self._fetch(missing, 1)
                continue
            for peer, req_id in self._askers.pop(missing):
                error = f"{_STORE_ERROR}: {fetched.error}"
                out.append(_failure(peer, req_id, missing, error))
        return out

    def lost(self, peer: Peer) -> None:
        """A connection is gone: nobody waits for its answers."""
        for wanted, askers in list(self._askers.items()):
            left = [asker for asker in askers if asker[0] is not peer]
            if left:
                self._askers[wanted] = left
            else:
                del self._askers[wanted]

    def close(self) -> list[Send]:
        """The partition is no longer here: say so to everybody who waits."""
        asked, self._askers = self._askers, {}
        return [
            _failure(peer, req_id, wanted, "partition not ready")
            for wanted, askers in asked.items()
            for peer, req_id in askers
        ]

    def _from_recent(self, wanted: int) -> bytes | None:
        batch = self._recent.batch_with(wanted)
        found = None
        for transaction_id, _, tail in batch.parts() if batch is not None else ():
            self._cache.put(self._partition, transaction_id, tail)
            if transaction_id == wanted:
                found = tail
        return found

    def _under_way(self, wanted: int) -> bool:
        return any(first <= wanted < first + count for first, count in self._windows.items())

    def _fetch(self, first_id: int, count: int) -> None:
        self._windows[first_id] = count
        self._store.records(first_id, count, first_id)

    def _learn_size(self, size: int) -> None:
        mean = self._mean_bytes
        self._mean_bytes = float(size) if mean is None else mean + (size - mean) / 8


def _answer(peer: Peer, req_id: ReqId, transaction_id: int, record_tail: bytes) -> Send:
    """Make the answer out of a record's end: its data length, data and checksum fit as they are."""
    body = b"".join(
        (
            b"\x07",
            req_id.encode(),
            _ANSWER_TAIL.pack(transaction_id, True),
            memoryview(record_tail)[_HEADER_BYTES:],
        )
    )
    return Send(peer, cs.frame(body, peer.version))


def _failure(peer: Peer, req_id: ReqId, transaction_id: int, error: str) -> Send:
    response: Any = cs.TransactionDataResponse(req_id, transaction_id, None, error=error)
    return Send(peer, cs.encode(response, peer.version))
