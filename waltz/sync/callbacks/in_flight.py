"""How many contexts have been submitted and have no end yet; lets others wait. Threads, clock."""

from __future__ import annotations

import threading
import time

from waltz.sync.callbacks.core.errors import TimedOut


class InFlight:
    """The contexts under way in one partition, by numbers that count them."""

    def __init__(self, partition: int, most: int) -> None:
        self._partition = partition
        self._most = most
        self._open: dict[int, None] = {}
        self._last = -1
        self._ended = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, seconds: float | None) -> int:
        """Return the number of a new one, as soon as there is room; None: there always is.

        Raises TimedOut if there is none for so many seconds. After `end` there is room for all.
        """
        with self._changed:
            if seconds is not None and not self._changed.wait_for(self._room, seconds):
                raise TimedOut(
                    f"{len(self._open)} transactions are under way in partition "
                    f"{self._partition}, and none has come to its end within {seconds:g} s: check "
                    "that the cluster is up and that apply_transaction does not raise, or allow "
                    "more in flight"
                )
            self._last += 1
            self._open[self._last] = None
            return self._last

    def leave(self, number: int) -> None:
        """One has come to its end."""
        with self._changed:
            del self._open[number]
            self._changed.notify_all()

    def wait(self, deadline: float | None) -> None:
        """Return when all that are under way now have come to their ends.

        ``deadline`` is a time of `time.monotonic`. Raises TimedOut.
        """
        with self._changed:
            last = self._last
            seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._changed.wait_for(lambda: self._oldest() > last, seconds):
                raise TimedOut(
                    f"{len(self._open)} transactions are still under way in partition "
                    f"{self._partition}; they go on"
                )

    def begin(self) -> None:
        """Have others wait for room; that is so at first, too."""
        with self._changed:
            self._ended = False

    def end(self) -> None:
        """Have nobody wait for room any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _room(self) -> bool:
        return self._ended or len(self._open) < self._most

    def _oldest(self) -> int:
        return next(iter(self._open), self._last + 1)
