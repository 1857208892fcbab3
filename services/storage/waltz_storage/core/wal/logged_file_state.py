"""Pure. A segment file as readers see it while a write-ahead log is in use.

A change is *queued* until its transaction is durable and is applied to the file. Readers must see
the change at once, so a `LoggedFileState` keeps the queued changes of one file. A *region* is the
number by which the log names the file. `shell.logged_disk` uses these states.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from waltz_storage.core.log.segment_files import NEW_SUFFIX
from waltz_storage.core.log.segment_format import DATA_SUFFIX, INDEX_SUFFIX, segment_name
from waltz_storage.core.wal.catalogue import FileKind, FileName

_KINDS = {DATA_SUFFIX: FileKind.DATA, INDEX_SUFFIX: FileKind.INDEX}
_SUFFIXES = {kind: suffix for suffix, kind in _KINDS.items()}
_SEGMENT_FILE = re.compile(r"(0|[1-9][0-9]*)/([0-9]{19})(\.[a-z]+)")
"""Matches the path of a segment file: its partition, the first id in 19 digits, and a suffix."""


def file_of(path: str) -> FileName | None:
    """Return the segment file at ``path``, None if the write-ahead log does not cover ``path``."""
    match = _SEGMENT_FILE.fullmatch(path)
    if match is None or match[3] not in _KINDS:
        return None
    return FileName(_KINDS[match[3]], int(match[1]), int(match[2]))


def path_of(file: FileName) -> str:
    """Return the path of a segment file."""
    return f"{file.partition}/{segment_name(file.first_id)}{_SUFFIXES[file.kind]}"


def is_new_segment(path: str) -> bool:
    """Return whether ``path`` is the temporary name of a data file that is being created."""
    final_path = path.removesuffix(NEW_SUFFIX) + DATA_SUFFIX
    return path.endswith(NEW_SUFFIX) and file_of(final_path) is not None


@dataclass(frozen=True, slots=True)
class QueuedChange:
    """A queued write of ``data`` at ``offset``, or, if ``data`` is None, a cut at ``offset``.

    A *unit* is the operations that one call of `WalCommits.queue` adds. Units have ascending
    numbers, from 1 on. ``number`` is the number of the unit to which the change belongs.
    """

    number: int
    offset: int
    data: bytes | None


@dataclass(slots=True)
class LoggedFileState:
    """What all open handles of one file share: its region and name, its length, queued changes.

    ``region`` and ``file`` are None until the file has its final name. Until then, ``content`` has
    the bytes.

    The thread of a partition reads the file and queues changes. Meanwhile another thread, which
    commits the changes of all partitions, may call `settle`. So the caller of a method must hold
    the lock of `WalCommits`. Properties that need no lock say so.
    """

    region: int | None = None
    file: FileName | None = None
    size: int = 0
    """The length that readers see, with all queued changes; not known until ``loaded``."""
    size_on_disk: int = 0
    """The length of the file on the disk; not known until ``loaded``."""
    loaded: bool = True
    """Whether the lengths are known."""
    inherited: bool = False
    """Whether the file may have bytes that an earlier process wrote directly and did not flush.

    Then the first flush of this process also flushes the file itself (`shell.logged_disk`)."""
    creation: int = 0
    """The number of the queued unit that creates the file; 0 if no creation is queued."""
    changes: list[QueuedChange] = field(default_factory=list)
    """The queued changes, in their order."""
    content: bytearray = field(default_factory=bytearray)
    """All bytes of a file without a final name; empty once the file has its name."""

    @property
    def last_change(self) -> int:
        """The number of the unit of the last queued change, 0 if there is none. Needs no lock."""
        # The thread that commits may remove changes at any moment. A slice is one step; a test of
        # the length and an index would be two.
        last = self.changes[-1:]
        return max(self.creation, last[0].number if last else 0)

    def queue(self, change: QueuedChange) -> None:
        """Add a change, after the ones before it."""
        # A change beyond the end would leave a gap. After a crash the bytes in the gap could have
        # any content (see `region_files`).
        assert change.offset <= self.size, "a change begins within its file"
        self.changes.append(change)
        if change.data is None:
            self.size = change.offset
        else:
            self.size = max(self.size, change.offset + len(change.data))

    def settle(self, number: int) -> None:
        """Remove the changes of the units up to ``number``: they were applied to the file."""
        applied = [change for change in self.changes if change.number <= number]
        del self.changes[: len(applied)]
        if self.creation <= number:
            self.creation = 0
        for change in applied:
            if change.data is None:
                self.size_on_disk = change.offset
            else:
                self.size_on_disk = max(self.size_on_disk, change.offset + len(change.data))

    @property
    def may_be_extended(self) -> bool:
        """Whether the file on the disk can be made longer to reserve space. Needs no lock.

        For that, the file must exist, and no queued change may cut it: the cut would remove the
        space again.
        """
        # The copy is one step, as in `last_change`.
        return self.creation == 0 and all(change.data is not None for change in tuple(self.changes))

    def is_changed(self, offset: int, length: int) -> bool:
        """Return whether a queued change affects these bytes, or the file does not exist yet."""
        return self.creation != 0 or any(
            change.offset < offset + length
            and (change.data is None or offset < change.offset + len(change.data))
            for change in self.changes
        )

    def read(self, offset: int, length: int, read_disk: Callable[[int, int], bytes]) -> bytes:
        """Return up to ``length`` bytes at ``offset``, with all queued changes.

        ``read_disk`` returns bytes of the file on the disk; its arguments are an offset and a
        length. The result has fewer bytes only at the end of the file.
        """
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        if self.region is None:
            return bytes(self.content[offset : offset + length])
        on_disk = b"" if self.creation else read_disk(offset, length)
        result = bytearray(on_disk.ljust(length, b"\0"))
        for change in self.changes:
            # Where the change begins in the result; negative if it begins before the result.
            start = change.offset - offset
            if change.data is None:
                # After a cut the bytes are zeros, until a later change writes them.
                kept = max(0, start)
                result[kept:] = bytes(max(0, length - kept))
                continue
            begin, end = max(0, start), min(length, start + len(change.data))
            if begin < end:
                result[begin:end] = change.data[begin - start : end - start]
        return bytes(result)
