"""Commit the queued changes of all partitions together, and make checkpoints.

A thread that needs its changes to be durable calls `commit`. The first such thread writes one
transaction with the queued changes, as many as the transaction has space for, and flushes it once.
The other threads wait. Changes that are queued meanwhile belong to the next transaction. So one
flush serves all threads that waited for it.

The changes of one call of `WalCommits.queue` are a *unit*, which is never divided between two
transactions. Touches threads, and the disk through `LoggedFiles`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from typing_extensions import override

from waltz_storage.core.errors import DiskFailed
from waltz_storage.core.wal.checkpoint_lag import CheckpointLag
from waltz_storage.core.wal.logged_file_state import LoggedFileState
from waltz_storage.core.wal.logged_files import LoggedFiles
from waltz_storage.core.wal.operations import Operation, encoded_bytes

DIRECT_BYTES = 256 << 10
"""A record of at least this size is written only to its segment file; the log gets its checksum.
The commit must then flush that file besides the log. For a smaller record this extra flush costs
more than writing the record twice: to the log, and later to the file."""

_LEAST_PAUSE_SECONDS = 1.0
"""The shortest pause between two checkpoints."""
_MOST_PAUSE_SECONDS = 10.0
"""The longest pause between two checkpoints, so that a replay is short."""
_PAUSE_PER_CHECKPOINT = 3
"""The pause is this many times as long as the last checkpoint, within the bounds above. So the
flushes of segment files, which compete with those of the log, take a fourth of the time or less.
They take more if a checkpoint lasts longer than `_MOST_PAUSE_SECONDS` / 3, or if the log fills."""
_CHECKPOINT_SHARE = 4
"""A checkpoint begins at the latest when 1 / `_CHECKPOINT_SHARE` of the log is used. It frees space
before the log is full: appends to a full log wait for a checkpoint."""

Fail = Callable[[BaseException], None]
"""Ends the process at once because of an error."""
OnApplied = Callable[[], None]
"""Called when a unit is durable and applied, while the lock is held."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """Operations that are committed by the same transaction, and the file that they change.

    Units have ascending numbers, from 1 on, and are committed in this order. After a crash, either
    all operations of a unit were applied or none. ``on_applied`` is called when the unit is durable
    and applied, before the lock is released.
    """

    number: int
    operations: Sequence[Operation]
    file_state: LoggedFileState
    size: int
    """How many bytes the operations take in a transaction."""
    on_applied: OnApplied | None


def pause_after(seconds: float) -> float:
    """Return the pause in seconds after a checkpoint that took ``seconds``.

    A checkpoint flushes each file that has changed. With a thousand files that takes longer than a
    second. Without a pause, checkpoints would use the disk all the time, beside the log.
    """
    wanted = _PAUSE_PER_CHECKPOINT * seconds
    return min(max(_LEAST_PAUSE_SECONDS, wanted), _MOST_PAUSE_SECONDS)


class _Locked(AbstractContextManager[None]):
    """Holds the lock of ``commits``.

    One object serves all uses: every write takes the lock, and a new object would take time.
    """

    __slots__ = ("_commits",)

    def __init__(self, commits: WalCommits) -> None:
        self._commits = commits

    @override
    def __enter__(self) -> None:
        self._commits.acquire()

    @override
    def __exit__(self, *_: object) -> None:
        self._commits.release()


class WalCommits:
    """The queue of changes, the commits and the checkpoints of one log. Thread-safe.

    Change the fields of `LoggedFileState`, and call its methods and those of ``logged``, only while
    `locked` is held. After a failure each call raises DiskFailed: the content of the disk is
    unknown.
    """

    def __init__(
        self, logged: LoggedFiles, clock: Callable[[], float], direct_bytes: int = DIRECT_BYTES
    ) -> None:
        """Take an open log whose transactions are all complete.

        ``clock`` returns seconds. Data of ``direct_bytes`` or more are not copied to the log.
        """
        assert direct_bytes > 0, "data without bytes have no checksum"
        self.logged = logged
        self.transactions = 0
        """How many transactions were flushed."""
        self._direct_bytes = direct_bytes
        self._clock = clock
        self._lag = CheckpointLag(clock)
        self._changed = threading.Condition(threading.RLock())
        """The lock of all fields. Threads wait on it for the end of a commit or a checkpoint."""
        self._locked = _Locked(self)
        self._queue: deque[_Unit] = deque()
        self._last_queued = 0
        """The number of the unit that was queued last."""
        self._last_durable = 0
        """The number of the last unit that is durable and applied."""
        self._writing = False
        """Whether a thread is writing a transaction."""
        self._checkpointing = False
        """Whether a thread is making a checkpoint."""
        self._failure: BaseException | None = None
        """The first failure. The content of the disk is unknown since then."""
        self._wake = threading.Event()
        """Wakes the thread of `start`, for a checkpoint or because the thread must end."""
        self._thread_must_end = False
        """Whether the thread of `start` must end."""
        self._thread: threading.Thread | None = None

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock; raises DiskFailed after a failure."""
        return self._locked

    @property
    def fill(self) -> float:
        """The part of the log that a replay would need, from 0 to 1. Thread-safe."""
        writer = self.logged.writer
        return writer.used_blocks / writer.ring_blocks

    @property
    def checkpoint_lag(self) -> float:
        """The age in seconds of the oldest transaction that no checkpoint has passed. Thread-safe.

        0 if there is none.
        """
        return self._lag.seconds

    @property
    def next_number(self) -> int:
        """The number of the next unit; call with the lock."""
        return self._last_queued + 1

    def queue(
        self,
        operations: Sequence[Operation],
        file_state: LoggedFileState,
        on_applied: OnApplied | None = None,
    ) -> None:
        """Queue a unit with the number `next_number`: ``operations`` on the file of ``file_state``.

        Call with the lock. ``on_applied`` is called with the lock when the unit is durable and
        applied.
        """
        size = sum(map(encoded_bytes, operations))
        assert size <= self.logged.writer.most_bytes, "a unit has space in one transaction"
        self._last_queued += 1
        self._queue.append(_Unit(self._last_queued, operations, file_state, size, on_applied))

    def commit(self, number: int) -> None:
        """Return when the units up to ``number`` are durable and applied; raises DiskFailed."""
        with self._changed:
            while self._last_durable < number:
                self._check_not_failed()
                if self._writing:
                    self._changed.wait()
                    continue
                with self._failing():
                    self._write_transaction()

    def commit_all(self) -> None:
        """Commit all units that are queued now; raises DiskFailed."""
        with self._changed:
            number = self._last_queued
        self.commit(number)

    def checkpoint(self) -> None:
        """Make the files durable, and give up the space of their transactions.

        Transactions may be written meanwhile. Raises DiskFailed.
        """
        with self._changed:
            self._check_not_failed()
            with self._failing():
                self._checkpoint()

    def start(self, fail: Fail) -> None:
        """Make checkpoints on a thread from now on.

        If a checkpoint fails, ``fail`` is called on that thread. It must end the process at once:
        the next start replays the log, which still has all changes since the last checkpoint.
        """
        self._thread = threading.Thread(
            target=self._run, args=(fail,), name="checkpoints", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Commit everything and leave an empty log; raises DiskFailed."""
        self.end_thread()
        self.commit_all()
        self.checkpoint()
        with self._changed, self._failing():
            # On the disk, the log is empty only when the header of the checkpoint is durable.
            self._flush_header()
            writer = self.logged.writer
            assert writer.checkpoint == writer.following, "the log is empty after a clean stop"
            self.logged.release()

    def abandon(self) -> None:
        """Close all files without a change: what is in the log stays there."""
        self.end_thread()
        self.logged.release()

    def end_thread(self) -> None:
        """End the thread of `start`, after its current checkpoint."""
        self._thread_must_end = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, fail: Fail) -> None:
        """Make checkpoints until `end_thread` is called: the body of the thread of `start`."""
        pause = _LEAST_PAUSE_SECONDS
        while True:
            self._wake.wait(pause)
            # `end_thread` sets `_thread_must_end` before `_wake`. So this thread clears the latter
            # before it checks the former. In the other order it could lose the wake-up, and
            # `end_thread` would wait for the whole pause.
            self._wake.clear()
            if self._thread_must_end:
                return
            begun = self._clock()
            try:
                with self._changed:
                    log_is_empty = self.logged.writer.following == self.logged.writer.checkpoint
                if not log_is_empty:
                    self.checkpoint()
            except DiskFailed as error:
                # Without appends, no later commit would notice the failure. The process would
                # continue although the content of its files is unknown.
                fail(error)
                return
            pause = pause_after(self._clock() - begun)

    def _write_transaction(self) -> None:
        """Write and flush one transaction; the lock is held, but not during the flush.

        The order must not change. The direct data of large records are written before the
        transaction that has their checksums. Both are flushed before the transaction is complete.
        Its changes reach the files after that. Then its units count as durable, and the threads
        that wait for them in `commit` continue.
        """
        self._writing = True
        try:
            units = self._take_units()
            operations = [operation for unit in units for operation in unit.operations]
            while not self.logged.can_write(operations):
                self._checkpoint()
                # The space is used again only when the checkpoint's header is durable: a crash must
                # not leave an older header, whose transactions are overwritten.
                self._flush_header()
            operations = self.logged.write_large_directly(operations, self._direct_bytes)
            self.logged.write(operations)
            flushes = self.logged.flushes()
            with self._unlocked():
                for flush in flushes:
                    flush()
            self.transactions += 1
            self.logged.complete()
            self._lag.note_transaction()
            self._last_durable = units[-1].number
            for unit in units:
                unit.file_state.settle(self._last_durable)
                if unit.on_applied is not None:
                    unit.on_applied()
            writer = self.logged.writer
            if writer.used_blocks * _CHECKPOINT_SHARE > writer.ring_blocks:
                self._wake.set()
        finally:
            self._writing = False
            self._changed.notify_all()

    def _take_units(self) -> list[_Unit]:
        """Remove the first units from the queue, as many as one transaction has space for."""
        units: list[_Unit] = []
        free_bytes = self.logged.writer.most_bytes
        while self._queue and self._queue[0].size <= free_bytes:
            units.append(self._queue.popleft())
            free_bytes -= units[-1].size
        assert units, "a commit has something to write"
        return units

    def _checkpoint(self) -> None:
        """Make a checkpoint; the lock is held, but not during the flushes of the files.

        If a checkpoint is being made, only wait for its end.
        """
        if self._checkpointing:
            while self._checkpointing:
                self._changed.wait()
                self._check_not_failed()
            return
        self._checkpointing = True
        try:
            # The steps are those of `LoggedFiles`. A checkpoint begins only when the header of the
            # last one is durable.
            self._flush_header()
            flushes = self.logged.begin_checkpoint()
            self._lag.note_checkpoint_begin()
            with self._unlocked():
                for flush in flushes:
                    flush()
            flush_position = self.logged.write_position()
            with self._unlocked():
                flush_position()
            self.logged.end_checkpoint()
            self._lag.note_checkpoint_end()
        finally:
            self._checkpointing = False
            self._changed.notify_all()

    def _flush_header(self) -> None:
        """Make the header of the log durable: it says where a replay begins, the last checkpoint.

        If a transaction is written but not complete, wait until it is. Its flush makes the header
        durable, too, if the header was written before that flush began. Otherwise the header is
        still pending afterwards, and is flushed here.

        The thread that is writing a transaction calls this before it has written the blocks of the
        transaction. So it does not wait for itself.
        """
        while self.logged.header_pending:
            if self.logged.writer.writing:
                self._changed.wait()
                self._check_not_failed()
            else:
                self.logged.flush_header()

    @contextmanager
    def _unlocked(self) -> Iterator[None]:
        """Release the lock, which is held once, and acquire it again at the end."""
        self._changed.release()
        try:
            yield
        finally:
            self._changed.acquire()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Note a failure, so that each later call raises DiskFailed.

        Convert an Exception to DiskFailed; raise other errors, such as KeyboardInterrupt, again.
        """
        try:
            yield
        except BaseException as error:
            self._failure = self._failure or error
            self._changed.notify_all()
            if isinstance(error, DiskFailed) or not isinstance(error, Exception):
                raise
            raise DiskFailed(f"the write-ahead log cannot be used any more: {error}") from error

    def acquire(self) -> None:
        """Acquire the lock for `locked`; raises DiskFailed after a failure."""
        self._changed.acquire()
        if self._failure is not None:
            self._changed.release()
            self._check_not_failed()

    def release(self) -> None:
        """Release the lock that `acquire` has acquired."""
        self._changed.release()

    def _check_not_failed(self) -> None:
        """Raise DiskFailed after a failure."""
        if self._failure is not None:
            raise DiskFailed(f"the write-ahead log has failed before: {self._failure}")
