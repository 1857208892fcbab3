"""Pure. How long the oldest transaction waits for a checkpoint.

A transaction of the log is complete when it is durable and applied to its files. A checkpoint
covers the transactions that are complete when it begins: after it, they need no replay.
Transactions that become complete while it runs wait for the next checkpoint. So two times of
completion are kept: that of the oldest waiting transaction, and that of the oldest transaction that
became complete during the running checkpoint. When this checkpoint ends, the second time replaces
the first. `WalCommits` of the shell calls the methods, and the lag is a metric.
"""

from __future__ import annotations

from collections.abc import Callable


class CheckpointLag:
    """The age of the oldest transaction that no checkpoint has covered.

    One thread at a time calls the methods. Any thread may read `seconds`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: float | None = None
        """When the oldest waiting transaction became complete, in seconds of the clock.

        None if no transaction waits."""
        self._since_after_running: float | None = None
        """When the oldest transaction that the running checkpoint does not cover became complete.

        None if there is none."""
        self._is_running = False
        """Whether a checkpoint has begun and not ended."""

    @property
    def seconds(self) -> float:
        """The age in seconds, 0 if a checkpoint has covered all transactions."""
        since = self._since
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def note_transaction(self) -> None:
        """Note that a transaction is complete."""
        now = self._clock()
        if self._is_running and self._since_after_running is None:
            self._since_after_running = now
        if self._since is None:
            self._since = now

    def note_checkpoint_begin(self) -> None:
        """Note the beginning of a checkpoint, which will cover the transactions complete now."""
        assert not self._is_running, "one checkpoint at a time"
        self._is_running = True
        self._since_after_running = None

    def note_checkpoint_end(self) -> None:
        """Note the end of the checkpoint."""
        assert self._is_running, "a checkpoint has begun"
        self._is_running = False
        self._since = self._since_after_running
