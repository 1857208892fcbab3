"""The batches of a store session: those in flight, and some that are committed. Pure.

Batches are kept until they are committed. Committed batches that a slightly lagging replica may
still need are kept up to a bound.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass

from waltz.protocol import RecordBatch
from waltz_server.core.appends.append import Append
from waltz_server.core.limits import ReplicationLimits

_ID = struct.Struct(">q")
_BATCH_OVERHEAD_BYTES = 400
"""Roughly what one batch costs in memory beside its records."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Appends that were given consecutive ids, and their records as every replica gets them."""

    first_id: int
    appends: list[Append]
    records: RecordBatch

    @property
    def last_id(self) -> int:
        """Id of the last of them."""
        return self.first_id + self.records.count - 1


def records_of(first_id: int, appends: list[Append]) -> RecordBatch:
    """Return the records that ``appends`` become with ids from ``first_id`` on."""
    parts: list[bytes] = []
    pack = _ID.pack
    for position, append in enumerate(appends):
        parts += (pack(first_id + position), append.req_id, append.record_tail)
    return RecordBatch(len(appends), b"".join(parts))


def form_batch(queue: deque[Append], first_id: int, limits: ReplicationLimits) -> Batch:
    """Take appends out of ``queue``, as many as one batch may have."""
    appends: list[Append] = []
    size = 0
    while queue and len(appends) < limits.batch_records and size < limits.batch_bytes:
        append = queue.popleft()
        size += len(append.record_tail)
        appends.append(append)
    return Batch(first_id, appends, records_of(first_id, appends))


class LogTail:
    """The batches of one session, oldest first, without a gap."""

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes = kept_bytes
        self._batches: dict[int, Batch] = {}
        """By first id: all uncommitted ones and some committed ones."""
        self._bytes = 0
        self._uncommitted: deque[Batch] = deque()

    @property
    def in_flight(self) -> int:
        """Number of batches that are not committed."""
        return len(self._uncommitted)

    @property
    def first_id(self) -> int | None:
        """The first id that is kept, None if there is none."""
        return next(iter(self._batches), None)

    def starting_at(self, first_id: int) -> Batch | None:
        """Return the batch that begins with an id, None if it is no longer kept."""
        return self._batches.get(first_id)

    def add(self, batch: Batch) -> None:
        """Keep a batch that is being sent."""
        last = self._uncommitted[-1].last_id if self._uncommitted else None
        assert last is None or batch.first_id == last + 1, "ids are dense and never given twice"
        assert batch.records.count == len(batch.appends) > 0
        self._uncommitted.append(batch)
        self._batches[batch.first_id] = batch
        self._bytes += len(batch.records.wire) + _BATCH_OVERHEAD_BYTES

    def commit(self, committed_id: int) -> list[Batch]:
        """Return the batches that are committed now that a quorum has reached ``committed_id``."""
        committed = []
        while self._uncommitted and self._uncommitted[0].last_id <= committed_id:
            batch = self._uncommitted.popleft()
            committed.append(batch)
            # What replicas may still lack are its records.
            self._batches[batch.first_id] = Batch(batch.first_id, [], batch.records)
        return committed

    def trim(self, had_by_all: int) -> None:
        """Drop committed batches that every replica has, and the oldest ones beyond the bound."""
        oldest = self._uncommitted[0].first_id if self._uncommitted else None
        while self._batches:
            batch = next(iter(self._batches.values()))
            if batch.first_id == oldest:
                return
            if batch.last_id > had_by_all and self._bytes <= self._kept_bytes:
                return
            del self._batches[batch.first_id]
            self._bytes -= len(batch.records.wire) + _BATCH_OVERHEAD_BYTES

    def in_doubt(self) -> list[Append]:
        """Return the appends that were sent and not committed, in the order of their ids."""
        return [append for batch in self._uncommitted for append in batch.appends]
