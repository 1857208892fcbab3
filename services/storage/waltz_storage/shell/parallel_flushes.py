"""Write rounds of appends to the segment files of the partitions. Touches threads and the disk.

The segment files of all partitions of a round (see `core.engine.rounds`) are flushed at the same
time. This is the way of the engine ``files``; `wal_engine` has the other one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from functools import partial

from waltz_storage.core.engine.rounds import RoundPart


class ParallelFlushes:
    """Implements `rounds.RoundWriter`.

    ``executor`` does all flushes of a round except the last one, which `commit` does itself.
    """

    def __init__(self, executor: Executor) -> None:
        self._begun = 0
        self._executor = executor

    @property
    def flushes(self) -> int:
        """How many flushes of data and index files rounds have begun so far."""
        return self._begun

    @property
    def flushes_once(self) -> bool:
        """See `RoundWriter`. False: each part has its own files, so a round has many flushes."""
        return False

    def commit(self, parts: Sequence[RoundPart], durable: Callable[[RoundPart], None]) -> None:
        """Write one part after the other; flush each part while the next part is written.

        Return when all flushes are done (see `RoundWriter`).
        """
        flushing: list[Future[None]] = []
        for number, part in enumerate(parts):
            part.log.write(part.staged)
            flushes = part.log.unflushed(part.staged)
            self._begun += len(flushes)
            is_last = number == len(parts) - 1
            if is_last and len(flushes) == 1:
                # A single flush needs no countdown. It is the usual case: a round of one partition.
                only_flush = flushes.pop()
                only_flush()
            if not flushes:
                # The part has nothing more to flush.
                durable(part)
                continue
            countdown = _Countdown(len(flushes), partial(durable, part))
            # The last flush of the last part runs on this thread, because it costs as much to pass
            # a flush to another thread as to do it.
            own_flush = flushes.pop() if is_last else None
            for flush in flushes:
                flushing.append(self._executor.submit(countdown.run_flush, flush))
            if own_flush is not None:
                countdown.run_flush(own_flush)
        if flushing:
            wait(flushing)
            # This raises the error of a flush that has failed.
            for future in flushing:
                future.result()


class _Countdown:
    """Calls ``done`` when the last of ``count`` flushes has succeeded, and never if one fails."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._remaining = count
        self._done = done
        self._lock = threading.Lock()

    def run_flush(self, flush: Callable[[], None]) -> None:
        """Do one flush, and count it if it succeeds."""
        flush()
        with self._lock:
            self._remaining -= 1
            is_last = self._remaining == 0
        if is_last:
            self._done()
