"""The files of one segment: made, written at the end, sealed, read. Touches disk.

Only the last segment of a log is written; it may be allocated ahead with zeros, so its logical end
counts and not its size. Its newest index entries are kept in memory until a checkpoint, so that the
index file never claims a record that may not be durable.
"""

from __future__ import annotations

import uuid
from array import array
from dataclasses import dataclass

from waltz_storage.core.disk import Disk, DiskFile, changing
from waltz_storage.core.errors import NoSpace
from waltz_storage.core.log_recovery import SegmentPlan
from waltz_storage.core.segment_format import (
    CHECKPOINT_INTERVAL,
    DATA_SUFFIX,
    ENTRY_BYTES,
    HEADER_BYTES,
    INDEX_SUFFIX,
    Damage,
    FileHeader,
    SegmentEncoder,
    decode_entries,
    encode_entries,
    entry_position,
    segment_name,
)

NEW_SUFFIX = f"{DATA_SUFFIX}.new"
_SMALLEST_STEP_BYTES = 1 << 20
_ALLOCATE_FOR_BYTES = 32 << 10
"""Larger writes let the file grow: writing as many zeros first would cost more than it saves."""


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Which log the files belong to: they all carry it. ``directory`` holds them."""

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
    """A segment that is complete: it is only read, or removed."""

    first_id: int
    next_id: int
    end: int


def open_files(disk: Disk, identity: LogIdentity, first_id: int) -> SegmentFiles:
    """Open both files of an existing segment."""
    data = disk.open(identity.path(first_id, DATA_SUFFIX))
    try:
        return SegmentFiles(data, disk.open(identity.path(first_id, INDEX_SUFFIX)))
    except BaseException:
        data.close()
        raise


def create_files(disk: Disk, identity: LogIdentity, first_id: int, now_ms: int) -> SegmentFiles:
    """Make an empty segment, durable with its names; raises NoSpace, and then leaves nothing.

    The data file gets its name last and with its header on the disk: a crash leaves at most an
    index file without entries, or a file of another suffix.
    """
    data_path, index_path = (identity.path(first_id, s) for s in (DATA_SUFFIX, INDEX_SUFFIX))
    new_path = identity.path(first_id, NEW_SUFFIX)
    assert not disk.exists(data_path), f"{data_path} exists"
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
    """Remove a segment for good. A crash leaves it whole, or nothing but an empty index.

    The index is emptied first: an index with entries but without data is a sign of loss. Raises
    DiskFailed.
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
    """Return ``count`` entries from the index file; raises Damage if they are not there."""
    position = entry_position(number)
    entries = decode_entries(index.read(position, count * ENTRY_BYTES))
    if len(entries) < count:
        raise Damage(position + len(entries) * ENTRY_BYTES, "index corrupted: an entry is missing")
    return entries


