"""A process's session with ZooKeeper: answers take time and may be lost, watches are called late.

The write whose answer is lost may have been executed. The process gets the error of its session,
and the product decides what follows from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import NoReturn, TypeVar

from tests.sim.cluster_view import ClusterView
from tests.sim.history import History
from tests.sim.loop_clock import LoopClock
from waltz.metadata.store import (
    ANY_VERSION,
    Children,
    Node,
    OnChange,
    SessionHealth,
    SessionState,
    StoreConnectionLost,
)
from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper

T = TypeVar("T")

_WATCH_SECONDS = (0.002, 0.02, 0.3)
_RECONNECT_SECONDS = 0.03


class AnswerLoss:
    """How many operations of all servers get no answer: ``share`` of them, from 0 to 1."""

    def __init__(self) -> None:
        self.share = 0.0


class UnreliableStore:
    """Implements `waltz.metadata.store.MetadataStore` on a session in memory."""

    def __init__(
        self,
        inner: MemoryStore,
        zookeeper: MemoryZooKeeper,
        clock: LoopClock,
        history: History,
        random: Random,
        view: ClusterView,
        answer_loss: AnswerLoss,
    ) -> None:
        self.inner = inner
        self._zookeeper = zookeeper
        self._clock = clock
        self._history = history
        self._random = random
        self._view = view
        self._answer_loss = answer_loss
        self._late_watches: dict[OnChange, OnChange] = {}
        """For each watch of the process, the one that is registered in its place."""

    @property
    def health(self) -> SessionHealth:
        """See MetadataStore."""
        return self.inner.health

    async def get(self, path: str, on_change: OnChange | None = None) -> Node | None:
        """See MetadataStore."""
        return await self._delayed(lambda: self.inner.get(path, self._late_watch(on_change)))

    async def children(self, path: str, on_change: OnChange | None = None) -> Children:
        """See MetadataStore."""
        return await self._delayed(lambda: self.inner.children(path, self._late_watch(on_change)))

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        anyone_may_write: bool = False,
    ) -> str:
        """See MetadataStore."""
        return await self._delayed(
            lambda: self.inner.create(
                path,
                data,
                ephemeral=ephemeral,
                sequence=sequence,
                anyone_may_write=anyone_may_write,
            ),
            path,
            data,
        )

    async def set(self, path: str, data: bytes, version: int) -> int:
        """See MetadataStore."""
        return await self._delayed(lambda: self.inner.set(path, data, version), path, data)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See MetadataStore."""
        await self._delayed(lambda: self.inner.delete(path, version))

    async def close(self) -> None:
        """See MetadataStore."""
        await self.inner.close()

    async def _delayed(
        self, operation: Callable[[], Awaitable[T]], path: str = "", written: bytes | None = None
    ) -> T:
        """Do ``operation`` and return its answer, each a little later, or lose the answer.

        ``operation`` writes ``written`` to ``path``. Without a path, it is a read or a deletion.
        """
        await asyncio.sleep(self._delay())
        lost = self._random.random() < self._answer_loss.share
        if lost and self._random.random() < 0.5:
            self._lose_connection(f"no answer about {path or 'a read'}")
        answer = await operation()
        if path:
            self._view.note_write(path, written)
        if lost:
            if self._view.is_metadata(path):
                self._history.fault("zookeeper", "metadata written, answer lost")
            self._lose_connection(f"no answer about {path or 'a read'}, although it was done")
        await asyncio.sleep(self._delay())
        return answer

    def _lose_connection(self, why: str) -> NoReturn:
        """Suspend the session for a while, and raise StoreConnectionLost."""
        if self.inner.health.state is SessionState.CONNECTED:
            self._zookeeper.suspend(self.inner)
            pause = self._random.expovariate(1 / _RECONNECT_SECONDS)
            self._clock.after(pause, self._reconnect)
        raise StoreConnectionLost(why)

    def _reconnect(self) -> None:
        if self.inner.health.state is SessionState.SUSPENDED:
            self._zookeeper.resume(self.inner)

    def _late_watch(self, on_change: OnChange | None) -> OnChange | None:
        """Return a watch that calls ``on_change`` late.

        The same ``on_change`` gives the same watch, because a store keeps equal watches only once.
        """
        if on_change is None:
            return None
        late = self._late_watches.get(on_change)
        if late is None:

            def late() -> None:
                self._clock.after(self._watch_delay(), on_change)

            self._late_watches[on_change] = late
        return late

    def _delay(self) -> float:
        return 0.001 + self._random.expovariate(1 / 0.002)

    def _watch_delay(self) -> float:
        return self._random.choice(_WATCH_SECONDS) * (0.5 + self._random.random())
