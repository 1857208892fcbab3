"""Limit the number of *open* contexts: those that were submitted and have not ended.

Touches threads and the clock.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Generic

from waltz.client.core.values import DataT
from waltz.sync.callbacks.core.context import TransactionContext
from waltz.sync.callbacks.core.errors import TimedOut


@dataclass(frozen=True, slots=True)
class SubmittedContext(Generic[DataT]):
    """An open context: its number in `OpenContexts`, and its submission time (time.monotonic)."""

    number: int
    context: TransactionContext[DataT]
    submitted_at: float


@dataclass(slots=True, eq=False)
class Submission:
    """The submission of one context.

    It exists before `OpenContexts.add` is called. So the submission can be abandoned even if an
    exception such as KeyboardInterrupt arrives before `add` has returned.
    """

    number: int = -1
    """The number that `OpenContexts.add` has assigned, -1 before."""
    is_taken: bool = False
    """Whether the event loop has taken the context, and will end it."""


class OpenContexts:
    """The open contexts of one partition. `add` waits while ``limit`` contexts are open.

    Each context has a number. `add` assigns the numbers in ascending order. The thread that submits
    a context may remove it by `abandon`. After the event loop has taken the context by `take`,
    `abandon` has no effect, and `ActivePartition` removes the context when it has ended. So each
    context is removed once, wherever the submission is interrupted.
    """

    def __init__(self, partition: int, limit: int) -> None:
        self._partition = partition
        self._limit = limit
        self._open: dict[int, None] = {}
        """The numbers of the open contexts, ascending: a dictionary is used as an ordered set."""
        self._last_number = -1
        """The number that `add` has assigned last."""
        self._ignores_limit = False
        """Whether `add` does not wait; see `ignore_limit`."""
        self._changed = threading.Condition()
        """Notified when ``_open`` or the limit changes.

        `abandon` acquires its lock and calls `remove`, which acquires it again. The lock that a
        Condition makes allows this.
        """

    def __len__(self) -> int:
        return len(self._open)

    def add(self, submission: Submission, seconds: float | None) -> None:
        """Wait until the limit allows one more context, then add it and assign its number.

        Raises TimedOut if that takes longer than ``seconds``. If ``seconds`` is None, add the
        context immediately, even above the limit.
        """
        with self._changed:
            if seconds is not None and not self._changed.wait_for(self._has_room, seconds):
                raise TimedOut(
                    f"partition {self._partition}: {len(self._open)} transactions are open, and "
                    f"none has ended within {seconds:g} s; the context was not submitted: check "
                    "that the cluster is up and that apply_transaction raises no exception, or "
                    "increase max_in_flight"
                )
            self._last_number += 1
            # Set the number before the context is added. Otherwise an interruption between both
            # could leave the context open forever, because `abandon` would not know its number.
            submission.number = self._last_number
            self._open[submission.number] = None

    def take(self, submission: Submission) -> bool:
        """Take over a context to append its transaction; return False if it is abandoned."""
        with self._changed:
            submission.is_taken = submission.number in self._open
            return submission.is_taken

    def abandon(self, submission: Submission) -> None:
        """Remove a context that was added and was not taken; otherwise do nothing."""
        with self._changed:
            if not submission.is_taken and submission.number in self._open:
                self.remove(submission.number)

    def remove(self, number: int) -> None:
        """Remove a context that has ended. Do nothing if it is removed already."""
        with self._changed:
            self._open.pop(number, None)
            self._changed.notify_all()

    def wait(self, deadline: float | None) -> None:
        """Wait until every context that is open now has ended.

        Raises TimedOut at ``deadline``, a time of `time.monotonic`.
        """
        with self._changed:
            last_submitted = self._last_number
            seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._changed.wait_for(lambda: self._oldest() > last_submitted, seconds):
                raise TimedOut(
                    f"partition {self._partition}: {len(self._open)} transactions are still open; "
                    "they continue"
                )

    def enforce_limit(self) -> None:
        """End the effect of `ignore_limit`: `add` waits at the limit again."""
        with self._changed:
            self._ignores_limit = False

    def ignore_limit(self) -> None:
        """Let all calls of `add` return, so that none waits for contexts of a stopped partition."""
        with self._changed:
            self._ignores_limit = True
            self._changed.notify_all()

    def _has_room(self) -> bool:
        """Whether one more context may be added."""
        return self._ignores_limit or len(self._open) < self._limit

    def _oldest(self) -> int:
        """Return the number of the oldest open context; without one, the next number."""
        return next(iter(self._open), self._last_number + 1)
