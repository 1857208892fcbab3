"""The appends that wait for locks: one queue for each client and one for each lock. Pure.

The caller is the append queue (`append_queue`). The lock table (`lock_table`) maps each lock to
three *slots*, which other locks may share. A granted append holds the slots of its locks until the
store reports its outcome. A lock is *busy* while all its slots are held: a granted append may hold
the lock, so other appends must wait for it.

A *waiter* is an append or a batch that waits. It is in the queue of its client and in the queue of
each of its locks. A waiter that is first in all its queues is *due*: the caller may try to grant
it. If a lock of the waiter is busy, the caller *parks* the waiter at the slots of that lock. A
parked waiter is due again once one of these slots is released. So a commit costs work only for the
waiters that it releases, not for all waiters.

The queue of a client keeps the order of the client's appends. The queues of the locks are fair.
Without them, an append that wants many locks could wait for ever, while appends that want few locks
overtake it.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

from waltz_server.core.appends.lock_table import Slots

Item = TypeVar("Item")


@dataclass(slots=True, eq=False)
class Waiter(Generic[Item]):
    """An ``item`` that waits; ``number`` is its place in the order of arrival."""

    number: int
    item: Item
    queues: list[tuple[dict[int, deque[Waiter[Item]]], int]]
    """The queues that hold the waiter, each as a dict of queues and the key of one queue in it.

    The queue of the client comes first, then the queues of the locks."""
    behind: int = 0
    """In how many of these queues another waiter is first."""
    parked: tuple[int, ...] = ()
    """The slots at which the waiter is parked; empty if it is not parked."""

    def __lt__(self, other: Waiter[Item]) -> bool:
        return self.number < other.number


class LockQueues(Generic[Item]):
    """All waiters of one partition."""

    def __init__(self) -> None:
        self._all: OrderedDict[int, Waiter[Item]] = OrderedDict()
        """All waiters by their numbers, in the order of arrival."""
        self._clients: dict[int, deque[Waiter[Item]]] = {}
        """The queue of each client."""
        self._locks: dict[int, deque[Waiter[Item]]] = {}
        """The queue of each lock."""
        self._due: list[Waiter[Item]] = []
        """The waiters that are due, as a heap."""
        self._parked: defaultdict[int, set[Waiter[Item]]] = defaultdict(set)
        """The waiters parked at each slot."""

    def __len__(self) -> int:
        return len(self._all)

    @property
    def first_number(self) -> int | None:
        """The number of the waiter that has waited longest; None if nothing waits."""
        return next(iter(self._all), None)

    def must_wait(self, client: int, locks: Iterable[int]) -> bool:
        """Whether a new item must wait: a waiter has the same client or wants one of its locks."""
        return client in self._clients or any(lock in self._locks for lock in locks)

    def add(self, number: int, item: Item, client: int, locks: Iterable[int]) -> Waiter[Item]:
        """Queue ``item`` as the last one of its client and of each of its locks.

        The new waiter is not due yet, even if it is first in all its queues: the caller has just
        found one of its locks busy, and parks it.
        """
        queues = [(self._clients, client), *((self._locks, lock) for lock in set(locks))]
        new = Waiter(number, item, queues)
        for queues_by_key, key in queues:
            queue = queues_by_key.setdefault(key, deque())
            if queue:
                new.behind += 1
            queue.append(new)
        self._all[number] = new
        return new

    def take_due(self) -> Waiter[Item] | None:
        """Take the due waiter that has waited longest; None if no waiter is due."""
        return heappop(self._due) if self._due else None

    def park(self, waiter: Waiter[Item], slots: tuple[int, ...]) -> None:
        """Make ``waiter`` due again once one of ``slots`` is released."""
        waiter.parked = slots
        for slot in slots:
            self._parked[slot].add(waiter)

    def freed(self, slots: Slots) -> None:
        """Make all waiters due that are parked at ``slots``, because the slots were released."""
        if not self._parked:
            return
        for slots_of_lock in slots:
            for slot in slots_of_lock:
                for waiter in self._parked.pop(slot, ()):
                    self._unpark(waiter, slot)
                    self._make_due(waiter)

    def leave(self, waiter: Waiter[Item]) -> None:
        """Remove ``waiter``, which was due; make waiters due that now are first in all queues."""
        assert not waiter.behind, "only a waiter that is first in all its queues may leave"
        del self._all[waiter.number]
        for queues_by_key, key in waiter.queues:
            queue = queues_by_key[key]
            first = queue.popleft()
            assert first is waiter
            if queue:
                queue[0].behind -= 1
                if not queue[0].behind:
                    self._make_due(queue[0])
            else:
                del queues_by_key[key]

    def clear(self) -> list[Item]:
        """Remove all waiters; return their items in the order of arrival."""
        items = [waiter.item for waiter in self._all.values()]
        for emptied in (self._all, self._clients, self._locks, self._due, self._parked):
            emptied.clear()
        return items

    def _make_due(self, waiter: Waiter[Item]) -> None:
        heappush(self._due, waiter)

    def _unpark(self, waiter: Waiter[Item], removed_slot: int) -> None:
        """End the parking of ``waiter`` at its slots.

        `freed` has removed ``removed_slot`` from ``_parked`` already, with all its waiters.
        """
        for slot in waiter.parked:
            parked = self._parked.get(slot)
            if parked is not None and slot != removed_slot:
                parked.discard(waiter)
                if not parked:
                    del self._parked[slot]
        waiter.parked = ()
