"""The storage engine ``wal``: one write-ahead log for the segment files of all partitions.

This module connects `wal_commits` and `logged_disk` with a storage directory. `core.wal` has the
logic and the terms. Touches the disk, threads, and the log of the program.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from waltz_storage.core.control.control_file import ControlFile
from waltz_storage.core.disk import Disk, DiskFile
from waltz_storage.core.engine.rounds import RoundPart
from waltz_storage.core.partitions.storage_directory import WalFigures
from waltz_storage.core.wal.log_directory import lock_log_directory, untie_log_directory
from waltz_storage.core.wal.region_files import CATALOGUE_FILE
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.core.wal.wal_replay import Progress, ReplayResult
from waltz_storage.core.wal.wal_start import LostRows, Refuse, prepare_log, start_log
from waltz_storage.shell.logged_disk import LoggedDisk
from waltz_storage.shell.wal_commits import DIRECT_BYTES, Fail, WalCommits

log = logging.getLogger(__name__)

_MOST_NAMED = 5
"""A warning names at most this many files."""


@dataclass(frozen=True, slots=True)
class WalOptions:
    """How the engine ``wal`` uses its log.

    The log has ``wal_bytes``. Data of at least ``direct_bytes`` are written to their file and not
    to the log. ``clock`` returns seconds from any beginning. If ``fail`` is set, checkpoints are
    made on a thread, which calls ``fail`` after an error; ``fail`` must end the process at once. If
    it is None, a checkpoint is made only when the log is full, and at the end. ``directory`` is the
    directory of the log, None if that is the storage directory.
    """

    wal_bytes: int
    clock: Callable[[], float]
    fail: Fail | None = None
    direct_bytes: int = DIRECT_BYTES
    directory: Disk | None = None


class WalEngine:
    """The engine ``wal`` of one storage directory; implements `storage_directory.WriteAheadLog`."""

    def __init__(self, options: WalOptions) -> None:
        self._options = options
        self._commits: WalCommits | None = None
        self._lock: DiskFile | None = None
        """The locked file in the directory of the log, if the log has a directory of its own."""
        self._replay_seconds = 0.0
        """How long the replay has taken."""
        self._replayed: ReplayResult | None = None

    @property
    def commits(self) -> WalCommits:
        """The commits and checkpoints, after `open`."""
        assert self._commits is not None, "the log is open"
        return self._commits

    @property
    def replayed(self) -> ReplayResult:
        """What the replay has done, after `open`."""
        assert self._replayed is not None, "the log is open"
        return self._replayed

    def open(self, disk: Disk, key: uuid.UUID, control: ControlFile, refuse: Refuse) -> Disk:
        """See `WriteAheadLog`.

        The segments of a *plain* directory are complete without a log. Such a directory is prepared
        in these steps: pair it with the directory of the log, make an empty log and the catalogue
        durable, invert the key of the cluster in the control file (`ControlFile.mark_logged`). The
        inverted key says that the segments need the log: a storage without it refuses the directory
        as that of another cluster. A crash before the last step leaves a plain directory, and the
        next start repeats all steps.
        """
        options = self._options
        home = disk if options.directory is None else options.directory
        if options.directory is None:
            untie_log_directory(disk, logged=control.is_logged)
        else:
            self._lock = lock_log_directory(disk, home, logged=control.is_logged)
        try:
            return self._open(disk, home, key, control, refuse)
        except BaseException:
            self.abandon()
            raise

    def _open(
        self, disk: Disk, home: Disk, key: uuid.UUID, control: ControlFile, refuse: Refuse
    ) -> Disk:
        """Prepare a plain directory, replay the log, and return the disk for the segment files.

        ``home`` is the directory of the log.
        """
        options = self._options
        if not control.is_logged:
            prepare_log(disk, home, key, options.wal_bytes)
            control.mark_logged()
        begun = options.clock()
        started = start_log(disk, home, _log_progress, refuse)
        result = started.result
        self._replay_seconds, self._replayed = options.clock() - begun, result
        if result.transactions:
            log.info(
                "replayed the write-ahead log: %d transactions in %d KiB, %.1f s%s",
                result.transactions,
                result.blocks * BLOCK_BYTES // 1024,
                self._replay_seconds,
                "; an interrupted transaction at its end was dropped" if result.torn else "",
            )
        _log_lost_rows(started.lost_rows)
        commits = self._commits = WalCommits(started.logged, options.clock, options.direct_bytes)
        logged_disk = LoggedDisk(disk, commits)
        if options.fail is not None:
            commits.start(options.fail)
        return logged_disk

    @property
    def round_writer(self) -> LoggedRounds:
        """See `WriteAheadLog`."""
        return LoggedRounds(self.commits)

    @property
    def figures(self) -> WalFigures:
        """See `WriteAheadLog`."""
        commits = self.commits
        return WalFigures(commits.fill, commits.checkpoint_lag, self._replay_seconds)

    def close(self) -> None:
        """See `WriteAheadLog`.

        This does not release the lock of the directory of the log. `release` does that later, when
        the control file has its plain key: until then the storage directory needs this log.
        """
        self.commits.close()

    def abandon(self) -> None:
        """See `WriteAheadLog`."""
        commits, self._commits = self._commits, None
        if commits is not None:
            commits.abandon()
        self.release()

    def release(self) -> None:
        """See `WriteAheadLog`."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()


def _log_progress(progress: Progress) -> None:
    """Log how far a replay is."""
    log.info(
        "replaying the write-ahead log: %d of %d KiB",
        progress.blocks * BLOCK_BYTES // 1024,
        progress.all_blocks * BLOCK_BYTES // 1024,
    )


def _log_lost_rows(lost: LostRows | None) -> None:
    """Log which rows the catalogue had lost, and what became of their files."""
    if lost is None:
        return
    log.warning(
        "%s lacks the rows of %d segment files (%s; %s); %s",
        CATALOGUE_FILE,
        len(lost.files),
        "; ".join(lost.damaged) or "no row is damaged",
        ", ".join(lost.files[:_MOST_NAMED]) or "no file",
        "it was made anew from the segment files, and nothing is lost. Check the volume"
        if lost.renewed
        else "the volume is full, so their partitions are not served: free space on it, stop this "
        "storage node cleanly and start it again",
    )


class LoggedRounds:
    """Makes the parts of a round durable by one transaction; implements `rounds.RoundWriter`."""

    def __init__(self, commits: WalCommits) -> None:
        self._commits = commits

    @property
    def flushes(self) -> int:
        """How many transactions were flushed."""
        return self._commits.transactions

    @property
    def flushes_once(self) -> bool:
        """See `RoundWriter`."""
        return True

    def commit(self, parts: Sequence[RoundPart], durable: Callable[[RoundPart], None]) -> None:
        """Write all parts, then flush them (see `RoundWriter`).

        The first flush commits the changes of all parts. The flushes of the other parts find
        nothing to do.
        """
        for part in parts:
            part.log.write(part.staged)
        for part in parts:
            part.log.flush(part.staged)
            durable(part)
