"""Choose how many records to request from a storage that cannot bound a list in bytes. Pure.

A storage of Waltz 0.13.2 puts all requested records into one message, here called a *list*. If the
list is longer than `waltz.protocol.frames.MAX_FRAME_BYTES`, the connection is closed. The same
request would close each later connection, too. So a request is for few records until the size of
the partition's records is known. After a list was lost with its connection, the next requests are
for fewer records.
"""

from __future__ import annotations

from waltz.protocol.records import RecordBatch

ADMIN_LISTS_BOUNDED_SINCE = 1
"""The first version of the admin protocol whose storages bound their lists of records in bytes."""
LIST_BYTES = 16 << 20
"""The bound of a list in bytes, if the caller names no other."""
COPY_BYTES = 1 << 20
"""The bound of a list in bytes, if the list is copied to another storage.

While a storage reads, sends or flushes a copy, the appends of all its partitions wait.
"""
_FIRST_GUESS_BYTES = 16 << 10
"""The assumed size of a record before any record is measured."""
_FIRST_RECORDS = 20
"""The most records of a list before any record is measured. 0.13.2 always copies so many."""
_MEAN_DIVISOR = 8
"""A new measurement moves the mean by its difference from the mean, divided by this number."""
_LOSS_DIVISOR = 8
"""After a lost list, the next list has the number of records of the lost one, divided by this."""
_LARGEST_LIMIT = 1000
"""The limit that a lost list has set ends when it would grow above this number of records."""


class RecordCounts:
    """The numbers of records to request from one storage.

    A lost list sets a limit for the number of records in the next lists of its partition. The limit
    doubles with each list that has as many records as the limit allows.
    """

    def __init__(self) -> None:
        self._means: dict[int, float] = {}
        """The mean size of a record in bytes, by partition."""
        self._limits: dict[int, int] = {}
        """The limit that a lost list has set, by partition."""

    def allowed(self, partition: int, wanted: int, max_bytes: int = LIST_BYTES) -> int:
        """Return how many of ``wanted`` records probably fit ``max_bytes``: at least one."""
        mean = self._means.get(partition)
        if mean is None:
            fitting = min(_FIRST_RECORDS, max_bytes // _FIRST_GUESS_BYTES)
        else:
            fitting = int(max_bytes / mean)
        return max(1, min(wanted, fitting, self._limits.get(partition, wanted)))

    def received(self, partition: int, records: RecordBatch) -> None:
        """Measure ``records``, which a list of ``partition`` has returned."""
        if not records.count:
            return
        size = len(records.wire) / records.count
        mean = self._means.get(partition, size)
        self._means[partition] = mean + (size - mean) / _MEAN_DIVISOR
        limit = self._limits.get(partition)
        if limit is not None and records.count >= limit:
            if 2 * limit > _LARGEST_LIMIT:
                del self._limits[partition]
            else:
                self._limits[partition] = 2 * limit

    def lost(self, partition: int, requested: int) -> None:
        """Note that the connection ended before a list of ``requested`` records arrived."""
        limit = max(1, requested // _LOSS_DIVISOR)
        self._limits[partition] = min(limit, self._limits.get(partition, limit))
