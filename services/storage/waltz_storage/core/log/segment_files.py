"""Pure. Create, open and remove the two files of a segment: data and index.

After a crash between any two steps, `log_opening` must recognize what the files are: a whole
segment, or the remains of an interrupted creation or removal. The order of the steps ensures this.
Files are used only through the `Disk` that the caller passes.
"""

from __future__ import annotations

import uuid
from array import array
from dataclasses import dataclass

from waltz_storage.core.disk import Disk, DiskFile, changing
from waltz_storage.core.errors import NoSpace
from waltz_storage.core.log.segment_format import (
    DATA_SUFFIX,
    ENTRY_BYTES,
    HEADER_BYTES,
    INDEX_SUFFIX,
    Damage,
    FileHeader,
    decode_entries,
    entry_position,
    segment_name,
)

NEW_SUFFIX = f"{DATA_SUFFIX}.new"


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The cluster key and the partition of a log, which every file header repeats.

    ``directory`` contains the log's files; it is a path relative to the storage directory.
    """

    key: uuid.UUID
    partition: int
    directory: str

    def path(self, first_id: int, suffix: str) -> str:
        """Return the path of the segment's file with ``suffix``; ``first_id`` names the segment."""
        return f"{self.directory}/{segment_name(first_id)}{suffix}"


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Both files of a segment, open."""

    data: DiskFile
    index: DiskFile

    def close(self) -> None:
        """Close both files."""
        self.data.close()
        self.index.close()


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """Which records a segment has: the ids from ``first_id`` to ``next_id`` - 1.

    The records end at byte ``end`` of the data file. The bounds of the last segment of a log, the
    *tail*, are those at one moment, because appends move them.
    """

    first_id: int
    next_id: int
    end: int


def open_files(disk: Disk, identity: LogIdentity, first_id: int) -> SegmentFiles:
    """Open both files of an existing segment. Raises OSError."""
    data = disk.open(identity.path(first_id, DATA_SUFFIX))
    try:
        return SegmentFiles(data, disk.open(identity.path(first_id, INDEX_SUFFIX)))
    except BaseException:
        data.close()
        raise


def create_files(disk: Disk, identity: LogIdentity, first_id: int, now_ms: int) -> SegmentFiles:
    """Create an empty segment, and make its files and their names durable.

    The data file gets its name last, when its header is on disk. So a crash leaves at most an index
    file without entries, and a data file that still has the suffix of new files. It never leaves a
    data file without a header (`test_storage_crash`). If the name were not durable, a loss of power
    could remove the segment with its flushed records (planted bug "new segment whose name is not
    durable"). Raises DiskFailed, or NoSpace after it has removed the files that it created.
    """
    data_path = identity.path(first_id, DATA_SUFFIX)
    index_path = identity.path(first_id, INDEX_SUFFIX)
    new_path = identity.path(first_id, NEW_SUFFIX)
    assert not disk.exists(data_path), f"{data_path} exists: its records would be overwritten"
    header = FileHeader(now_ms, identity.key, identity.partition, first_id).encode()
    opened: list[DiskFile] = []
    try:
        for path in (index_path, new_path):
            file = disk.create(path)
            opened.append(file)
            file.truncate(0)
            file.write(0, header)
            file.flush()
            disk.flush_directory(identity.directory)
        disk.rename(new_path, data_path)
    except NoSpace:
        # Not strict: the second file may not exist yet.
        for file, path in zip(opened, (index_path, new_path), strict=False):
            file.close()
            disk.remove(path)
        raise
    disk.flush_directory(identity.directory)
    index, data = opened
    return SegmentFiles(data, index)


def remove_files(disk: Disk, identity: LogIdentity, first_id: int) -> None:
    """Remove a segment durably.

    The index is emptied first, and removed last. So a crash leaves both files, or only an index
    without entries. If a crash left an index with entries but no data file, `log_opening` would
    refuse the partition, because records seem to be lost. Raises DiskFailed.
    """
    index_path = identity.path(first_id, INDEX_SUFFIX)
    with changing(f"removal of segment {identity.path(first_id, '')}"):
        index = disk.open(index_path)
    index.truncate(HEADER_BYTES)
    index.flush()
    index.close()
    for path in (identity.path(first_id, DATA_SUFFIX), index_path):
        disk.remove(path)
        disk.flush_directory(identity.directory)


def read_entries(index: DiskFile, number: int, count: int) -> array[int]:
    """Return ``count`` index entries from entry ``number`` on, counted from 0.

    Raises Damage if one of them is missing, or OSError.
    """
    position = entry_position(number)
    entries = decode_entries(index.read(position, count * ENTRY_BYTES))
    if len(entries) < count:
        raise Damage(position + len(entries) * ENTRY_BYTES, "index corrupted: an entry is missing")
    return entries
