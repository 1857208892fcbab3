"""Pure. The control file of a storage: its cluster, and every partition's session, marks and flags.

Files are used only through the `Disk` that the caller passes. The control file is in the directory
of the partitions, or in a separate directory (see `directory_pair`). `control_format` defines its
bytes: the entry of a partition has two *structs*, and an update overwrites the older one. Every
update is durable before the call returns. Otherwise a loss of power could take back a replica's
session. With an older session than ZooKeeper names for it, the replica does not vote, and its log
is cut to the older low-water mark on its disk. If that happened to most replicas, committed records
would be lost (planted bug "control file not flushed").

Beside the control file is a file of *flushed marks*: up to which record each log was flushed (see
`flushed_marks`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from waltz_storage.core.control.control_format import (
    CONTROL_FILE,
    ENTRY_BYTES,
    HEADER_BYTES,
    ControlEntry,
    ControlHeader,
    EntryCorrupted,
    PartitionInfo,
    decode_entry,
    entry_offset,
    fresh_entry,
    inverted,
    is_key_or_inverse,
    reset_steps,
    struct_offset,
)
from waltz_storage.core.control.directory_pair import (
    IN_USE,
    Pair,
    check_alone,
    check_pair,
    lock_pair,
)
from waltz_storage.core.control.flushed_marks import FlushedMarks, open_marks
from waltz_storage.core.disk import Disk, DiskFile, changing
from waltz_storage.core.errors import DirectoryRefused, PartitionDamaged

_NEW_FILE = f"{CONTROL_FILE}.new"


class ControlFile:
    """An open, locked control file.

    Any thread may call its methods, but only one thread at a time for the same partition.
    """

    def __init__(
        self,
        file: DiskFile,
        header: ControlHeader,
        key: uuid.UUID,
        entries: list[ControlEntry | None],
        damage: dict[int, str],
        flushed_marks: FlushedMarks,
        pair: Pair | None = None,
    ) -> None:
        """Take the open file, its content, and the locked pair files if there are any.

        ``header`` is the header on the disk. Its key is inverted while the segment files need the
        write-ahead log; ``key`` is the key of the cluster itself. ``entries`` has None for each
        partition whose entry is damaged, and ``damage`` has the reasons for these partitions.
        """
        self.flushed_marks = flushed_marks
        self._file = file
        self._header = header
        self._key = key
        self._pair = pair
        self._entries = entries
        self._damage = damage

    @property
    def is_logged(self) -> bool:
        """Whether the segment files need the write-ahead log (see `mark_logged`)."""
        return self._header.key != self._key

    def mark_logged(self) -> None:
        """Store the inverted key durably: the segment files now need the write-ahead log.

        Waltz 0.13.2, and a storage without the log, find another cluster's key and refuse the
        directory. Raises NoSpace, DiskFailed.
        """
        self._write_key(inverted(self._key))

    def mark_plain(self) -> None:
        """Store the key durably: the segment files are complete. Raises NoSpace, DiskFailed."""
        self._write_key(self._key)

    def _write_key(self, key: uuid.UUID) -> None:
        """Write the header with ``key``, durably."""
        self._header = replace(self._header, key=key)
        self._file.write_durably(0, self._header.encode())

    @property
    def num_partitions(self) -> int:
        """How many partitions the cluster has."""
        return len(self._entries)

    @property
    def damaged(self) -> Mapping[int, PartitionDamaged]:
        """The partitions whose entries are damaged at this moment, each with its error.

        Thread-safe: another thread may reset an entry at the same time.
        """
        return {
            partition: _damage_error(partition, why)
            for partition, why in self._damage.copy().items()
        }

    def info(self, partition: int) -> PartitionInfo:
        """Return a partition's session, marks and flags; raises PartitionDamaged."""
        return self._entry(partition).info

    def sequence(self, partition: int) -> int:
        """Return the number of a partition's last update; raises PartitionDamaged."""
        return self._entry(partition).sequence

    def checksum(self, partition: int) -> int:
        """Return the checksum of a partition's current struct; raises PartitionDamaged."""
        return self._entry(partition).checksum

    def update(self, partition: int, info: PartitionInfo) -> None:
        """Store ``info`` as the partition's info, durably.

        Raises PartitionDamaged, NoSpace, DiskFailed.
        """
        before = self._entry(partition)
        assert info.session_id >= before.info.session_id, "session ids never go down"
        assert info.low_water_mark >= before.info.low_water_mark, "marks never go down"
        assert info.local_low_water_mark <= info.low_water_mark, (
            "a local mark is not above the mark"
        )
        entry = before.updated(info)
        # A flushed mark counts only together with the struct whose checksum it has. `before_update`
        # adds a mark for the new struct and keeps the one for the old struct. So after a crash in
        # between, the struct that is on the disk has a mark that counts, whichever it is.
        self.flushed_marks.before_update(partition, entry.checksum)
        self._write(partition, entry)
        self._entries[partition] = entry
        self.flushed_marks.after_update(partition, entry.checksum)

    def reset(self, partition: int) -> None:
        """Reset a partition's session, marks and flags durably; this also repairs its entry.

        The flushed mark is removed last. Otherwise a crash could leave the old entry without its
        mark, and a start might not notice that the log has lost records. A mark that is left beside
        a reset entry is ignored: the partition is not assigned. Raises NoSpace, DiskFailed.
        """
        structs = reset_steps(self._entries[partition])
        for entry in structs:
            self._write(partition, entry)
        self._entries[partition] = structs[-1]
        self._damage.pop(partition, None)
        self.flushed_marks.clear(partition)

    def advance_generation(self) -> None:
        """Refuse from now on a data volume that is restored from a copy made before this call.

        Call this after a truncation. An older copy still has the records that were removed, and the
        replica would vote with them. The flushed mark does not show that, because the copy also has
        the record of the mark (`test_data_volume_from_before_a_truncation_is_refused`). Storages
        with one directory have no generation. Raises NoSpace, DiskFailed.
        """
        if self._pair is not None:
            # The partitions are truncated on several threads. Without a lock, a thread could write
            # a generation that it has read before another thread raised it. After a crash, the two
            # files could then differ by more than a start accepts.
            with self._file.one_flush(), changing("update of the pair files"):
                self._pair.advance()

    def close(self) -> None:
        """Make the flushed marks durable, close the files, release the locks of the directories.

        Raises DiskFailed.
        """
        self.flushed_marks.flush_all()
        self.abandon()

    def abandon(self) -> None:
        """Close the files and release the locks without a flush, as after a crash."""
        self.flushed_marks.release()
        self._file.close()
        if self._pair is not None:
            self._pair.close()

    def _entry(self, partition: int) -> ControlEntry:
        entry = self._entries[partition]
        if entry is None:
            raise _damage_error(partition, self._damage[partition])
        return entry

    def _write(self, partition: int, entry: ControlEntry) -> None:
        """Write one struct durably; raises NoSpace, DiskFailed."""
        self._file.write_durably(struct_offset(partition, entry.slot), entry.encode())


