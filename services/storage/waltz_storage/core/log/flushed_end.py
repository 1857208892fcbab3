"""Pure. What is known about the end of a log before its files are opened, and how it is recorded.

The files of a log cannot show alone that records are missing at its end: lost files look like an
empty log, and damaged records look like an interrupted write. So the *flushed mark* of a partition
names the last record that was flushed, in another file (`core.control.flushed_marks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from waltz.protocol.records import NO_TRANSACTION


class FlushedEnd(NamedTuple):
    """The last flushed record of a log: its id, and its record checksum.

    The id is -1 and the checksum 0 if the log is empty.

    The checksum shows if an older copy of the files was restored (`log_opening` compares it). The
    id alone may not show that. Example: the copy has a record 7. After the copy was made, a
    truncation removed record 7, and an append wrote another record 7. The mark names record 7, and
    the copy has a record with this id, but with another checksum.
    """

    last_id: int
    checksum: int


EMPTY_LOG = FlushedEnd(NO_TRANSACTION, 0)
NEVER_REACHED = FlushedEnd((1 << 63) - 1, 0)
"""The mark of a log whose flushed records a replay of the write-ahead log has found damaged.

No log reaches this mark, so the partition is refused until it is unassigned."""


@dataclass(frozen=True, slots=True)
class KnownLog:
    """What is known about a log before its files are opened.

    ``local_low_water_mark`` is that of the control file. ``flushed`` is the flushed mark, None if
    it is not known. ``had_files`` says whether the log has had files: if they are missing now, that
    is damage, and no new files are made.
    """

    local_low_water_mark: int = NO_TRANSACTION
    flushed: FlushedEnd | None = None
    had_files: bool = False

    @property
    def must_reach(self) -> int:
        """The id that the log must reach, -1 if it may be empty.

        A truncation may cut a log below its local low-water mark. The truncation lowers the flushed
        mark, but not the local low-water mark. So the latter counts only if the flushed mark is not
        known.
        """
        return self.local_low_water_mark if self.flushed is None else self.flushed.last_id

    @property
    def last_known_record(self) -> int | None:
        """The last record that the log is known to have had, None if no record is known.

        The mark `NEVER_REACHED` names no record.
        """
        return self.must_reach if 0 <= self.must_reach < NEVER_REACHED.last_id else None


class FlushedMark(Protocol):
    """Stores the flushed mark of one log."""

    def raise_to(self, end: FlushedEnd) -> None:
        """Note that the log is flushed up to ``end``; raises DiskFailed.

        The mark need not be durable when this returns: a start that finds a mark that is too low
        does not refuse the log. It only fails to notice if records after that mark are lost.
        """

    def lower_to(self, end: FlushedEnd) -> None:
        """Note durably that the log will be cut after ``end``; raises NoSpace, DiskFailed."""


class NoFlushedMark:
    """Implements `FlushedMark` for a log whose mark is not kept, as in a rehearsal (`inspect`)."""

    def raise_to(self, end: FlushedEnd) -> None:
        """Do nothing."""

    def lower_to(self, end: FlushedEnd) -> None:
        """Do nothing."""
