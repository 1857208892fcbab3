"""Appends between their client and the store: order, locks, and who waits for whom. Pure.

Appends of one client are never reordered, because the client takes a later one's commit as the
failure of every earlier one that is still open (behaviour.md section 8). An append that wants a
lock which an open one holds waits for it, first come first served, and holds up nothing but its
own client and those who want the same locks. A batch is decided and waits as one append does that
wants all its locks; only what others hold counts, never what its own appends take.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from waltz.protocol import client_server as cs
from waltz_server.append_batches import AppendBatch
from waltz_server.effects import Append, Peer
from waltz_server.lock_table import LockTable

Refused = tuple[Peer, Append, int]
"""An append that came too late for a lock, and the transaction that took the lock."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Something to be answered once all earlier appends are resolved: a flush or a mount."""

    peer: Peer
    request: cs.FlushRequest | cs.MountRequest


_Single = tuple[Peer, Append]
_Waiter = _Single | AppendBatch


class AppendQueue:
    """The appends that a partition has accepted and the store has not resolved."""

    def __init__(self, lock_table_size: int) -> None:
        self._size = lock_table_size
        self._locks: LockTable | None = None
        self._arrived: list[_Waiter | Barrier] = []
        self._waiting: deque[_Waiter | Barrier] = deque()
        self._num_waiting = 0
        self._wanted: Counter[int] = Counter()
        """Locks that waiters want, and how many of them."""
        self._waiting_clients: Counter[int] = Counter()
        self._renounced: list[Append] = []
        self._submitted = 0
        self._resolved = 0
        self.open_count = 0
        """Appends accepted and not yet resolved or refused."""
        self.open_bytes = 0
        """Bytes of them."""
        self._barriers: deque[tuple[int, Barrier]] = deque()
        """Barriers, with the number of submitted appends that must be resolved first."""

    def open(self, high_water_mark: int) -> None:
        """The log's mark is known; the first call makes the lock table."""
        if self._locks is None:
            self._locks = LockTable(self._size, high_water_mark)

    def assume(self, high_water_mark: int) -> None:
        """The log grew in a way that the lock table has not seen."""
        if self._locks is not None:
            self._locks.assume(high_water_mark)

    def renounce(self, generation: int) -> None:
        """Drop what waits and is not of ``generation``: its clients have been told otherwise."""
        dropped: list[Append] = []
        for item in self._take_waiting():
            if isinstance(item, Barrier):
                self._waiting.append(item)
            elif _appends_of(item)[0].generation == generation:
                self._wait(item)
            else:
                dropped += _appends_of(item)
        arrived, self._arrived = self._arrived, []
        for entry in arrived:
            if isinstance(entry, Barrier) or _appends_of(entry)[0].generation == generation:
                self._arrived.append(entry)
            else:
                dropped += _appends_of(entry)
        for append in dropped:
            self._close(append)
        self._renounced += dropped

    def take_renounced(self) -> list[Append]:
        """Take what was dropped: it will never be in the log."""
        renounced, self._renounced = self._renounced, []
        return renounced

    def add(self, peer: Peer, appends: Sequence[Append]) -> None:
        """Accept a chunk's appends; `take` decides what becomes of each."""
        self._arrived += [(peer, append) for append in appends]
        self.open_count += len(appends)
        self.open_bytes += sum(len(append.record_tail) for append in appends)

    def add_batch(self, batch: AppendBatch) -> None:
        """Accept a batch; `take` decides it as one."""
        self._arrived.append(batch)
        self.open_count += len(batch.appends)
        self.open_bytes += sum(len(append.record_tail) for append in batch.appends)

    def add_barrier(self, barrier: Barrier) -> None:
        """Accept a barrier, behind everything accepted before it."""
        if self._arrived:
            self._arrived.append(barrier)
        else:
            self._place_barrier(barrier)

    def forget(self, peer: Peer) -> None:
        """A connection is gone: nobody waits for the answers to its barriers."""

        def stays(item: _Waiter | Barrier) -> bool:
            return not (isinstance(item, Barrier) and item.peer is peer)

        self._barriers = deque(entry for entry in self._barriers if stays(entry[1]))
        self._waiting = deque(filter(stays, self._waiting))
        self._arrived = list(filter(stays, self._arrived))

    def take(self) -> tuple[list[Append], list[Refused]]:
        """Return the appends that hold their locks now, in order, and those refused."""
        granted: list[Append] = []
        refused: list[Refused] = []
        if self._locks is None:
            return granted, refused
        if self._waiting:
            self._retry_waiting(self._locks, granted, refused)
        arrived, self._arrived = self._arrived, []
        for item in arrived:
            if isinstance(item, tuple):
                self._decide(self._locks, item, granted, refused)
            elif isinstance(item, AppendBatch):
                self._decide_batch(self._locks, item, granted, refused)
            else:
                self._submitted += len(granted)
                self._place_barrier(item)
                self._submitted -= len(granted)
        self._submitted += len(granted)
        return granted, refused

    def resolved(self, appends: list[Append], first_id: int | None) -> None:
        """These were committed from ``first_id`` on, or failed (None): their slots are free."""
        self._resolved += len(appends)
        self.open_count -= len(appends)
        self.open_bytes -= sum(len(append.record_tail) for append in appends)
        locks = self._locks
        if locks is None:
            return
        for position, append in enumerate(appends):
            if append.taken:
                locks.end(append.taken, None if first_id is None else first_id + position)

    def passed_barriers(self) -> list[Barrier]:
        """Take the barriers whose appends are all resolved."""
        passed = []
        while self._barriers and self._barriers[0][0] <= self._resolved:
            passed.append(self._barriers.popleft()[1])
        return passed

    def _decide(
        self,
        locks: LockTable,
        waiter: _Single,
        granted: list[Append],
        refused: list[Refused],
    ) -> None:
        append = waiter[1]
        append.taken = append.checked = locks.slots(append.write_locks)
        if append.append_locks:
            append.taken += locks.slots(append.append_locks)
        if append.read_locks:
            append.checked += locks.slots(append.read_locks)
        if (self._num_waiting and self._must_queue(append)) or not self._try(
            locks, waiter, granted, refused
        ):
            self._wait(waiter)

    def _try(
        self,
        locks: LockTable,
        waiter: _Single,
        granted: list[Append],
        refused: list[Refused],
    ) -> bool:
        """Grant or refuse the append; returns False if it must wait for a lock that is open."""
        append = waiter[1]
        if append.taken or append.checked:
            if locks.any_open(append.taken) or (
                append.read_locks and locks.any_open(append.checked)
            ):
                return False
            latest = locks.last_taken(append.checked)
            if latest > append.client_mark:
                refused.append((*waiter, latest))
                self._close(append)
                return True
            locks.begin(append.taken)
        granted.append(append)
        return True

    def _decide_batch(
        self,
        locks: LockTable,
        batch: AppendBatch,
        granted: list[Append],
        refused: list[Refused],
    ) -> None:
        for append in batch.appends:
            append.taken = locks.slots(append.write_locks + append.append_locks)
            append.checked = locks.slots(append.write_locks + append.read_locks)
        if not self._try_batch(locks, batch, granted, refused):
            self._wait(batch)

    def _try_batch(
        self,
        locks: LockTable,
        batch: AppendBatch,
        granted: list[Append],
        refused: list[Refused],
    ) -> bool:
        """Grant or refuse each append of the batch; returns False if the batch must wait."""
        if any(self._must_queue(each) or _meets_open(locks, each) for each in batch.appends):
            return False
        taken: list[tuple[int, int, int]] = []
        for append in batch.appends:
            # Marks in the table change when something is committed: its own appends do not show.
            taken_by = locks.last_taken(append.checked)
            if append.checked and append.client_mark < taken_by:
                refused.append((batch.peer, append, taken_by))
                self._close(append)
            else:
                taken += append.taken
                granted.append(append)
        locks.begin(tuple(taken))
        return True

    def _retry_waiting(
        self, locks: LockTable, granted: list[Append], refused: list[Refused]
    ) -> None:
        for item in self._take_waiting():
            if isinstance(item, Barrier):
                self._submitted += len(granted)
                self._place_barrier(item)
                self._submitted -= len(granted)
            elif isinstance(item, AppendBatch):
                if not self._try_batch(locks, item, granted, refused):
                    self._wait(item)
            elif self._must_queue(item[1]) or not self._try(locks, item, granted, refused):
                self._wait(item)

    def _must_queue(self, append: Append) -> bool:
        """Whether an earlier waiter is of the same client, or wants one of the same locks."""
        return append.client_id in self._waiting_clients or any(
            lock in self._wanted for lock in _all_locks(append)
        )

    def _take_waiting(self) -> deque[_Waiter | Barrier]:
        """Begin anew with nobody waiting; returns who did."""
        waiting, self._waiting = self._waiting, deque()
        self._num_waiting = 0
        self._wanted.clear()
        self._waiting_clients.clear()
        return waiting

    def _wait(self, waiter: _Waiter) -> None:
        self._waiting.append(waiter)
        self._num_waiting += 1
        for append in _appends_of(waiter):
            self._waiting_clients[append.client_id] += 1
            self._wanted.update(_all_locks(append))

    def _close(self, append: Append) -> None:
        self.open_count -= 1
        self.open_bytes -= len(append.record_tail)

    def _place_barrier(self, barrier: Barrier) -> None:
        if self._waiting:
            self._waiting.append(barrier)
        else:
            self._barriers.append((self._submitted, barrier))


def _appends_of(waiter: _Waiter) -> Sequence[Append]:
    return waiter.appends if isinstance(waiter, AppendBatch) else (waiter[1],)


def _meets_open(locks: LockTable, append: Append) -> bool:
    """Whether an open append may hold a lock that this one takes or reads."""
    return locks.any_open(append.taken) or locks.any_open(append.checked)


def _all_locks(append: Append) -> tuple[int, ...]:
    return append.write_locks + append.read_locks + append.append_locks
