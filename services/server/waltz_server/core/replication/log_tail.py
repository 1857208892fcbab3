"""Form the batches of a store session (`store_session`), and keep the last in memory. Pure.

All uncommitted batches are kept. Committed batches that an active replica may still lack are kept
up to a bound in bytes. A replica that lags further copies from another replica.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

from waltz.protocol import RecordBatch
from waltz_server.core.appends.append import Append
from waltz_server.core.limits import ReplicationLimits

_ID = struct.Struct(">q")
_BATCH_OVERHEAD_BYTES = 400
"""About how many bytes of memory one batch needs besides its records."""


class SentBatch(NamedTuple):
    """Appends with consecutive ids from ``first_id`` on, and the records sent to every replica.

    Once the batch is committed, it is kept without its appends.
    """

    first_id: int
    appends: list[Append]
    records: RecordBatch

    @property
    def last_id(self) -> int:
        """Id of the last record."""
        return self.first_id + self.records.count - 1


def records_of(first_id: int, appends: list[Append]) -> RecordBatch:
    """Return the records of ``appends``, with consecutive ids from ``first_id`` on."""
    parts: list[bytes] = []
    pack = _ID.pack
    for position, append in enumerate(appends):
        parts += (pack(first_id + position), append.req_id, append.record_tail)
    return RecordBatch(len(appends), b"".join(parts))


def record_bytes(append: Append) -> int:
    """Return the size of the record that ``append`` becomes."""
    return _ID.size + len(append.req_id) + len(append.record_tail)


def form_batch(queue: deque[Append], first_id: int, limits: ReplicationLimits) -> SentBatch:
    """Remove as many appends from ``queue`` as one batch may have; return them as a batch."""
    appends: list[Append] = []
    size = 0
    while queue and len(appends) < limits.batch_records:
        size += record_bytes(queue[0])
        if appends and size > limits.batch_bytes:
            # With this append, the batch could exceed the largest frame of a storage, and every
            # replica would refuse it. An append that exceeds the bound alone is a batch of its own.
            break
        appends.append(queue.popleft())
    return SentBatch(first_id, appends, records_of(first_id, appends))


class LogTail:
    """Consecutive batches of one session, oldest first."""

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes = kept_bytes
        self._batches: dict[int, SentBatch] = {}
        """All batches that are kept, by first id."""
        self._bytes = 0
        """Size of all batches that are kept."""
        self._uncommitted: deque[SentBatch] = deque()
        """The batches in ``_batches`` that are not committed, oldest first."""

    @property
    def in_flight(self) -> int:
        """Number of batches that are not committed."""
        return len(self._uncommitted)

    @property
    def first_id(self) -> int | None:
        """The first id of the oldest batch that is kept, None if no batch is kept."""
        return next(iter(self._batches), None)

    def starting_at(self, first_id: int) -> SentBatch | None:
        """Return the batch that begins with ``first_id``, None if it is no longer kept."""
        return self._batches.get(first_id)

    def add(self, batch: SentBatch) -> None:
        """Keep a batch that is being sent."""
        last = self._uncommitted[-1].last_id if self._uncommitted else None
        assert last is None or batch.first_id == last + 1, "ids have no gap, none is given twice"
        assert batch.appends, "a batch has an append"
        assert batch.records.count == len(batch.appends), "each append becomes one record"
        self._uncommitted.append(batch)
        self._batches[batch.first_id] = batch
        self._bytes += len(batch.records.wire) + _BATCH_OVERHEAD_BYTES

    def commit(self, committed_id: int) -> list[SentBatch]:
        """Return the batches that become committed, because a quorum has ``committed_id``."""
        committed = []
        while self._uncommitted and self._uncommitted[0].last_id <= committed_id:
            batch = self._uncommitted.popleft()
            committed.append(batch)
            # Lagging replicas may still need the records, but not the appends.
            self._batches[batch.first_id] = SentBatch(batch.first_id, [], batch.records)
        return committed

    def trim(self, acknowledged_by_all: int) -> None:
        """Drop the oldest committed batches that no active replica needs, or that exceed the bound.

        Every active replica has acknowledged all transactions up to ``acknowledged_by_all``.
        """
        first_uncommitted = self._uncommitted[0].first_id if self._uncommitted else None
        while self._batches:
            batch = next(iter(self._batches.values()))
            if batch.first_id == first_uncommitted:
                return
            if batch.last_id > acknowledged_by_all and self._bytes <= self._kept_bytes:
                return
            del self._batches[batch.first_id]
            self._bytes -= len(batch.records.wire) + _BATCH_OVERHEAD_BYTES

    def in_doubt(self) -> list[Append]:
        """Return the appends that were sent and not committed, in the order of their ids."""
        return [append for batch in self._uncommitted for append in batch.appends]