def _damage_error(partition: int, why: str) -> PartitionDamaged:
    return PartitionDamaged(partition, CONTROL_FILE, entry_offset(partition), why)


def open_control(
    data: Disk,
    key: uuid.UUID,
    num_partitions: int,
    now_ms: int,
    meta: Disk | None = None,
    *,
    can_replay: bool = False,
) -> ControlFile:
    """Open the control file of this cluster; create a missing one if there are no partitions.

    ``data`` is the directory of the partitions. ``meta`` is the directory of the control file, None
    if both are the same. ``now_ms`` is the time of creation that a new file gets, in milliseconds
    since 1970. ``can_replay`` says whether the caller can replay a write-ahead log.

    Raises NoSpace, DiskFailed, and DirectoryRefused in these cases:

    * A directory is in use, cannot be read, or belongs to another cluster or another number of
      partitions.
    * The directories are not a pair (see `directory_pair`).
    * The directory needs its write-ahead log, and ``can_replay`` is false.
    * The control file is cut off or missing although there are partitions. Waltz 0.13.2 makes a new
      file then, in which no partition is assigned.
    """
    try:
        return _open(data, meta, ControlHeader(now_ms, key, num_partitions), can_replay)
    except OSError as error:
        raise DirectoryRefused(
            f"the control file {CONTROL_FILE} cannot be used: {error.strerror}; this storage does "
            "not start. Check the disk, and that this process may read and write the storage "
            "directory"
        ) from error


def partition_directories(disk: Disk) -> list[int]:
    """Return the partitions that have a directory, whether they are assigned or not."""
    return sorted(int(name) for name in disk.names("") if name.isascii() and name.isdecimal())


def _open(data: Disk, meta: Disk | None, expected: ControlHeader, can_replay: bool) -> ControlFile:
    """Do what `open_control` does; raises OSError, too.

    The directories are locked and checked before anything is written: a storage that refuses to
    start must not change a directory that belongs to another storage. The exception is a control
    file that ends inside its header, which belongs to no storage: it is removed first.
    """
    with ExitStack() as held:
        # The control file and the flushed marks are in the directory `home`.
        if meta is None:
            check_alone(data)
            home, pair = data, None
        else:
            home, pair = meta, _lock_pair(data, meta)
            held.callback(pair.close)
        file = _open_file(data, home) or _create_file(home, expected)
        held.callback(file.close)
        if not file.lock(HEADER_BYTES):
            raise DirectoryRefused(IN_USE)
        header = ControlHeader.decode(file.read(0, HEADER_BYTES))
        _check_owner(header, expected, can_replay)
        _make_durable(file)
        entries, damage = _read_entries(file, expected.num_partitions)
        if pair is not None:
            # Only a start that is not refused raises the generation.
            pair.advance()
        flushed_marks = open_marks(home, expected.num_partitions)
        # From now on, the `ControlFile` closes the file and the pair.
        held.pop_all()
        return ControlFile(file, header, expected.key, entries, damage, flushed_marks, pair)


