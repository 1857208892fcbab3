"""A `Disk` whose segment files are changed by way of the write-ahead log. Touches the disk.

The rest of the storage uses this disk as it uses `PosixDisk`. A write, a cut, a creation or a
removal of a segment file is queued, and a flush commits everything that was queued before it. A
crash may lose the latest changes, but no change that is older than one that stays. Without the log
a crash may leave the same state, so a partition recovers in the same way with and without the log.
The *catalogue* has a row with the name of each segment file; the row's number is its *region*.

The control file and the flushed marks are written and flushed as without the log. A flush of a
segment file returns when its transaction is durable. So a change of these two that is made after
the flush never reaches the disk before the change of the segment file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from waltz_storage.core.disk import Disk, DiskFile
from waltz_storage.core.errors import NoSpace, PartitionUnopened
from waltz_storage.core.wal.catalogue import FileName, RowState, present, removed, write_row
from waltz_storage.core.wal.logged_file_state import (
    LoggedFileState,
    QueuedChange,
    file_of,
    is_new_segment,
    path_of,
)
from waltz_storage.core.wal.operations import Address, WriteData
from waltz_storage.core.wal.wal_start import partition_directories
from waltz_storage.shell.wal_commits import OnApplied, WalCommits

_WRITE_BYTES = 1 << 20
"""Larger data become several operations, so that a transaction has space for each of them."""
_WRITE_HEAD_BYTES = 16
"""How many bytes a WriteData takes in a transaction besides its data."""


class LoggedDisk:
    """Implements `Disk`: segment files by way of ``commits``, all other files on ``disk``.

    `file_of` says which paths are segment files. A data file is created under a temporary name and
    then renamed (`is_new_segment`). Until it has its final name, its content is only in memory.
    """

    def __init__(self, disk: Disk, commits: WalCommits) -> None:
        """Take an open log whose transactions are all applied to their files. Raises OSError."""
        self.commits = commits
        self._disk = disk
        self._states: dict[str, LoggedFileState] = {}
        """The state of each segment file, by its path, also of one that is being created."""
        for region, row in commits.logged.files.catalogue.rows.items():
            path = path_of(row.file)
            if row.state is RowState.PRESENT and self._may_exist(path):
                self._states[path] = LoggedFileState(region, row.file, loaded=False, inherited=True)
        self._incomplete = {
            directory
            for directory, names in partition_directories(disk)
            if names is None or self._without_row(directory, names)
        }
        """Directories with segment files that have no row in the catalogue, and unreadable ones."""

    def exists(self, path: str) -> bool:
        """See `Disk`."""
        if file_of(path) is not None:
            return path in self._states
        # A data file that is being created has a state, too, under its temporary name.
        return path in self._states or self._disk.exists(path)

    def names(self, directory: str) -> list[str]:
        """See `Disk`.

        Raises PartitionUnopened if the directory has segment files of which the catalogue has no
        row. These files cannot be changed by way of the log, and must not be taken for missing: a
        new file with the same name would overwrite the records.
        """
        prefix = f"{directory}/" if directory else ""
        on_disk = self._disk.names(directory)
        if directory in self._incomplete and self._without_row(directory, on_disk):
            raise PartitionUnopened(
                int(directory),
                directory,
                "the write-ahead log does not know all its files: this directory, or a row of the "
                "catalogue, could not be read when this storage started",
                "make sure that the directory can be read and that its volume has space",
                "stop this storage node cleanly and start it again",
            )
        names = {name for name in on_disk if file_of(prefix + name) is None}
        if directory:
            with self.commits.locked():
                paths = list(self._states)
            names.update(path.removeprefix(prefix) for path in paths if path.startswith(prefix))
        return list(names)

    def make_directory(self, path: str) -> None:
        """See `Disk`."""
        self._disk.make_directory(path)

    def open(self, path: str) -> DiskFile:
        """See `Disk`."""
        state = self._states.get(path)
        if state is not None:
            if not state.loaded:
                # The lengths are read here and not in `__init__`: a file that cannot be opened must
                # refuse only its own partition.
                file = self._disk.open(path)
                state.size = state.size_on_disk = file.size()
                state.loaded = True
                file.close()
            return LoggedFile(self.commits, state, self._disk)
        if file_of(path) is not None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._disk.open(path)

    def create(self, path: str) -> DiskFile:
        """See `Disk`."""
        file = file_of(path)
        if file is None and not is_new_segment(path):
            return self._disk.create(path)
        with self.commits.locked():
            state = self._states.get(path)
            if state is None:
                state = LoggedFileState()
                if file is not None:
                    self._queue_creation(file, state)
                self._states[path] = state
            return LoggedFile(self.commits, state, self._disk)

    def rename(self, old: str, new: str) -> None:
        """See `Disk`.

        Only a new data file is renamed, which has its header as content and no record. It gets its
        final name and its content by one transaction.

        Before the transaction is queued, a file of the same size with the old name takes the space
        for the content. Otherwise the disk could be full when the durable transaction is applied.
        Such a transaction could never leave the log, and the process would end.

        When the transaction is applied, the file with the old name is removed, and the content is
        written to the new file, while no other change can take the space. A crash before that may
        leave the file with the old name; `start_log` removes it before the replay.
        """
        file = file_of(new)
        if file is None:
            self._disk.rename(old, new)
            return
        with self.commits.locked():
            state = self._states[old]
            size = len(state.content)
            self._take_space(old, size)

            def release_space() -> None:
                assert state.region is not None, "the file has its final name"
                self._disk.remove(old)
                self.commits.logged.files.write_pending(state.region, 0, size)

            try:
                self._queue_creation(file, state, release_space)
            except NoSpace:
                self._disk.remove(old)
                raise
            self._states[new] = self._states.pop(old)

    def remove(self, path: str) -> None:
        """See `Disk`."""
        with self.commits.locked():
            state = self._states.pop(path, None)
            if state is not None and state.region is not None and state.file is not None:
                self.commits.queue([write_row(state.region, removed(state.file))], state)
        # A file that has a state and no region is only in memory: nothing is removed on the disk.
        if state is None:
            self._disk.remove(path)

    def flush_directory(self, path: str) -> None:
        """See `Disk`.

        The names in the directories of partitions are durable with the transactions that create,
        rename or remove the files. The directories themselves are not in the log.
        """
        self.commits.commit_all()
        if not path:
            self._disk.flush_directory(path)

    def _may_exist(self, path: str) -> bool:
        """Return whether a file exists; True if the disk cannot say.

        In the latter case the opening of the file fails later, which refuses only its partition.
        """
        try:
            return self._disk.exists(path)
        except OSError:
            return True

    def _without_row(self, directory: str, names: Iterable[str]) -> bool:
        """Return whether one of the ``names`` on the disk is a segment file without a state."""
        paths = [f"{directory}/{name}" for name in names]
        return any(file_of(path) is not None and path not in self._states for path in paths)

    def _take_space(self, path: str, size: int) -> None:
        """Create a file of ``size`` zeros; raises NoSpace after it has removed the file."""
        file = self._disk.create(path)
        try:
            file.truncate(0)
            file.allocate(0, size)
        except NoSpace:
            self._disk.remove(path)
            raise
        finally:
            file.close()

    def _queue_creation(
        self, file: FileName, state: LoggedFileState, on_applied: OnApplied | None = None
    ) -> None:
        """Queue the creation of a file with the content of ``state``; the caller holds the lock.

        Raises NoSpace before anything is queued, if the catalogue has no space for the row.
        """
        commits = self.commits
        files = commits.logged.files
        region = files.catalogue.new_region()
        try:
            files.reserve_row(region)
        except NoSpace:
            files.catalogue.return_region(region)
            raise
        content = bytes(state.content)
        operations = [write_row(region, present(file)), WriteData(Address(region, 0), content)]
        state.region, state.file = region, file
        state.creation = commits.next_number
        state.content.clear()
        state.changes.append(QueuedChange(commits.next_number, 0, content))
        commits.queue(operations, state, on_applied)


class LoggedFile:
    """Implements `DiskFile` for a segment file.

    Only one thread at a time uses the files of a partition. The thread that commits for all
    partitions applies changes to them meanwhile.
    """

    def __init__(self, commits: WalCommits, state: LoggedFileState, disk: Disk) -> None:
        self._commits = commits
        self._state = state
        self._disk = disk
        self._handle: DiskFile | None = None
        """The file on the disk for reads without the lock; None before the first such read."""
        self._closed = False

    def size(self) -> int:
        """See `DiskFile`."""
        return self._state.size

    def read(self, offset: int, length: int) -> bytes:
        """See `DiskFile`.

        The lock is not held while the file on the disk is read: a slow read would delay the commits
        of all partitions. That is correct because nothing changes these bytes meanwhile. No queued
        change overlaps them, so the changes that other threads apply meanwhile are of other bytes.
        A new change of the file could only come from its partition, which waits for this read. The
        read uses a handle of its own, because a checkpoint may close the handles of `RegionFiles`.
        """
        assert not self._closed, "a closed file is not used"
        state = self._state
        with self._commits.locked():
            length = min(length, state.size - offset)
            if length <= 0:
                return b""
            if state.region is None or state.is_changed(offset, length):
                return state.read(offset, length, self._read_file)
            # `core.wal.region_files` buffers changes that were applied: the file may lack them.
            self._commits.logged.files.write_pending(state.region, offset, length)
        return self._read_handle().read(offset, length).ljust(length, b"\0")

    def write(self, offset: int, data: bytes) -> None:
        """See `DiskFile`."""
        assert not self._closed, "a closed file is not used"
        state, commits = self._state, self._commits
        step = min(_WRITE_BYTES, commits.logged.writer.most_bytes - _WRITE_HEAD_BYTES)
        self._commit_before_growth(offset + len(data))
        with commits.locked():
            if state.region is None:
                state.content[offset : offset + len(data)] = data
                state.size = len(state.content)
                return
            self._reserve_space(offset + len(data))
            for begin in range(0, len(data), step):
                part = bytes(data[begin : begin + step])
                state.queue(QueuedChange(commits.next_number, offset + begin, part))
                commits.queue([WriteData(Address(state.region, offset + begin), part)], state)

    def write_durably(self, offset: int, data: bytes) -> None:
        """See `DiskFile`."""
        self.write(offset, data)
        self.flush()

    def one_flush(self) -> AbstractContextManager[object]:
        """Return a context without effect: only one thread at a time uses a segment file."""
        return nullcontext()

    def allocate(self, start: int, end: int) -> None:
        """Make the file longer, at once and not by way of the log.

        The log has no operation for these zeros: after a crash they are bytes after the last
        record, which no reader counts.
        """
        state = self._state
        self._commit_before_growth(end)
        with self._commits.locked():
            assert state.region is not None, "space is allocated for a file with its final name"
            self._reserve_space(end)
            state.size = max(state.size, end)

    def truncate(self, size: int) -> None:
        """See `DiskFile`."""
        state, commits = self._state, self._commits
        with commits.locked():
            if state.region is None:
                del state.content[size:]
                state.size = len(state.content)
            elif size < state.size or state.size_on_disk > state.size:
                # In the second case an earlier cut is queued: the file on the disk is still longer.
                # Another cut at the same size does no harm.
                assert size <= state.size, "a truncation makes no file longer"
                state.queue(QueuedChange(commits.next_number, size, None))
                assert state.file is not None, "a file with a region has its final name"
                row = write_row(state.region, present(state.file, size))
                commits.queue([row], state)

    def flush(self) -> None:
        """See `DiskFile`.

        The first flush of a file that an earlier process wrote (``inherited``) flushes the file,
        too. Large data are written directly to the file, before their transaction. If the
        earlier process ended between such a write and the flush of its transaction, this process
        reads bytes that are not durable. A repair that writes the same bytes finds nothing to
        change, and without this flush it would report the records as repaired although they are not
        durable.
        """
        assert not self._closed, "a closed file is not used"
        state = self._state
        self._commits.commit(state.last_change)
        if state.inherited:
            self._read_handle().flush()
            state.inherited = False

    def lock(self, length: int) -> bool:
        """Raise AssertionError: the lock of the control file covers the segment files."""
        raise AssertionError("a storage locks its control file, not a segment")

    def close(self) -> None:
        """See `DiskFile`."""
        assert not self._closed, "a file is closed once"
        self._closed = True
        if self._handle is not None:
            self._handle.close()

    def _read_handle(self) -> DiskFile:
        """Return the handle for reads; raises OSError."""
        if self._handle is None:
            file = self._state.file
            assert file is not None, "a file with a region has its final name"
            self._handle = self._disk.open(path_of(file))
        return self._handle

    def _read_file(self, offset: int, length: int) -> bytes:
        """Return bytes of the file on the disk, zeros after its end; the caller holds the lock."""
        region = self._state.region
        assert region is not None, "a file without its final name is not on the disk"
        return self._commits.logged.files.read(Address(region, offset), length)

    def _commit_before_growth(self, end: int) -> None:
        """Commit a queued creation or cut of the file, if it must become longer to reach ``end``.

        `_reserve_space` can make a file longer only if it exists and no queued change will cut it.
        The caller does not hold the lock, because a commit may wait.
        """
        state = self._state
        if state.region is not None and end > state.size_on_disk and not state.may_be_extended:
            self._commits.commit(state.last_change)

    def _reserve_space(self, end: int) -> None:
        """Make the file on the disk long enough; raises NoSpace before anything is queued.

        A durable transaction whose file has no space could never leave the log.
        """
        state = self._state
        if end <= state.size_on_disk:
            return
        assert state.region is not None, "space is reserved in a file with its final name"
        assert state.may_be_extended, "only one thread at a time changes a file"
        files = self._commits.logged.files
        try:
            files.extend(state.region, state.size_on_disk, end)
        except NoSpace:
            files.shorten(state.region, state.size_on_disk)
            raise
        state.size_on_disk = end