class TailSegment:
    """The last segment of a log: the one that is written.

    ``next_id`` and ``end`` are where the readable, durable part ends. What is written beyond them
    becomes part of it with `complete`.
    """

    def __init__(
        self, files: SegmentFiles, sealed: SealedSegment, threshold: int, allocate_bytes: int
    ) -> None:
        self.files = files
        self.first_id = sealed.first_id
        self.next_id = sealed.next_id
        self.end = sealed.end
        self._allocated = files.data.size()
        self._allocate_bytes = allocate_bytes
        self._allocate_limit = threshold + 1
        self._indexed = sealed.next_id - sealed.first_id
        self._pending: array[int] = array("q")
        self._index_dirty = False

    @property
    def allocated(self) -> int:
        """Up to where the data file has space."""
        return self._allocated

    def sealed(self) -> SealedSegment:
        """Return this segment as it would be if it were complete."""
        return SealedSegment(self.first_id, self.next_id, self.end)

    def write(self, encoder: SegmentEncoder) -> None:
        """Write the encoder's records at the end; raises NoSpace with the file cut back."""
        assert encoder.start == self.end
        assert encoder.first_id == self.next_id
        size = encoder.offset - encoder.start
        if encoder.offset > self._allocated and size <= _ALLOCATE_FOR_BYTES:
            self._allocate_beyond(encoder.offset)
        try:
            self.files.data.write(encoder.start, b"".join(encoder.parts))
        except NoSpace:
            self._trim()
            raise
        self._allocated = max(self._allocated, encoder.offset)

    def complete(self, encoder: SegmentEncoder) -> None:
        """Make the encoder's records part of the log; they must be durable, or become so first."""
        self.next_id, self.end = encoder.next_id, encoder.offset
        self._pending.extend(encoder.offsets)

    def write_checkpoint(self) -> None:
        """Bring the index file up to the last checkpoint that is due; flush with `flush_index`.

        Each interval but the newest is flushed here before the next is written: a crash tears at
        most the newest, and recovery looks at that one's records again. A full disk puts it off.
        """
        due = self.next_id // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL - self.first_id
        if due > self._indexed:
            try:
                self._write_entries(due)
            except NoSpace:
                self.files.index.truncate(entry_position(self._indexed))

    def flush_data(self) -> None:
        """Make written records durable."""
        self.files.data.flush()

    def flush_index(self) -> None:
        """Make written index entries durable."""
        self.files.index.flush()
        self._index_dirty = False

    @property
    def index_dirty(self) -> bool:
        """Whether index entries were written since the last flush."""
        return self._index_dirty

    def flush_all(self) -> None:
        """Make records durable, then all index entries; raises NoSpace with the records durable."""
        self.flush_data()
        try:
            self._write_entries(self.next_id - self.first_id)
        except NoSpace:
            self.files.index.truncate(entry_position(self._indexed))
            raise
        self.flush_index()

    def seal(self) -> SealedSegment:
        """Trim the file and make everything durable: the segment is complete.

        Raises NoSpace, with the records durable.
        """
        self._trim()
        self.flush_all()
        return self.sealed()

    def cut(self, next_id: int, end: int) -> None:
        """Remove the records from ``next_id`` on, which begin at ``end``, before returning."""
        assert self.first_id <= next_id < self.next_id
        kept = next_id - self.first_id
        if kept < self._indexed:
            self._indexed = kept
            self._pending = array("q")
        del self._pending[kept - self._indexed :]
        self.files.index.truncate(entry_position(self._indexed))
        self.flush_index()
        self.next_id, self.end = next_id, end
        self._trim()
        self.flush_data()

    def offsets(self, transaction_id: int, count: int) -> array[int]:
        """Return where ``count`` records begin, and where the last of them ends; raises Damage."""
        number = transaction_id - self.first_id
        wanted = number + count + 1
        entries = array("q")
        if number < self._indexed:
            entries = read_entries(self.files.index, number, min(wanted, self._indexed) - number)
        start = max(number - self._indexed, 0)
        entries.extend(self._pending[start : max(wanted - self._indexed, 0)])
        if transaction_id + count == self.next_id:
            entries.append(self.end)
        return entries

    def _write_entries(self, until: int) -> None:
        while self._indexed < until:
            if self._index_dirty:
                self.flush_index()
            stop = min(until, _interval_end(self.first_id, self._indexed))
            count = stop - self._indexed
            raw = encode_entries(self._pending[:count])
            self.files.index.write(entry_position(self._indexed), raw)
            del self._pending[:count]
            self._indexed = stop
            self._index_dirty = True

    def _allocate_beyond(self, end: int) -> None:
        """Let the file grow in steps: a flush is cheaper if the size stays the same."""
        step = min(self._allocate_bytes, max(_SMALLEST_STEP_BYTES, end))
        target = min(end + step, self._allocate_limit)
        if target <= end:
            return
        try:
            self.files.data.allocate(end, target)
            self._allocated = target
        except NoSpace:
            self._trim()
            self._allocate_bytes = 0

    def _trim(self) -> None:
        if self.files.data.size() > self.end:
            self.files.data.truncate(self.end)
        self._allocated = self.end


def apply_plan(files: SegmentFiles, plan: SegmentPlan, last: bool) -> SealedSegment:
    """Make a segment's files what recovery found them to be, and durable.

    What was looked at in the ``last`` segment is written again: after a failed flush the kernel may
    hold in memory, as clean, what never reached the disk, and a flush alone would not tell.
    """
    if last:
        _rewrite(files.data, plan.scan_offset, plan.end)
    if last or files.data.size() != plan.end:
        files.data.truncate(plan.end)
        files.data.flush()
    position = entry_position(plan.scanned_from - plan.first_id)
    raw = encode_entries(plan.offsets)
    if last or files.index.read(position, len(raw) + ENTRY_BYTES) != raw:
        _rewrite_entries(files.index, plan)
    return SealedSegment(plan.first_id, plan.next_id, plan.end)


def _rewrite(file: DiskFile, start: int, end: int) -> None:
    for position in range(start, end, _SMALLEST_STEP_BYTES):
        file.write(position, file.read(position, min(_SMALLEST_STEP_BYTES, end - position)))


def _rewrite_entries(index: DiskFile, plan: SegmentPlan) -> None:
    """Replace the entries of the records looked at, an interval at a time (`write_checkpoint`)."""
    first = plan.scanned_from - plan.first_id
    stop = first + len(plan.offsets)
    index.truncate(entry_position(first))
    index.flush()
    while first < stop:
        until = min(stop, _interval_end(plan.first_id, first))
        start = first - (plan.scanned_from - plan.first_id)
        index.write(
            entry_position(first), encode_entries(plan.offsets[start : start + until - first])
        )
        index.flush()
        first = until


def _interval_end(first_id: int, number: int) -> int:
    """Return the number of the first entry beyond the checkpoint interval of entry ``number``."""
    interval = (first_id + number) // CHECKPOINT_INTERVAL
    return (interval + 1) * CHECKPOINT_INTERVAL - first_id
