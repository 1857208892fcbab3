"""Those who wait for locks, in lines: one for each client and one for each lock. Pure.

Whoever is first in all of its lines is *due*: it may be tried. One that was tried and found a lock
open is *parked* at that lock's slots, and is due again once one of them was freed. So what a commit
costs depends on whom it lets go on, not on how many wait.
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
    """One that waits; ``number`` says when it came, among waiters and all else that is numbered."""

    number: int
    item: Item
    lines: list[tuple[dict[int, deque[Waiter[Item]]], int]]
    """The lines in which it stands: all lines of a kind, and its client or lock among them."""
    behind: int = 0
    """In how many of its lines another one is first."""
    parked: tuple[int, ...] = ()

    def __lt__(self, other: Waiter[Item]) -> bool:
        return self.number < other.number


class LockQueues(Generic[Item]):
    """All who wait."""

    def __init__(self) -> None:
        self._all: OrderedDict[int, Waiter[Item]] = OrderedDict()
        self._clients: dict[int, deque[Waiter[Item]]] = {}
        self._locks: dict[int, deque[Waiter[Item]]] = {}
        self._due: list[Waiter[Item]] = []
        self._parked: defaultdict[int, set[Waiter[Item]]] = defaultdict(set)
        """Who is parked at a slot."""

    def __len__(self) -> int:
        return len(self._all)

    @property
    def first(self) -> int | None:
        """The number of the one that has waited longest."""
        return next(iter(self._all), None)

    def must_wait(self, client: int, locks: Iterable[int]) -> bool:
        """Whether somebody of this client waits, or wants one of these locks."""
        return client in self._clients or any(lock in self._locks for lock in locks)

    def add(self, number: int, item: Item, client: int, locks: Iterable[int]) -> Waiter[Item]:
        """Have ``item`` wait behind all others of its client and at its locks.

        If it is first in all lines, the caller either parks it or says that it is `due`.
        """
        lines = [(self._clients, client), *((self._locks, lock) for lock in set(locks))]
        new = Waiter(number, item, lines)
        for kind, key in lines:
            line = kind.setdefault(key, deque())
            new.behind += bool(line)
            line.append(new)
        self._all[number] = new
        return new

    def due(self, waiting: Waiter[Item]) -> None:
        """``waiting`` may be tried."""
        heappush(self._due, waiting)

    def next_due(self) -> Waiter[Item] | None:
        """Take the one that has waited longest among those that may be tried."""
        return heappop(self._due) if self._due else None

    def park(self, waiting: Waiter[Item], slots: tuple[int, ...]) -> None:
        """``waiting`` is due again once one of ``slots`` is freed."""
        waiting.parked = slots
        for slot in slots:
            self._parked[slot].add(waiting)

    def freed(self, slots: Slots) -> None:
        """One who held these has let them go."""
        if not self._parked:
            return
        for three in slots:
            for slot in three:
                for waiting in self._parked.pop(slot, ()):
                    for other in waiting.parked:
                        if other != slot:
                            self._leave_slot(other, waiting)
                    waiting.parked = ()
                    self.due(waiting)

    def leave(self, waiting: Waiter[Item]) -> None:
        """``waiting``, which was due, waits no more: those behind it may be first now."""
        assert not waiting.behind
        del self._all[waiting.number]
        for kind, key in waiting.lines:
            line = kind[key]
            left = line.popleft()
            assert left is waiting
            if line:
                line[0].behind -= 1
                if not line[0].behind:
                    self.due(line[0])
            else:
                del kind[key]

    def keep(self, stays: Callable[[Item], bool]) -> list[Item]:
        """Drop those for whom ``stays`` is false and return them; the others are all tried anew."""
        everybody = list(self._all.values())
        for each in (self._all, self._clients, self._locks, self._due, self._parked):
            each.clear()
        dropped = []
        for waiting in everybody:
            if stays(waiting.item):
                self._again(waiting)
            else:
                dropped.append(waiting.item)
        return dropped

    def _again(self, waiting: Waiter[Item]) -> None:
        (_, client), *locks = waiting.lines
        new = self.add(waiting.number, waiting.item, client, [lock for _, lock in locks])
        if not new.behind:
            self.due(new)

    def _leave_slot(self, slot: int, waiting: Waiter[Item]) -> None:
        parked = self._parked.get(slot)
        if parked is not None:
            parked.discard(waiting)
            if not parked:
                del self._parked[slot]
