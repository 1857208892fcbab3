"""Where a round of writing becomes durable. Touches disk, through the logs.

`Durability` is the place to put another way of it, for example one write-ahead log for all
partitions. `SegmentDurability` is the one of Waltz 0.13.2: each partition's own segment files,
flushed in parallel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from waltz_storage.core.log import PartitionLog, StagedAppend

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RoundPart(Generic[T]):
    """What one partition appends in a round; ``owner`` is for the caller."""

    owner: T
    log: PartitionLog
    staged: StagedAppend


class Durability(Protocol):
    """Makes rounds of appends durable."""

    def commit(
        self, parts: Sequence[RoundPart[T]], settled: Callable[[RoundPart[T]], None]
    ) -> None:
        """Make all parts durable; raises DiskFailed, after which nothing may be answered any more.

        ``settled`` is called once per part as soon as it is durable, from any thread. Returns when
        all of them are.
        """


class SegmentDurability:
    """Writes and flushes each partition's segment; ``executor`` flushes all but the last."""

    def __init__(self, executor: Executor) -> None:
        self.flushes = 0
        """Flushes of appended records and their indexes so far."""
        self._executor = executor

    def commit(
        self, parts: Sequence[RoundPart[T]], settled: Callable[[RoundPart[T]], None]
    ) -> None:
        """Write part by part; a part's flush begins while the next one is written."""
        flushing: list[Future[None]] = []
        for number, part in enumerate(parts):
            part.log.write(part.staged)
            flushes = part.log.unflushed(part.staged)
            self.flushes += len(flushes)
            finish = _Last(len(flushes), partial(settled, part))
            if not flushes:
                settled(part)
                continue
            # A hop to another thread costs as much as a small flush.
            inline = flushes.pop() if number == len(parts) - 1 else None
            for flush in flushes:
                flushing.append(self._executor.submit(finish.after, flush))
            if inline is not None:
                finish.after(inline)
        if flushing:
            wait(flushing)
            for future in flushing:
                future.result()


class _Last:
    """Calls ``done`` when the last of ``count`` pieces of work has ended."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._left = count
        self._done = done
        self._lock = threading.Lock()

    def after(self, work: Callable[[], None]) -> None:
        """Do one piece."""
        work()
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._done()
