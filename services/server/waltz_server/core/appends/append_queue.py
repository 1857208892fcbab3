"""Keep the open appends of a partition in order, and grant or refuse their locks. Pure.

An append is *granted* when it takes its locks and goes to the store, which replicates it. It is
*refused* when a lock was taken after the client's mark, or when the log ends before that mark. It
is *resolved* when the store reports its outcome. It is *dropped* if its generation ends before it
is granted. It is *open* until it is refused, resolved or dropped. A *barrier* is a request, such as
a flush, that waits until all appends before it are refused, resolved or dropped.

Appends of one client are never reordered: when an append is committed, its client regards every
earlier open append as failed (spec/behaviour.md section 8). A lock is *busy* while a granted append
may hold it; `lock_table` represents each lock by three *slots*. An append that wants a busy lock
waits, first come first served. A waiting append delays only appends of its own client and appends
that want the same locks.

A batch waits like one append that wants all the locks of its appends. Then each of its appends is
granted or refused, all at one instant, as the protocol promises (spec/wire.md section 9). So an
append with free locks also waits for the locks of the others. Appends of one batch never refuse
each other (transcripts/clients/batches_and_locks.txt).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import NamedTuple

from waltz.protocol import NO_TRANSACTION
from waltz.protocol.batches import LOG_MARK, BatchedOutcome, OutcomeKind
from waltz.protocol.client_numbers import APPEND_ANSWERS_SINCE
from waltz_server.core.appends.append import Append
from waltz_server.core.appends.append_batches import AppendBatch
from waltz_server.core.appends.barrier import Barrier
from waltz_server.core.appends.lock_queues import LockQueues, Waiter
from waltz_server.core.appends.lock_table import LockTable, Slots
from waltz_server.core.peer import Peer


class RefusedAppend(NamedTuple):
    """A connection, its refused append, and why: the outcome is REFUSED or AHEAD."""

    peer: Peer
    append: Append
    outcome: BatchedOutcome


class _BarrierBehindWaiter(NamedTuple):
    """A barrier that arrived after an append that still waits.

    ``number`` is its place in the order of arrival, in one numbering with the waiters.
    """

    number: int
    barrier: Barrier


class _PlacedBarrier(NamedTuple):
    """A barrier that passes when the first ``num_granted`` granted appends are resolved.

    No append that arrived before it waits any more. Counting is enough, because the store resolves
    appends in the order in which they were granted.
    """

    num_granted: int
    barrier: Barrier


_Single = tuple[Peer, Append]
"""A single append, and the connection that has sent it."""
_Item = _Single | AppendBatch
"""What is decided at one instant: a single append, or a batch."""


class AppendQueue:
    """The open appends of a partition, and the requests that wait for them."""

    def __init__(self, lock_table_size: int) -> None:
        self._lock_table_size = lock_table_size
        self._locks: LockTable | None = None  # None until `open`.
        self._mark = NO_TRANSACTION
        """The log's high-water mark at the last call of `decide`."""
        self._arrived: list[_Item | Barrier] = []
        """Appends, batches and barriers that `decide` has not seen, in the order of arrival."""
        self._waiting: LockQueues[_Item] = LockQueues()
        """The appends and batches that wait for a busy lock, or behind another waiter."""
        self._barriers_behind_waiters: deque[_BarrierBehindWaiter] = deque()
        self._numbers = count()
        """The next number in the order of arrival of the waiters and the barriers behind them."""
        self._dropped: list[Append] = []
        """The appends dropped since the last call of `take_dropped`."""
        self._num_granted = 0
        """Number of appends granted so far."""
        self._num_resolved = 0
        """Number of granted appends resolved so far."""
        self.open_count = 0
        """Number of open appends."""
        self.open_bytes = 0
        """Size of the open appends, in bytes."""
        self._placed_barriers: deque[_PlacedBarrier] = deque()
        """The barriers before which no append waits any more, in the order of arrival."""

    def open(self, high_water_mark: int) -> None:
        """Begin to decide appends: the log's mark is known now. A second call does nothing."""
        if self._locks is None:
            self._locks = LockTable(self._lock_table_size, high_water_mark)

    def take_every_lock(self, high_water_mark: int) -> None:
        """Treat every lock as taken at ``high_water_mark``: another server has extended the log."""
        if self._locks is not None:
            self._locks.take_every_lock(high_water_mark)

    def drop_ungranted(self) -> None:
        """Drop the appends that are not granted yet, because a new generation begins.

        All of them are of the generation that ends. Their clients look for them in the log of the
        new generation, do not find them, and append them again. If this server granted them later,
        they would be in the log twice. The planted bug "waiters of an old generation stay"
        (tests/mutants/planted_sessions.py) shows that.
        """
        ungranted = self._waiting.clear()
        ungranted += (entry for entry in self._arrived if not isinstance(entry, Barrier))
        self._arrived = [entry for entry in self._arrived if isinstance(entry, Barrier)]
        dropped = list(chain.from_iterable(map(_appends_of, ungranted)))
        for append in dropped:
            self._close(append)
        self._dropped += dropped

    def take_dropped(self) -> list[Append]:
        """Return the appends dropped since the last call: they will never be in the log."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def add(self, peer: Peer, appends: Sequence[Append]) -> None:
        """Accept single appends; `decide` grants or refuses each of them, or lets it wait."""
        self._arrived += [(peer, append) for append in appends]
        self.open_count += len(appends)
        self.open_bytes += sum(len(append.record_tail) for append in appends)

    def add_batch(self, batch: AppendBatch) -> None:
        """Accept a batch; `decide` decides all its appends at the same instant."""
        self._arrived.append(batch)
        self.open_count += len(batch.appends)
        self.open_bytes += sum(len(append.record_tail) for append in batch.appends)

    def add_barrier(self, barrier: Barrier) -> None:
        """Accept a barrier; the appends accepted before it must be resolved first."""
        if self._arrived:
            self._arrived.append(barrier)
        else:
            self._place_barrier(barrier, self._num_granted)

    def forget(self, peer: Peer) -> None:
        """Drop the barriers of a closed connection. Its appends stay open, because they may already
        be on disks. The client's next mount is a barrier that waits for them."""

        def stays(item: _Item | Barrier) -> bool:
            return not (isinstance(item, Barrier) and item.peer is peer)

        self._placed_barriers = deque(
            placed for placed in self._placed_barriers if stays(placed.barrier)
        )
        self._barriers_behind_waiters = deque(
            behind for behind in self._barriers_behind_waiters if stays(behind.barrier)
        )
        self._arrived = list(filter(stays, self._arrived))

    def decide(self, high_water_mark: int) -> tuple[list[Append], list[RefusedAppend]]:
        """Decide all appends that need not wait; return the granted, in order, and the refused.

        ``high_water_mark`` is the log's mark now. Before `open`, all appends wait.
        """
        self._mark = high_water_mark
        granted: list[Append] = []
        refused: list[RefusedAppend] = []
        if self._locks is None:
            return granted, refused
        self._retry_waiters(self._locks, granted, refused)
        arrived, self._arrived = self._arrived, []
        for item in arrived:
            if isinstance(item, tuple):  # A single append.
                self._decide(self._locks, item, granted, refused)
            elif isinstance(item, AppendBatch):
                self._decide_batch(self._locks, item, granted, refused)
            else:
                self._place_barrier(item, self._num_granted + len(granted))
        self._num_granted += len(granted)
        return granted, refused

    def resolved(self, appends: list[Append], first_id: int | None) -> None:
        """Release the locks of ``appends``, whose outcome the store has reported.

        ``first_id`` is the id of the first append, None if the appends are not committed.
        """
        self._num_resolved += len(appends)
        assert self._num_resolved <= self._num_granted, "only granted appends are resolved"
        self.open_count -= len(appends)
        self.open_bytes -= sum(len(append.record_tail) for append in appends)
        locks = self._locks
        if locks is None:
            return
        for position, append in enumerate(appends):
            if append.taken:
                locks.release(append.taken, None if first_id is None else first_id + position)
                self._waiting.freed(append.taken)

    def take_passed_barriers(self) -> list[Barrier]:
        """Remove and return the barriers before which no append is open any more."""
        passed = []
        while self._placed_barriers and self._placed_barriers[0].num_granted <= self._num_resolved:
            passed.append(self._placed_barriers.popleft().barrier)
        return passed

    def _decide(
        self,
        locks: LockTable,
        single: _Single,
        granted: list[Append],
        refused: list[RefusedAppend],
    ) -> None:
        """Grant or refuse an append that has just arrived, or let it wait.

        Like other methods with the parameters ``granted`` and ``refused``, add the append to one of
        these lists when it is decided.
        """
        peer, append = single
        # Older clients, whose appends have no ``answer_to``, know neither LOG_MARK nor AHEAD.
        if append.answer_to is not None:
            self._replace_log_mark(append)
            # A mark beyond the log's end: the client's state is of another log. The locks would not
            # refuse this append, because no transaction has taken a lock after that mark.
            if append.client_mark > self._mark:
                refused.append(self._refused(peer, append, OutcomeKind.AHEAD, self._mark))
                return
        append.taken = append.checked = locks.slots(append.write_locks)
        if append.append_locks:
            append.taken += locks.slots(append.append_locks)
        if append.read_locks:
            append.checked += locks.slots(append.read_locks)
        must_queue = self._waiting and self._must_queue(append)
        if must_queue or not self._try_single(locks, single, granted, refused):
            self._wait(locks, single)

    def _try_single(
        self,
        locks: LockTable,
        single: _Single,
        granted: list[Append],
        refused: list[RefusedAppend],
    ) -> bool:
        """Grant or refuse the append; return False if the append must wait for a busy lock."""
        peer, append = single
        if append.taken or append.checked:
            # Without read locks, ``taken`` includes ``checked``.
            if locks.any_busy(append.taken) or (
                append.read_locks and locks.any_busy(append.checked)
            ):
                return False
            latest = locks.last_taken(append.checked)
            if latest > append.client_mark:
                refused.append(self._refused(peer, append, OutcomeKind.REFUSED, latest))
                return True
            locks.hold(append.taken)
        granted.append(append)
        return True

    def _decide_batch(
        self,
        locks: LockTable,
        batch: AppendBatch,
        granted: list[Append],
        refused: list[RefusedAppend],
    ) -> None:
        """Grant or refuse the appends of a batch that has just arrived, or let the batch wait."""
        if batch.peer.version >= APPEND_ANSWERS_SINCE:  # Older clients do not know AHEAD.
            for append in batch.appends:
                self._replace_log_mark(append)
            # All appends of a batch have the same mark, so either all are ahead or none.
            if batch.appends[0].client_mark > self._mark:
                for append in batch.appends:
                    refused.append(self._refused(batch.peer, append, OutcomeKind.AHEAD, self._mark))
                return
        for append in batch.appends:
            append.taken = locks.slots(append.write_locks + append.append_locks)
            append.checked = locks.slots(append.write_locks + append.read_locks)
        must_queue = any(map(self._must_queue, batch.appends))
        if must_queue or not self._try_batch(locks, batch, granted, refused):
            self._wait(locks, batch)

    def _try_batch(
        self,
        locks: LockTable,
        batch: AppendBatch,
        granted: list[Append],
        refused: list[RefusedAppend],
    ) -> bool:
        """Grant or refuse each append; return False if the batch must wait for a busy lock."""
        if any(locks.any_busy(slots) for slots in _slots_of(batch)):
            return False
        taken: list[tuple[int, int, int]] = []
        for append in batch.appends:
            # Only commits raise the marks of locks. So the appends of this batch that are granted
            # before this one do not refuse it.
            latest = locks.last_taken(append.checked)
            if append.checked and latest > append.client_mark:
                refused.append(self._refused(batch.peer, append, OutcomeKind.REFUSED, latest))
            else:
                taken += append.taken
                granted.append(append)
        locks.hold(tuple(taken))
        return True

    def _retry_waiters(
        self, locks: LockTable, granted: list[Append], refused: list[RefusedAppend]
    ) -> None:
        """Decide the waiters that are due; see `lock_queues`."""
        self._place_unblocked_barriers(
            self._num_granted
        )  # `drop_ungranted` may have removed waiters.
        while waiter := self._waiting.take_due():
            item = waiter.item
            if isinstance(item, AppendBatch):
                decided = self._try_batch(locks, item, granted, refused)
            else:
                decided = self._try_single(locks, item, granted, refused)
            if decided:
                self._waiting.leave(waiter)
                self._place_unblocked_barriers(self._num_granted + len(granted))
            else:
                self._park(locks, waiter)

    def _must_queue(self, append: Append) -> bool:
        """Whether a waiter is of the client of ``append`` or wants one of its locks."""
        return self._waiting.must_wait(append.client_id, _locks_of(append))

    def _wait(self, locks: LockTable, item: _Item) -> None:
        """Queue ``item`` behind the waiters of its client and of its locks."""
        appends = _appends_of(item)
        wanted = chain.from_iterable(map(_locks_of, appends))
        waiter = self._waiting.add(next(self._numbers), item, appends[0].client_id, wanted)
        if not waiter.behind:
            # The waiter is first in all its queues, so it waits only for a busy lock.
            self._park(locks, waiter)

    def _park(self, locks: LockTable, waiter: Waiter[_Item]) -> None:
        """Park a waiter at one of its busy locks, until that lock may be free."""
        wanted = chain.from_iterable(_slots_of(waiter.item))
        busy_lock = next(lock for lock in wanted if locks.any_busy((lock,)))
        self._waiting.park(waiter, busy_lock)

    def _replace_log_mark(self, append: Append) -> None:
        """Replace a client's mark `LOG_MARK` by the log's mark."""
        if append.client_mark == LOG_MARK:
            append.client_mark = self._mark

    def _refused(
        self, peer: Peer, append: Append, kind: OutcomeKind, transaction_id: int
    ) -> RefusedAppend:
        """Close ``append``, and return it with the reason why it is refused."""
        self._close(append)
        return RefusedAppend(peer, append, BatchedOutcome(kind, transaction_id))

    def _close(self, append: Append) -> None:
        self.open_count -= 1
        self.open_bytes -= len(append.record_tail)

    def _place_barrier(self, barrier: Barrier, granted_so_far: int) -> None:
        """Queue a barrier behind the waiters; without any, behind the granted appends.

        ``granted_so_far`` is the number of appends granted so far, also by the running `decide`.
        """
        if self._waiting or self._barriers_behind_waiters:
            number = next(self._numbers)
            self._barriers_behind_waiters.append(_BarrierBehindWaiter(number, barrier))
        else:
            self._placed_barriers.append(_PlacedBarrier(granted_so_far, barrier))

    def _place_unblocked_barriers(self, granted_so_far: int) -> None:
        """Queue the barriers that no waiter precedes any more behind the granted appends."""
        behind, waiting = self._barriers_behind_waiters, self._waiting
        while behind and (waiting.first_number is None or behind[0].number < waiting.first_number):
            barrier = behind.popleft().barrier
            self._placed_barriers.append(_PlacedBarrier(granted_so_far, barrier))


def _appends_of(item: _Item) -> Sequence[Append]:
    """Return the appends of a batch, or the one append of a single one."""
    return item.appends if isinstance(item, AppendBatch) else (item[1],)


def _slots_of(item: _Item) -> Iterator[Slots]:
    """Yield the slots of all locks that must not be busy when ``item`` is granted."""
    for append in _appends_of(item):
        yield append.taken
        yield append.checked


def _locks_of(append: Append) -> tuple[int, ...]:
    """Return the hashes of all locks of ``append``."""
    return append.write_locks + append.read_locks + append.append_locks
