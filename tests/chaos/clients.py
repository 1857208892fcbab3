"""The clients of a run: they append, read marks, and stream the log. Touches the network.

Each operation is recorded with its times, also one whose outcome stays unknown.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from random import Random

import waltz
from tests.chaos.history import Append, Event, MarkRead, Outcome, Seen
from waltz import Lock

_APPEND_SECONDS = 4.0
"""Shorter than many closures: some appends end with an unknown outcome."""
_ANSWER_SECONDS = 10.0
_PAUSE_SECONDS = 0.03
_LOCKS = 4
"""So few locks that appenders compete for them."""
_SEEN_AT_ONCE = 50

Record = Callable[[Event], None]
Clock = Callable[[], float]


class Workload:
    """The tasks of one client. They end when ``stopping`` is set."""

    def __init__(
        self, name: str, client: waltz.Client, record: Record, clock: Clock, random: Random
    ) -> None:
        self.stopping = asyncio.Event()
        self._name = name
        self._client = client
        self._record = record
        self._clock = clock
        self._random = random

    async def append(self, partition: int, number: int) -> None:
        """Append one transaction after the other; every second one takes a lock."""
        name = f"{self._name}.{partition}.{number}"
        for count in itertools.count():
            if self.stopping.is_set():
                return
            key = f"{name}.{count}"
            if count % 2:
                await self._append_locked(partition, name, key)
            else:
                await self._append(partition, name, key, (), -1)
            await asyncio.sleep(_PAUSE_SECONDS * self._random.random() * 2)

    async def _append_locked(self, partition: int, name: str, key: str) -> None:
        try:
            mark = await self._client.high_water_mark(partition, timeout=_ANSWER_SECONDS)
        except waltz.WaltzError:
            return
        await self._append(partition, name, key, (f"lock-{self._random.randrange(_LOCKS)}",), mark)

    async def _append(
        self, partition: int, name: str, key: str, locks: tuple[str, ...], mark: int
    ) -> None:
        invoked, found, outcome = self._clock(), -1, Outcome.UNKNOWN
        try:
            found = await self._client.append(
                partition,
                key.encode(),
                write_locks=[Lock(lock, partition) for lock in locks],
                mark=mark if locks else None,
                timeout=_APPEND_SECONDS,
            )
            outcome = Outcome.ACKNOWLEDGED
        except (waltz.LockFailed, waltz.ClusterUnreachable, waltz.ClientAhead):
            outcome = Outcome.REFUSED
        except waltz.WaltzError:
            pass  # the outcome stays unknown
        finally:
            done = self._clock()
            self._record(Append(name, partition, key, invoked, done, outcome, found, locks, mark))

    async def read_marks(self, partition: int) -> None:
        """Read the high-water mark again and again."""
        name = f"{self._name}.marks.{partition}"
        while not self.stopping.is_set():
            invoked = self._clock()
            try:
                mark = await self._client.high_water_mark(partition, timeout=_ANSWER_SECONDS)
                self._record(MarkRead(name, partition, invoked, self._clock(), mark))
            except waltz.WaltzError:
                pass  # no answer in time: nothing was read
            await asyncio.sleep(_PAUSE_SECONDS * 3)

    async def read_log(self, partition: int) -> list[str]:
        """Return the keys of the whole log, up to the present high-water mark."""
        mark = await self._client.high_water_mark(partition)
        return await self.follow(partition, until=mark) if mark >= 0 else []

    async def follow(self, partition: int, until: int | None = None) -> list[str]:
        """Stream the log, up to ``until`` or without end; return the keys."""
        name = f"{self._name}.stream.{partition}"
        log: list[str] = []
        first = 0
        try:
            async for transaction in self._client.stream(
                partition, after=-1, until=until, data=True
            ):
                if transaction.id != len(log):
                    keys = (transaction.data.decode(errors="replace"),)
                    self._record(Seen(name, partition, self._clock(), transaction.id, keys))
                log.append(transaction.data.decode(errors="replace"))
                if len(log) - first >= _SEEN_AT_ONCE:
                    self._record(Seen(name, partition, self._clock(), first, tuple(log[first:])))
                    first = len(log)
        finally:
            if len(log) > first:
                self._record(Seen(name, partition, self._clock(), first, tuple(log[first:])))
        return log
