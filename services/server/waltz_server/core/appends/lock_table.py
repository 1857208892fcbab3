"""The optimistic lock table of one partition, by which `append_queue` checks locks. Pure.

Source: spec/behaviour.md section 4, spec/wire.md section 5.

A lock maps to three slots of a table of fixed size. Each slot has a *mark*: the id of the last
transaction that took a lock with this slot. The smallest mark of a lock's three slots estimates
which transaction took the lock last: sometimes too high, never too low. An estimate that is too
high refuses an append, and its client tries again. An estimate that is too low would commit an
append that was decided on stale data.

A granted append *holds* its locks until the store reports its outcome. Each slot also counts the
appends that hold it. If all three slots of a lock are held, an append may hold the lock, and the
lock is *busy*; otherwise no append holds it. The next mark of a busy lock is not known before the
outcome of the append that holds it, so an append that wants the lock waits
(transcripts/clients/batches_and_locks.txt).

The planted bugs (see `waltz_server.core`) in tests/mutants/planted_clients.py and
planted_batches.py show the failure that each rule prevents.
"""

from __future__ import annotations

from collections.abc import Iterable

# The constants of the hash that maps a lock to its slots are those of Waltz 0.13.2.
_MULTIPLIER = 1103515245
_INCREMENT = 12345
_HASH_MASK = 0xFFFF_FFFF
_SLOT_MASK = 0x3FFF_FFFF

Slots = tuple[tuple[int, int, int], ...]
"""The numbers of three slots for each lock."""


class LockTable:
    """The mark of each of ``size`` slots, and how many appends hold it.

    The server calls the table several times per append. For speed, each loop unpacks the three
    slots of a lock.
    """

    def __init__(self, size: int, high_water_mark: int) -> None:
        assert size > 0
        self._size = size
        # This server has not seen the locks of the transactions up to ``high_water_mark``: each
        # transaction may have taken any lock.
        self._marks = [high_water_mark] * size
        self._holders = [0] * size
        """For each slot, the number of appends that hold it."""

    def slots(self, locks: Iterable[int]) -> Slots:
        """Return the slots of ``locks``, which are 32-bit hashes."""
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

    def any_busy(self, slots: Slots) -> bool:
        """Whether a lock with ``slots`` is busy: an append may hold it."""
        counts = self._holders
        for a, b, c in slots:  # noqa: SIM110 - `any` with a generator would be slower
            if counts[a] and counts[b] and counts[c]:
                return True
        return False

    def last_taken(self, slots: Slots) -> int:
        """Return the last transaction that may have taken a lock with ``slots``; -1 for none."""
        marks = self._marks
        latest = -1
        for a, b, c in slots:
            # Take the smallest of the three marks: other locks may have raised the other two.
            estimate = marks[a]
            if marks[b] < estimate:
                estimate = marks[b]
            if marks[c] < estimate:
                estimate = marks[c]
            if estimate > latest:
                latest = estimate
        return latest

    def hold(self, slots: Slots) -> None:
        """Count an append that holds ``slots`` from now on."""
        counts = self._holders
        for a, b, c in slots:
            counts[a] += 1
            counts[b] += 1
            counts[c] += 1

    def release(self, slots: Slots, transaction_id: int | None) -> None:
        """Release ``slots``, which an append holds, and set their marks to ``transaction_id``.

        ``transaction_id`` is None if the append is not committed; then the marks stay. Appends are
        committed in the order of their ids, so a slot's mark never goes down.
        """
        counts, marks = self._holders, self._marks
        for a, b, c in slots:
            counts[a] -= 1
            counts[b] -= 1
            counts[c] -= 1
            if transaction_id is not None:
                marks[a] = marks[b] = marks[c] = transaction_id

    def take_every_lock(self, high_water_mark: int) -> None:
        """Treat every lock as taken at ``high_water_mark``.

        This is the safe estimate after another server has owned the partition: its transactions
        took locks that this table has not seen.
        """
        self._marks = [high_water_mark] * self._size
