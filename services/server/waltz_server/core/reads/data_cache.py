"""Recent transactions' data, bounded in bytes. Pure.

An entry is the end of a record as it is sent: header, length, data and checksum. An append's bytes
become an answer's bytes without being decoded.
"""

from __future__ import annotations

from collections import OrderedDict

_ENTRY_OVERHEAD_BYTES = 200
"""Roughly what one entry costs in memory beside its data."""


class DataCache:
    """Transactions of all partitions of a server; the one added first is dropped first.

    An entry above a quarter of the capacity is not kept.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._used = 0
        self._entries: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def put(self, partition: int, transaction_id: int, data: bytes) -> None:
        """Remember ``data`` of a committed transaction."""
        size = len(data) + _ENTRY_OVERHEAD_BYTES
        if size > self._capacity // 4:
            return
        entries, key = self._entries, (partition, transaction_id)
        old = entries.pop(key, None)
        if old is not None:
            self._used -= len(old) + _ENTRY_OVERHEAD_BYTES
        entries[key] = data
        self._used += size
        while self._used > self._capacity:
            _, gone = entries.popitem(last=False)
            self._used -= len(gone) + _ENTRY_OVERHEAD_BYTES

    def get(self, partition: int, transaction_id: int) -> bytes | None:
        """Return the cached data of a transaction, None if it is not cached."""
        return self._entries.get((partition, transaction_id))

    @property
    def used_bytes(self) -> int:
        """How much is kept now."""
        return self._used
