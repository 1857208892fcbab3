"""The optimistic lock table of one partition (behaviour.md section 4, wire.md section 5). Pure.

A lock maps to three slots of a fixed table. A slot holds the id of the last transaction that locked
it, so the smallest of a lock's three is an upper bound of when it was last taken: an estimate that
is sometimes too high, never too low. A slot whose append is still open is *in use*.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

_MULTIPLIER = 1103515245
_INCREMENT = 12345
_HASH_MASK = 0xFFFF_FFFF
_SLOT_MASK = 0x3FFF_FFFF

Slots = tuple[int, ...]


class LockTable:
    """Marks and in-use bits of ``size`` slots."""

    def __init__(self, size: int, high_water_mark: int) -> None:
        assert size > 0
        self._size = size
        self._marks = array("q", [high_water_mark]) * size
        self._in_use = bytearray(size)

    def slots(self, lock: int) -> Slots:
        """Return the three slots of a lock's 32-bit hash."""
        size = self._size
        a = (lock * _MULTIPLIER + _INCREMENT) & _HASH_MASK
        b = (a * _MULTIPLIER + _INCREMENT) & _HASH_MASK
        c = (b * _MULTIPLIER + _INCREMENT) & _HASH_MASK
        return (a & _SLOT_MASK) % size, (b & _SLOT_MASK) % size, (c & _SLOT_MASK) % size

    def all_slots(self, locks: Iterable[int]) -> Slots:
        """Return the slots of several locks, three after three."""
        return tuple(slot for lock in locks for slot in self.slots(lock))

    def any_in_use(self, slots: Iterable[int]) -> bool:
        """Whether an open append holds one of ``slots``."""
        in_use = self._in_use
        return any(in_use[slot] for slot in slots)

    def last_taken(self, slots: Slots) -> int:
        """Return the transaction that took the latest of the locks in ``slots``, -1 without any."""
        marks = self._marks
        latest = -1
        for i in range(0, len(slots), 3):
            estimate = min(marks[slots[i]], marks[slots[i + 1]], marks[slots[i + 2]])
            if estimate > latest:
                latest = estimate
        return latest

    def begin(self, slots: Iterable[int]) -> None:
        """An append that takes ``slots`` is now open."""
        in_use = self._in_use
        for slot in slots:
            in_use[slot] = 1

    def end(self, slots: Iterable[int], transaction_id: int | None) -> None:
        """The append is resolved: committed as ``transaction_id``, or failed (None)."""
        in_use, marks = self._in_use, self._marks
        for slot in slots:
            in_use[slot] = 0
            if transaction_id is not None:
                marks[slot] = transaction_id

    def assume(self, high_water_mark: int) -> None:
        """Forget open appends, and hold every lock for taken at ``high_water_mark``.

        This is the safe answer when the log grew in a way this table has not seen.
        """
        self._marks = array("q", [high_water_mark]) * self._size
        self._in_use = bytearray(self._size)
