"""Keep the end of one partition's log in memory, as encoded records, bounded in bytes. Pure.

`RecentRecords` keeps the committed batches in the encoding in which they were sent to the replicas.
A client that follows the log gets whole batches, without work for each record. `range_reads` and
`data_reads` answer from these batches.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass

from waltz.protocol import RecordBatch
from waltz.protocol.records import EMPTY_BATCH, WIRE_OVERHEAD_BYTES

_LENGTH = struct.Struct(">i")
_LENGTH_OFFSET = 28
"""Position of the data length in an encoded record."""
BATCH_OVERHEAD_BYTES = 200
"""About how many bytes of memory a kept batch needs besides its records."""
_COMPACT_AT = 1024
"""When this many entries are dropped, they are removed from the lists, all at once: each removal
from the beginning of a list moves all its other entries."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many records and bytes one answer may hold."""

    max_records: int
    max_bytes: int

    def remaining_after(self, batch: RecordBatch) -> Bounds:
        """Return the bounds for the rest of an answer that already holds ``batch``."""
        return Bounds(self.max_records - batch.count, self.max_bytes - len(batch.wire))

    @property
    def used_up(self) -> bool:
        """Whether no further record fits."""
        return self.max_records <= 0 or self.max_bytes <= 0


def records_within(
    batch: RecordBatch, skip: int, bounds: Bounds, *, at_least_one: bool
) -> RecordBatch:
    """Return the records of ``batch`` after the first ``skip``, as many as ``bounds`` allow.

    With ``at_least_one``, the first of these records may be larger than the bound in bytes.
    """
    if not skip and batch.count <= bounds.max_records and len(batch.wire) <= bounds.max_bytes:
        return batch
    wire, position, unpack_length = batch.wire, 0, _LENGTH.unpack_from
    for _ in range(skip):
        position += WIRE_OVERHEAD_BYTES + unpack_length(wire, position + _LENGTH_OFFSET)[0]
    start, taken = position, 0
    for _ in range(min(batch.count - skip, bounds.max_records)):
        end = position + WIRE_OVERHEAD_BYTES + unpack_length(wire, position + _LENGTH_OFFSET)[0]
        if end - start > bounds.max_bytes and (taken or not at_least_one):
            break
        position, taken = end, taken + 1
    return RecordBatch(taken, wire[start:position])


class RecentRecords:
    """Consecutive batches; the oldest batch is dropped first."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._bytes = 0
        """Size of the kept batches."""
        self._first_ids: list[int] = []
        """The first id of each batch in ``_batches``."""
        self._batches: list[RecordBatch] = []
        self._dropped = 0
        """Number of dropped entries, which are at the beginning of both lists."""
        self._next_id: int | None = None
        """The id after the last record; None before the first call of `put`."""

    def put(self, first_id: int, batch: RecordBatch) -> None:
        """Keep ``batch``. If it does not follow the last batch, drop all other batches first.

        In that case another server wrote the transactions in between. An answer with records from
        both sides of this gap would lack these transactions.
        """
        if first_id != self._next_id:
            self._first_ids, self._batches = [], []
            self._dropped = self._bytes = 0
        self._next_id = first_id + batch.count
        self._first_ids.append(first_id)
        self._batches.append(batch)
        self._bytes += len(batch.wire) + BATCH_OVERHEAD_BYTES
        while self._bytes > self._capacity:
            self._bytes -= len(self._batches[self._dropped].wire) + BATCH_OVERHEAD_BYTES
            self._batches[self._dropped] = EMPTY_BATCH
            self._dropped += 1
        if self._dropped >= _COMPACT_AT:
            del self._first_ids[: self._dropped], self._batches[: self._dropped]
            self._dropped = 0

    def batch_with(self, transaction_id: int) -> RecordBatch | None:
        """Return the batch that contains a transaction, None if that batch is not kept."""
        at = self._index_of_batch_with(transaction_id)
        return None if at is None else self._batches[at]

    def get(self, first_id: int, bounds: Bounds) -> RecordBatch | None:
        """Return one or more records from ``first_id`` on, None if ``first_id`` is not kept.

        The first record may be larger than the bound in bytes.
        """
        at = self._index_of_batch_with(first_id)
        if at is None:
            return None
        skip = first_id - self._first_ids[at]
        parts = [records_within(self._batches[at], skip, bounds, at_least_one=True)]
        # The next batch follows only if all records of this one fit.
        complete = parts[0].count == self._batches[at].count - skip
        bounds = bounds.remaining_after(parts[0])
        while complete and not bounds.used_up and at + 1 < len(self._batches):
            at += 1
            part = records_within(self._batches[at], 0, bounds, at_least_one=False)
            complete = part.count == self._batches[at].count
            bounds = bounds.remaining_after(part)
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        count = sum(part.count for part in parts)
        return RecordBatch(count, b"".join(part.wire for part in parts))

    def _index_of_batch_with(self, transaction_id: int) -> int | None:
        """Return the index in the lists, None if no batch that is kept has the transaction."""
        if self._next_id is None or transaction_id >= self._next_id:
            return None
        # The last batch that begins at or before the transaction; dropped entries are not searched.
        at = bisect_right(self._first_ids, transaction_id, lo=self._dropped) - 1
        return at if at >= self._dropped else None

    @property
    def used_bytes(self) -> int:
        """Bytes that are kept now."""
        return self._bytes
