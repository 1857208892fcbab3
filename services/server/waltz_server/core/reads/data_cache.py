"""Cache the data of transactions that clients have read, bounded in bytes. Pure.

The partitions of a server share one cache; `data_reads` answers from it. An entry has the record
tail of a transaction (`appends.append`): header, data length, data and checksum, as they arrived in
the append. An answer to a client has the same bytes, so nothing is decoded or encoded.
"""

from __future__ import annotations

from collections import OrderedDict

_ENTRY_OVERHEAD_BYTES = 200
"""About how many bytes of memory one entry needs besides its record tail."""


class DataCache:
    """Record tails of all partitions of a server; the entry put longest ago is dropped first.

    `get` does not change this order. An entry larger than a quarter of the capacity is not kept: it
    would evict too many others.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._used = 0
        self._entries: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def put(self, partition: int, transaction_id: int, record_tail: bytes) -> None:
        """Keep the record tail of a committed transaction."""
        size = len(record_tail) + _ENTRY_OVERHEAD_BYTES
        if size > self._capacity // 4:
            return
        entries, key = self._entries, (partition, transaction_id)
        old = entries.pop(key, None)
        if old is not None:
            self._used -= len(old) + _ENTRY_OVERHEAD_BYTES
        entries[key] = record_tail
        self._used += size
        while self._used > self._capacity:
            _, dropped = entries.popitem(last=False)
            self._used -= len(dropped) + _ENTRY_OVERHEAD_BYTES

    def get(self, partition: int, transaction_id: int) -> bytes | None:
        """Return the record tail of a transaction, None if the cache does not have it."""
        return self._entries.get((partition, transaction_id))

    @property
    def used_bytes(self) -> int:
        """How many bytes the cache uses now, with the overhead of the entries."""
        return self._used
