"""Pure. Create, open and remove the two files of a segment: data and index.

Works on the `Disk` that it is given. The order of the steps leaves, after a crash at any of them,
files that `log_opening` recognizes as whole or as remains of an interrupted creation or removal.
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
    """Which log files belong to: every file header repeats it. ``directory`` contains the files."""

    key: uuid.UUID
    partition: int
    directory: str

    def path(self, first_id: int, suffix: str) -> str:
        """Return the path of one of the files of the segment that begins at ``first_id``."""
        return f"{self.directory}/{segment_name(first_id)}{suffix}"


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Both files of a segment, open."""

    data: DiskFile
    index: DiskFile

    def close(self) -> None:
        """Close both."""
        self.data.close()
        self.index.close()


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A complete segment: it is only read, or removed. Its records end at byte ``end``."""

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
    """Create an empty segment, durable with its names; raises NoSpace, and then leaves nothing.

    The data file gets its name last, when its header is on disk: a crash leaves at most an index
    file without entries, or a file of another suffix, never a data file without a header.
    Shown by the planted bug "new segment whose name is not durable" and `test_storage_crash`.
    """
    data_path, index_path = (identity.path(first_id, s) for s in (DATA_SUFFIX, INDEX_SUFFIX))
    new_path = identity.path(first_id, NEW_SUFFIX)
    assert not disk.exists(data_path), f"{data_path} exists: its records would be overwritten"
    header = FileHeader(now_ms, identity.key, identity.partition, first_id).encode()
    opened: list[DiskFile] = []
    try:
        for path in (index_path, new_path):
            opened.append(file := disk.create(path))
            file.truncate(0)
            file.write(0, header)
            file.flush()
            disk.flush_directory(identity.directory)
        disk.rename(new_path, data_path)
    except NoSpace:
        for file, path in zip(opened, (index_path, new_path), strict=False):
            file.close()
            disk.remove(path)
        raise
    disk.flush_directory(identity.directory)
    return SegmentFiles(opened[1], opened[0])


def remove_files(disk: Disk, identity: LogIdentity, first_id: int) -> None:
    """Remove a segment durably. A crash leaves it whole, or only an index without entries.

    The index is emptied first: `log_opening` takes an index with entries but without a data file
    for a lost segment, and refuses the partition. Raises DiskFailed.
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
    """Return ``count`` entries from the index file; raises Damage if they are missing."""
    position = entry_position(number)
    entries = decode_entries(index.read(position, count * ENTRY_BYTES))
    if len(entries) < count:
        raise Damage(position + len(entries) * ENTRY_BYTES, "index corrupted: an entry is missing")
    return entries