def _make_durable(file: DiskFile) -> None:
    """Make the content durable before any entry is used. Raises NoSpace, DiskFailed.

    The last process may have ended because the flush of an update failed. Then the update may be in
    the operating system's cache, but not on the disk: the storage would report a session that a
    loss of power takes back. A flush alone does not help: after a failed flush, Linux counts the
    cached pages as flushed. So the same bytes are written again. A crash that tears this write can
    damage only a struct that was not durable before, because the durable bytes do not change. The
    other struct of the same entry is then the current one.
    """
    file.write_durably(0, file.read(0, file.size()))


def _lock_pair(data: Disk, meta: Disk) -> Pair:
    """Lock the two directories; raise DirectoryRefused if they are not a pair, or are in use.

    The directories of a refused pair are not changed.
    """
    check_pair(data, meta)
    if not meta.exists(CONTROL_FILE):
        _check_no_partitions(data, "is missing in storage.metaDirectory")
    return lock_pair(data, meta)


def _check_owner(header: ControlHeader, expected: ControlHeader, can_replay: bool) -> None:
    """Raise DirectoryRefused unless the directory is of the expected cluster and can be used.

    Without ``can_replay``, a directory that needs its write-ahead log cannot be used.
    """
    if not is_key_or_inverse(header.key, expected.key):
        raise DirectoryRefused(
            "the cluster key does not match: the storage directory belongs to the cluster "
            f"{header.key}, this node to {expected.key}; use the directory of this cluster, or an "
            "empty one"
        )
    # A key of which any byte is inverted says that the segments need the log.
    if header.key != expected.key and not can_replay:
        raise DirectoryRefused(
            "the storage directory needs its write-ahead log, which this storage does not use: a "
            "storage with storage.engine: wal used the directory last and did not stop cleanly. "
            "Start the storage with storage.engine: wal, and stop it; then change the engine. Or "
            "run waltz disk flatten"
        )
    if header.num_partitions != expected.num_partitions:
        raise DirectoryRefused(
            "the number of partitions does not match: the storage directory is made for "
            f"{header.num_partitions}, the cluster has {expected.num_partitions}; use the "
            "directory of this cluster, or an empty one"
        )


def _open_file(data: Disk, home: Disk) -> DiskFile | None:
    """Return the existing control file, None if a new one may be created.

    Remove a file that ends inside its header; raise DirectoryRefused if there are partitions.
    """
    if not home.exists(CONTROL_FILE):
        _check_no_partitions(data, "is missing")
        return None
    file = home.open(CONTROL_FILE)
    if file.size() >= HEADER_BYTES:
        return file
    file.close()
    _check_no_partitions(data, "is cut off")
    home.remove(CONTROL_FILE)
    return None


def _check_no_partitions(data: Disk, problem: str) -> None:
    """Raise DirectoryRefused if there are partitions although the control file is lost.

    ``problem`` says what is wrong with the control file, such as "is missing".
    """
    partitions = partition_directories(data)
    if partitions:
        raise DirectoryRefused(
            f"the control file {CONTROL_FILE} {problem}, but there are directories of partitions "
            f"({partitions[0]} …): which of them are assigned is unknown, and this storage does "
            "not start. Restore the file from a copy, or move the directories away to begin with "
            "an empty node"
        )


def _create_file(disk: Disk, header: ControlHeader) -> DiskFile:
    """Create the control file: write and flush it under another name, then rename it.

    So a crash leaves either no control file or a complete one.
    """
    file = disk.create(_NEW_FILE)
    try:
        # Another process may create the control file at the same time. Then it has the lock, or
        # has just renamed its file.
        if not file.lock(HEADER_BYTES) or disk.exists(CONTROL_FILE):
            raise DirectoryRefused(IN_USE)
        file.truncate(0)
        entries = b"".join(fresh_entry(partition) for partition in range(header.num_partitions))
        file.write(0, header.encode() + entries)
        file.flush()
        disk.rename(_NEW_FILE, CONTROL_FILE)
        disk.flush_directory("")
    except BaseException:
        file.close()
        raise
    return file


def _read_entries(
    file: DiskFile, num_partitions: int
) -> tuple[list[ControlEntry | None], dict[int, str]]:
    """Return the current struct of each entry, None if it is damaged, and why these are damaged."""
    entries: list[ControlEntry | None] = []
    damage: dict[int, str] = {}
    for partition in range(num_partitions):
        try:
            entries.append(decode_entry(file.read(entry_offset(partition), ENTRY_BYTES)))
        except EntryCorrupted as error:
            entries.append(None)
            damage[partition] = str(error)
    return entries, damage
