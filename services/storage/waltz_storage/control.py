"""The control file of a storage directory: whose it is, and every partition's info. Touches disk.

The codec and the rules are in `control_format`. Every update is durable before it returns.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping

from waltz_storage.control_format import (
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
    reset_steps,
    struct_offset,
)
from waltz_storage.disk import Disk, DiskFile
from waltz_storage.errors import DirectoryRefused, PartitionDamaged

_NEW_FILE = f"{CONTROL_FILE}.new"
_IN_USE = "failed to acquire the lock: another process uses this storage directory"


class ControlFile:
    """An open, locked control file. Its methods may be called from any thread."""

    def __init__(
        self, file: DiskFile, entries: list[ControlEntry | None], damage: dict[int, str]
    ) -> None:
        self._file = file
        self._entries = entries
        self._damage = damage
        self._lock = threading.Lock()

    @property
    def num_partitions(self) -> int:
        """How many partitions the cluster has."""
        return len(self._entries)

    @property
    def damaged(self) -> Mapping[int, PartitionDamaged]:
        """Partitions whose entries cannot be trusted."""
        return {partition: self._damaged(partition) for partition in self._damage}

    def info(self, partition: int) -> PartitionInfo:
        """Return a partition's info; raises PartitionDamaged."""
        return self._entry(partition).info

    def sequence(self, partition: int) -> int:
        """Return the number of a partition's last update; raises PartitionDamaged."""
        return self._entry(partition).sequence

    def update(self, partition: int, info: PartitionInfo) -> None:
        """Make ``info`` the partition's info; raises PartitionDamaged, DiskFailed."""
        with self._lock:
            entry = self._entry(partition).updated(info)
            self._write(partition, entry)
            self._entries[partition] = entry

    def reset(self, partition: int) -> None:
        """Forget a partition's session, marks and flags, and whatever was wrong with its entry."""
        with self._lock:
            for step in reset_steps(self._entries[partition]):
                self._write(partition, step)
            self._entries[partition] = step
            self._damage.pop(partition, None)

    def close(self) -> None:
        """Release the directory."""
        self._file.close()

    def _entry(self, partition: int) -> ControlEntry:
        entry = self._entries[partition]
        if entry is None:
            raise self._damaged(partition)
        return entry

    def _damaged(self, partition: int) -> PartitionDamaged:
        offset = entry_offset(partition)
        return PartitionDamaged(partition, CONTROL_FILE, offset, self._damage[partition])

    def _write(self, partition: int, entry: ControlEntry) -> None:
        self._file.write(struct_offset(partition, entry.slot), entry.encode())
        self._file.flush()


def open_control(disk: Disk, key: uuid.UUID, num_partitions: int, now_ms: int) -> ControlFile:
    """Open the control file of this cluster, or make one in an empty directory.

    Raises DirectoryRefused: in use, another cluster's, cut off while there are partitions (Waltz
    0.13.2 would forget all assignments then), or out of reach. Raises DiskFailed.
    """
    try:
        return _open(disk, key, num_partitions, now_ms)
    except OSError as error:
        raise DirectoryRefused(
            f"the control file {CONTROL_FILE} cannot be used: {error.strerror}; check the disk, "
            "and that this process may read and write the storage directory"
        ) from error


def partition_directories(disk: Disk) -> list[int]:
    """Return the partitions that have a directory, assigned or not."""
    return sorted(int(name) for name in disk.names("") if name.isascii() and name.isdecimal())


def _open(disk: Disk, key: uuid.UUID, num_partitions: int, now_ms: int) -> ControlFile:
    file = _open_file(disk)
    if file is None:
        file = _create(disk, ControlHeader(now_ms, key, num_partitions))
    try:
        if not file.lock(HEADER_BYTES):
            raise DirectoryRefused(_IN_USE)
        header = ControlHeader.decode(file.read(0, HEADER_BYTES))
        if header.key != key:
            raise DirectoryRefused(
                "the cluster key does not match: the storage directory belongs to the cluster "
                f"{header.key}, this is {key}; use the directory of this cluster, or an empty one"
            )
        if header.num_partitions != num_partitions:
            raise DirectoryRefused(
                "the number of partitions does not match: the storage directory is made for "
                f"{header.num_partitions}, the cluster has {num_partitions}; use the directory of "
                "this cluster, or an empty one"
            )
        return _read(file, num_partitions)
    except BaseException:
        file.close()
        raise


def _open_file(disk: Disk) -> DiskFile | None:
    """Return the existing control file, None if a new one may be made."""
    if disk.exists(CONTROL_FILE):
        file = disk.open(CONTROL_FILE)
        if file.size() >= HEADER_BYTES:
            return file
        file.close()
        problem = f"the control file {CONTROL_FILE} is cut off"
    else:
        problem = f"the control file {CONTROL_FILE} is missing"
    partitions = partition_directories(disk)
    if not partitions:
        if disk.exists(CONTROL_FILE):
            disk.remove(CONTROL_FILE)
        return None
    raise DirectoryRefused(
        f"{problem}, but there are directories of partitions ({partitions[0]} …): which of them "
        "are assigned is unknown. Restore the file from a copy, or move the directories away to "
        "begin with an empty node"
    )


def _create(disk: Disk, header: ControlHeader) -> DiskFile:
    """Make the file complete and durable under another name first: it is there wholly or not."""
    file = disk.create(_NEW_FILE)
    try:
        # Another process may be at it: it holds the lock, or has just given the file its name.
        if not file.lock(HEADER_BYTES) or disk.exists(CONTROL_FILE):
            raise DirectoryRefused(_IN_USE)
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


def _read(file: DiskFile, num_partitions: int) -> ControlFile:
    entries: list[ControlEntry | None] = []
    damage: dict[int, str] = {}
    for partition in range(num_partitions):
        try:
            entries.append(decode_entry(file.read(entry_offset(partition), ENTRY_BYTES)))
        except EntryCorrupted as error:
            entries.append(None)
            damage[partition] = str(error)
    return ControlFile(file, entries, damage)
