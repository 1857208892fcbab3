"""The storage engine ``wal``: one write-ahead log for the segment files of all partitions.

Touches the disk, threads, and the log of the program.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence

from waltz_storage.core.control.control_file import ControlFile
from waltz_storage.core.disk import Disk
from waltz_storage.core.engine.rounds import RoundPart
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.core.wal.wal_replay import Progress
from waltz_storage.core.wal.wal_start import prepare_log, start_log
from waltz_storage.shell.logged_disk import LoggedDisk
from waltz_storage.shell.wal_commits import WalCommits

log = logging.getLogger(__name__)


class WalEngine:
    """Implements `SegmentLog`: the engine of one storage directory.

    Without ``in_background`` a checkpoint is made only when the log is full, and at the end.
    """

    def __init__(self, wal_bytes: int, *, in_background: bool) -> None:
        self._wal_bytes = wal_bytes
        self._in_background = in_background
        self._commits: WalCommits | None = None

    @property
    def commits(self) -> WalCommits:
        """The commits and checkpoints, after `open`."""
        assert self._commits is not None, "the log is open"
        return self._commits

    def open(self, disk: Disk, key: uuid.UUID, control: ControlFile) -> Disk:
        """See `SegmentLog`."""
        if not control.is_logged:
            prepare_log(disk, key, self._wal_bytes)
            control.mark_logged()
        logged, replayed = start_log(disk, _report)
        if replayed.transactions:
            log.info(
                "replayed the write-ahead log: %d transactions in %d KiB%s",
                replayed.transactions,
                replayed.blocks * BLOCK_BYTES >> 10,
                "; an interrupted transaction at its end was dropped" if replayed.torn else "",
            )
        commits = self._commits = WalCommits(logged)
        if self._in_background:
            commits.start()
        return LoggedDisk(disk, commits)

    @property
    def rounds(self) -> LoggedRounds:
        """See `SegmentLog`."""
        return LoggedRounds(self.commits)

    def close(self) -> None:
        """See `SegmentLog`."""
        self.commits.close()


def _report(progress: Progress) -> None:
    log.info(
        "replaying the write-ahead log: %d of %d KiB",
        progress.blocks * BLOCK_BYTES >> 10,
        progress.all_blocks * BLOCK_BYTES >> 10,
    )


class LoggedRounds:
    """Implements `RoundWriter`: the parts of a round become durable by one transaction."""

    def __init__(self, commits: WalCommits) -> None:
        self._commits = commits

    @property
    def flushes(self) -> int:
        """How many transactions were flushed."""
        return self._commits.transactions

    def commit(self, parts: Sequence[RoundPart], durable: Callable[[RoundPart], None]) -> None:
        """Write all parts, then flush them (see `RoundWriter`).

        The first flush commits the changes of all parts. The others find nothing to do.
        """
        for part in parts:
            part.log.write(part.staged)
        for part in parts:
            part.log.flush(part.staged)
            durable(part)
