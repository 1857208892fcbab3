"""The optimistic lock table of one partition. Pure.

Source: spec/behaviour.md section 4, spec/wire.md section 5.

A lock maps to three slots of a fixed table. A slot holds the id of the last transaction that locked
it. The smallest id of a lock's three slots estimates when the lock was last taken: sometimes too
high, never too low. An estimate that is too high refuses an append, and its client tries again. An
estimate that is too low would commit an append that was decided on stale data.

A slot also counts the open appends that hold it: a lock whose three slots are all held may be open,
any other lock is not. While a lock is open, nothing is known about its next mark, so an append that
wants it waits (transcripts/clients/batches_and_locks.txt).

The planted bugs in tests/sim/planted_sessions.py and planted_batches.py show what each rule is for.
"""

from __future__ import annotations

from collections.abc import Iterable

_MULTIPLIER = 1103515245
_INCREMENT = 12345
_HASH_MASK = 0xFFFF_FFFF
_SLOT_MASK = 0x3FFF_FFFF

Slots = tuple[tuple[int, int, int], ...]
"""Three slots for each lock."""


class LockTable:
    """Marks and open counts of ``size`` slots.

    It is used several times per append; for speed, each loop unpacks a lock's three slots.
    """

    def __init__(self, size: int, high_water_mark: int) -> None:
        assert size > 0
        self._size = size
        # Locks taken by transactions that this server has not seen: the mark is the safe estimate.
        self._marks = [high_water_mark] * size
        self._open = [0] * size

    def slots(self, locks: Iterable[int]) -> Slots:
        """Return the slots of the 32-bit hashes of ``locks``."""
        size = self._size
        slots = []
        for lock in locks:
            a = (lock * _MULTIPLIER + _INCREMENT) & _HASH_MASK
            b = (a * _MULTIPLIER + _INCREMENT) & _HASH_MASK
            c = (b * _MULTIPLIER + _INCREMENT) & _HASH_MASK
            slots.append(
                ((a & _SLOT_MASK) % size, (b & _SLOT_MASK) % size, (c & _SLOT_MASK) % size)
            )
        return tuple(slots)

    def any_open(self, slots: Slots) -> bool:
        """Whether one of the locks in ``slots`` may be held by an open append."""
        is_open = self._open
        for a, b, c in slots:  # noqa: SIM110 - a generator would cost more than all it does
            if is_open[a] and is_open[b] and is_open[c]:
                return True
        return False

    def last_taken(self, slots: Slots) -> int:
        """Return the transaction that took the latest of the locks in ``slots``, -1 without any."""
        marks = self._marks
        latest = -1
        for a, b, c in slots:
            # The smallest of the three: other locks that share a slot have raised the others.
            estimate = marks[a]
            if marks[b] < estimate:
                estimate = marks[b]
            if marks[c] < estimate:
                estimate = marks[c]
            if estimate > latest:
                latest = estimate
        return latest

    def begin(self, slots: Slots) -> None:
        """Count an append that takes ``slots`` as open."""
        is_open = self._open
        for a, b, c in slots:
            is_open[a] += 1
            is_open[b] += 1
            is_open[c] += 1

    def end(self, slots: Slots, transaction_id: int | None) -> None:
        """Release ``slots``: their append was committed as ``transaction_id``, or failed (None).

        Appends are committed in the order of their ids, so a slot's mark never goes down.
        """
        is_open, marks = self._open, self._marks
        for a, b, c in slots:
            is_open[a] -= 1
            is_open[b] -= 1
            is_open[c] -= 1
            if transaction_id is not None:
                marks[a] = marks[b] = marks[c] = transaction_id

    def assume(self, high_water_mark: int) -> None:
        """Treat every lock as taken at ``high_water_mark``.

        This is the safe answer when the log grew in a way that this table has not seen: another
        server owned the partition meanwhile, and its transactions took locks.
        """
        self._marks = [high_water_mark] * self._size
