"""Pure. Tie a meta directory to a data directory, so that neither is used without the other.

The meta directory has the control file, the data directory has the segments. A storage with two
directories could be started with the segments of another storage, or without segments. Its control
file would then name marks for records that the storage does not have. So each directory has a *pair
file*, created before the control file, and a storage starts only if both pair files have the same
UUID (`test_storage_directory_pair`). Waltz 0.13.2 has one directory and no pair file.

Each start, and each truncation of a log (`ControlFile.advance_generation`), also raises the
*generation* in both pair files, first in the data directory. If one volume was restored from a copy
of an earlier generation, the generations differ, and the storage refuses to start.

One difference is accepted: the data directory may be one generation ahead of the meta directory,
because a crash between the two writes leaves that. A meta volume that was restored from a copy of
the previous generation looks the same. That is safe, although the sessions and marks in its control
file may be older than the log:

* Session: a replica with an older session than the one that ZooKeeper names for it does not vote.
  Its log is cut to its low-water mark, and it copies the rest (`replica_roles` of the server,
  `test_meta_volume_of_previous_generation_is_accepted_but_its_replica_does_not_vote`).
* Fence: it is lower, too, so the replica would accept requests of an older session. But no server
  sends it any. When the storage stopped, each server lost its connection and dropped the replica
  from its session. Before a server admits the replica again, the server writes its own session to
  ZooKeeper. That fails if a newer session has begun (`StoreSession` of the server).
* Low-water marks: an older one claims fewer records, which is safe.
* Flushed mark: an older one claims fewer records, unless a truncation has removed its record. Then
  the storage refuses the partition as damaged.

Files are used only through the `Disk` objects that the caller passes.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from waltz.protocol.checksums import crc32
from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.control.flushed_marks_format import FLUSHED_FILE
from waltz_storage.core.disk import Disk, DiskFile
from waltz_storage.core.errors import DirectoryRefused

DATA_PAIR_FILE = "waltz-storage.data"
META_PAIR_FILE = "waltz-storage.meta"

_PAIR_ID_BYTES = 36
"""A UUID as text."""
_SLOT = struct.Struct(">qI")
"""A generation, and a checksum of it and the UUID."""
_SLOT_OFFSETS = (64, 80)
"""Even generations are in the first slot, odd ones in the second, so a torn write of a generation
leaves the one before it."""
_FILE_BYTES = 96

IN_USE = "failed to acquire the lock: another process uses this storage directory"

_NOT_A_PAIR = "storage.directory is not the one that belongs to this storage.metaDirectory"
_REMEDY = (
    "Mount both volumes of the same storage; if one is lost, empty both directories to begin with "
    "an empty storage, and recover its partitions from other replicas"
)


def check_alone(data: Disk) -> None:
    """Check that ``data`` may be the only directory of a storage; raises DirectoryRefused."""
    if data.exists(META_PAIR_FILE):
        raise DirectoryRefused(
            f"storage.directory is the meta directory of a storage (it has {META_PAIR_FILE}): set "
            "storage.metaDirectory to it, and storage.directory to the directory of its partitions"
        )
    if data.exists(DATA_PAIR_FILE) and not data.exists(CONTROL_FILE):
        raise DirectoryRefused(
            f"the control file {CONTROL_FILE} of this storage.directory is in a directory of its "
            "own: set storage.metaDirectory to that, or, while the storage is stopped, move the "
            f"control file and {FLUSHED_FILE} into storage.directory"
        )


def check_pair(data: Disk, meta: Disk) -> None:
    """Raise DirectoryRefused if the files that exist show that the directories are not a pair.

    `lock_pair` compares the content of the pair files.
    """
    if data.exists(META_PAIR_FILE) or meta.exists(DATA_PAIR_FILE):
        raise DirectoryRefused(
            "storage.directory and storage.metaDirectory are exchanged: storage.directory is the "
            f"one that has {DATA_PAIR_FILE}, or the directories of partitions"
        )
    if data.exists(CONTROL_FILE):
        raise DirectoryRefused(
            f"the control file {CONTROL_FILE} is in storage.directory although "
            "storage.metaDirectory is set: this storage keeps everything in one directory. Remove "
            "the setting; or, if the file was once moved from that meta directory, move it back"
        )
    if not meta.exists(CONTROL_FILE):
        return
    if not meta.exists(META_PAIR_FILE):
        raise DirectoryRefused(
            f"the control file {CONTROL_FILE} in storage.metaDirectory is of a storage that keeps "
            "everything in one directory: move it back to its partitions and remove the setting, "
            "or begin with two empty directories"
        )
    if not data.exists(DATA_PAIR_FILE):
        raise DirectoryRefused(f"{_NOT_A_PAIR}: it has no {DATA_PAIR_FILE}. {_REMEDY}")


@dataclass(frozen=True, slots=True)
class Pair:
    """The locked pair files of two directories: no other process can use either directory."""

    data: DiskFile
    meta: DiskFile

    def advance(self) -> None:
        """Raise the generation in both files, durably; raises OSError, NoSpace, DiskFailed.

        If a crash has left the data directory one generation ahead, its generation stays.
        """
        data, meta = (PairContent.decode(file.read(0, _FILE_BYTES)) for file in self)
        assert data.generation in (meta.generation, meta.generation + 1), "checked by `lock_pair`"
        offset, raw = PairContent(data.pair_id, meta.generation + 1).slot()
        for file in self:
            file.write_durably(offset, raw)

    def __iter__(self) -> Iterator[DiskFile]:
        """Iterate over both files, first that of the data directory."""
        return iter((self.data, self.meta))

    def close(self) -> None:
        """Release both directories."""
        self.data.close()
        self.meta.close()


@dataclass(frozen=True, slots=True)
class PairContent:
    """The content of a pair file: the UUID, which both files share, as text, and the generation.

    The generation is 0 until the first start is complete.
    """

    pair_id: bytes
    generation: int

    @classmethod
    def decode(cls, raw: bytes) -> PairContent:
        """Read a pair file, which may be cut off."""
        pair_id, generation = raw[:_PAIR_ID_BYTES], 0
        for offset in _SLOT_OFFSETS:
            slot = raw[offset : offset + _SLOT.size]
            if len(slot) == _SLOT.size:
                stored_generation, checksum = _SLOT.unpack(slot)
                if checksum == _checksum(pair_id, stored_generation):
                    generation = max(generation, stored_generation)
        return cls(pair_id, generation)

    def slot(self) -> tuple[int, bytes]:
        """Return the offset at which the generation is written, and the bytes to write there."""
        checksum = _checksum(self.pair_id, self.generation)
        return _SLOT_OFFSETS[self.generation % 2], _SLOT.pack(self.generation, checksum)


def pair_problem(data: PairContent, meta: PairContent) -> str | None:
    """Return why two directories are not a pair, None if they are a pair."""
    if data.pair_id != meta.pair_id or len(data.pair_id) < _PAIR_ID_BYTES:
        return f"{DATA_PAIR_FILE} and {META_PAIR_FILE} differ"
    if data.generation not in (meta.generation, meta.generation + 1):
        return (
            f"{DATA_PAIR_FILE} is of generation {data.generation}, but {META_PAIR_FILE} of "
            f"generation {meta.generation}: one of the volumes was restored from an older copy"
        )
    return None


def _checksum(pair_id: bytes, generation: int) -> int:
    """Return the checksum in the slot of a generation; it covers the UUID, too."""
    return crc32(generation.to_bytes(8, "big", signed=True), crc32(pair_id))


def lock_pair(data: Disk, meta: Disk) -> Pair:
    """Lock two directories that are a pair; make them a pair if there is no control file.

    The caller has checked that without a control file there are no partitions either. Raises
    DirectoryRefused if a directory is in use or the directories are not a pair. Raises OSError,
    NoSpace, DiskFailed.
    """
    with ExitStack() as opened:
        files = []
        for disk, name in ((data, DATA_PAIR_FILE), (meta, META_PAIR_FILE)):
            file = disk.create(name)
            opened.callback(file.close)
            # The lock is on the bytes of the id; False if another process has it.
            if not file.lock(_PAIR_ID_BYTES):
                raise DirectoryRefused(IN_USE)
            files.append(file)
        pair = Pair(*files)
        if meta.exists(CONTROL_FILE):
            _check_contents(pair)
            _make_durable(pair)
        else:
            _write_id(pair, str(uuid.uuid4()).encode())
        # This makes the names of older directories durable, too: the last process may have been
        # killed before it flushed the name of a new partition's directory.
        data.flush_directory("")
        meta.flush_directory("")
        opened.pop_all()
        return pair


def _check_contents(pair: Pair) -> None:
    """Raise DirectoryRefused if the content of the files shows that they are not a pair."""
    data, meta = (PairContent.decode(file.read(0, _FILE_BYTES)) for file in pair)
    problem = pair_problem(data, meta)
    if problem is not None:
        raise DirectoryRefused(f"{_NOT_A_PAIR}: {problem}. {_REMEDY}")


def _make_durable(pair: Pair) -> None:
    """Make the generations durable that the last process may have left in the cache.

    Otherwise a loss of power could leave the meta directory behind by two generations: the one that
    was not durable, and the one that this start writes to the data directory next. The next start
    would refuse the pair. The same bytes are written again (`control_file._make_durable` says why a
    flush is not enough). The meta directory comes first, because the data directory may be ahead of
    it, never behind.
    """
    for file in (pair.meta, pair.data):
        file.write_durably(0, file.read(0, _FILE_BYTES))


def _write_id(pair: Pair, pair_id: bytes) -> None:
    """Make two new pair files with the same id and without a generation, durably."""
    for file in pair:
        file.truncate(0)
        file.write(0, pair_id.ljust(_FILE_BYTES, b"\0"))
        file.flush()
