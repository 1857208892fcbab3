"""The appends that wait for locks: one queue for each client and one for each lock. Pure.

A waiter is in the queue of its client and in those of all its locks. One that is first in all of
its queues is *due*: it may be tried. One that was tried and found a lock open is *parked* at that
lock's slots, and is due again once one of them is released. So the cost of a commit depends on the
waiters that it releases, not on how many wait.

The queue of a client keeps the order of the client's appends; the queues of the locks are fair:
without them, appends that want few locks would overtake one that wants many for ever.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

from waltz_server.core.appends.lock_table import Slots

Item = TypeVar("Item")


@dataclass(slots=True, eq=False)
class Waiter(Generic[Item]):
    """An append or a batch that waits; ``number`` is its place in the order of arrival."""

    number: int
    item: Item
    queues: list[tuple[dict[int, deque[Waiter[Item]]], int]]
    """The queues that it is in: all queues of a kind, and its client or lock among them."""
    behind: int = 0
    """Number of its queues in which another one is first."""
    parked: tuple[int, ...] = ()

    def __lt__(self, other: Waiter[Item]) -> bool:
        return self.number < other.number


class LockQueues(Generic[Item]):
    """All waiters."""

    def __init__(self) -> None:
        self._all: OrderedDict[int, Waiter[Item]] = OrderedDict()
        self._clients: dict[int, deque[Waiter[Item]]] = {}
        self._locks: dict[int, deque[Waiter[Item]]] = {}
        self._due: list[Waiter[Item]] = []
        self._parked: defaultdict[int, set[Waiter[Item]]] = defaultdict(set)
        """The waiters parked at each slot."""

    def __len__(self) -> int:
        return len(self._all)

    @property
    def first(self) -> int | None:
        """The number of the one that has waited longest."""
        return next(iter(self._all), None)

    def must_wait(self, client: int, locks: Iterable[int]) -> bool:
        """Whether a waiter is of this client, or wants one of these locks."""
        return client in self._clients or any(lock in self._locks for lock in locks)

    def add(self, number: int, item: Item, client: int, locks: Iterable[int]) -> Waiter[Item]:
        """Queue ``item`` behind all others of its client and at its locks.

        If it is first in all queues, the caller either parks it or makes it `due`.
        """
        queues = [(self._clients, client), *((self._locks, lock) for lock in set(locks))]
        new = Waiter(number, item, queues)
        for kind, key in queues:
            queue = kind.setdefault(key, deque())
            new.behind += bool(queue)
            queue.append(new)
        self._all[number] = new
        return new

    def due(self, waiting: Waiter[Item]) -> None:
        """Let ``waiting`` be tried."""
        heappush(self._due, waiting)

    def next_due(self) -> Waiter[Item] | None:
        """Take the one that has waited longest among those that may be tried."""
        return heappop(self._due) if self._due else None

    def park(self, waiting: Waiter[Item], slots: tuple[int, ...]) -> None:
        """Make ``waiting`` due again once one of ``slots`` is released."""
        waiting.parked = slots
        for slot in slots:
            self._parked[slot].add(waiting)

    def freed(self, slots: Slots) -> None:
        """Make the waiters due that are parked at ``slots``, which were released."""
        if not self._parked:
            return
        for three in slots:
            for slot in three:
                for waiting in self._parked.pop(slot, ()):
                    for other in waiting.parked:
                        if other != slot:
                            self._unpark(other, waiting)
                    waiting.parked = ()
                    self.due(waiting)

    def leave(self, waiting: Waiter[Item]) -> None:
        """Remove ``waiting``, which was due: those behind it may be first now."""
        assert not waiting.behind, "only the first in all queues may go"
        del self._all[waiting.number]
        for kind, key in waiting.queues:
            queue = kind[key]
            left = queue.popleft()
            assert left is waiting
            if queue:
                queue[0].behind -= 1
                if not queue[0].behind:
                    self.due(queue[0])
            else:
                del kind[key]

    def keep(self, stays: Callable[[Item], bool]) -> list[Item]:
        """Remove and return the items for which ``stays`` is false; all others are tried again."""
        waiters = list(self._all.values())
        for each in (self._all, self._clients, self._locks, self._due, self._parked):
            each.clear()
        dropped = []
        for waiting in waiters:
            if stays(waiting.item):
                self._requeue(waiting)
            else:
                dropped.append(waiting.item)
        return dropped

    def _requeue(self, waiting: Waiter[Item]) -> None:
        (_, client), *locks = waiting.queues
        new = self.add(waiting.number, waiting.item, client, [lock for _, lock in locks])
        if not new.behind:
            self.due(new)

    def _unpark(self, slot: int, waiting: Waiter[Item]) -> None:
        parked = self._parked.get(slot)
        if parked is not None:
            parked.discard(waiting)
            if not parked:
                del self._parked[slot]
