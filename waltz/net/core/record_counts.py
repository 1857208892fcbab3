"""Choose how many records to request from a storage that cannot bound a list in bytes. Pure.

A storage of Waltz 0.13.2 puts all requested records into one message. If that is longer than
`waltz.protocol.frames.MAX_FRAME_BYTES`, the connection is closed, and the same request would close
each later connection, too. So a request is for few records until their size is known, and a list
that was lost with its connection is followed by shorter ones.
"""

from __future__ import annotations

from waltz.protocol.records import RecordBatch

ADMIN_LISTS_BOUNDED_SINCE = 1
"""The first version of the admin protocol whose storages bound their lists of records in bytes."""
LIST_BYTES = 16 << 20
"""The bound of a list for which the caller names no bound."""
COPY_BYTES = 1 << 20
"""The bound of a list that is copied to another storage.

While a storage reads, sends or flushes a copy, the appends of all its partitions wait.
"""
_FIRST_GUESS_BYTES = 16 << 10
"""Size of a record that is assumed before any record is measured."""
_FIRST_RECORDS = 20
"""The most records of a list before any record is measured. 0.13.2 always copies so many."""
_WEIGHT = 8
"""A new measurement moves the mean by its difference from the mean, divided by this number."""
_LOST_PART = 8
"""A list that is lost is followed by one with its number of records, divided by this number."""
_MOST_RECORDS = 1000
"""A bound of the number of records that is larger than this is dropped."""


class RecordCounts:
    """The numbers of records to request from one storage.

    It keeps the mean size of the records of each partition. After a list was lost, it also keeps
    the most records of a list of this partition, which doubles with each list of this length.
    """

    def __init__(self) -> None:
        self._means: dict[int, float] = {}
        self._most: dict[int, int] = {}

    def allowed(self, partition: int, wanted: int, max_bytes: int = LIST_BYTES) -> int:
        """Return how many of ``wanted`` records probably fit ``max_bytes``: at least one."""
        mean = self._means.get(partition)
        if mean is None:
            fitting = min(_FIRST_RECORDS, max_bytes // _FIRST_GUESS_BYTES)
        else:
            fitting = int(max_bytes / mean)
        return max(1, min(wanted, fitting, self._most.get(partition, wanted)))

    def received(self, partition: int, records: RecordBatch) -> None:
        """Measure ``records``, which a list of ``partition`` has returned."""
        if not records.count:
            return
        size = len(records.wire) / records.count
        mean = self._means.get(partition, size)
        self._means[partition] = mean + (size - mean) / _WEIGHT
        most = self._most.get(partition)
        if most is not None and records.count >= most:
            if 2 * most > _MOST_RECORDS:
                del self._most[partition]
            else:
                self._most[partition] = 2 * most

    def lost(self, partition: int, requested: int) -> None:
        """Note that the connection ended before a list of ``requested`` records arrived."""
        most = max(1, requested // _LOST_PART)
        self._most[partition] = min(most, self._most.get(partition, most))
