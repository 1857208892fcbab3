"""Write rounds of appends to the segment files of the partitions. Touches threads and the disk.

The segment files of all partitions of a round (see `core.engine`) are flushed at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from functools import partial

from waltz_storage.core.engine.rounds import RoundPart


class ParallelFlushes:
    """Implements `rounds.RoundWriter`. ``executor`` does all flushes of a round but the last."""

    def __init__(self, executor: Executor) -> None:
        self._begun = 0
        self._executor = executor

    @property
    def flushes(self) -> int:
        """How many flushes of data and index files rounds have begun so far."""
        return self._begun

    @property
    def flushes_once(self) -> bool:
        """See `RoundWriter`: each part has its own files."""
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
                # One flush needs no countdown. The usual case is a round of one partition.
                flush_now = flushes.pop()
                flush_now()
            if not flushes:
                # Nothing is left to flush.
                durable(part)
                continue
            countdown = _Countdown(len(flushes), partial(durable, part))
            # The last flush of the last part runs on this thread, because it costs as much to pass
            # a flush to another thread as to do it.
            inline = flushes.pop() if is_last else None
            for flush in flushes:
                flushing.append(self._executor.submit(countdown.run_flush, flush))
            if inline is not None:
                countdown.run_flush(inline)
        if flushing:
            wait(flushing)
            for future in flushing:
                future.result()


class _Countdown:
    """Calls ``done`` when the last of ``count`` flushes has succeeded, and never if one fails."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._left = count
        self._done = done
        self._lock = threading.Lock()

    def run_flush(self, flush: Callable[[], None]) -> None:
        """Do one flush, and count it if it succeeds."""
        flush()
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._done()
