"""Pure. Bind a meta directory to a data directory, so that neither is used without the other.

Works on the `Disk` objects that it is given. A storage whose control file is in a separate
directory could be started with the segments of another storage, or without segments. The marks in
its control file would then count records that it does not have. So both directories contain the
same mark, created before the control file, and a storage starts only if the marks agree
(`test_storage_directory_pair`). Waltz 0.13.2 has one directory, and no mark.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass

from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.disk import Disk, DiskFile
from waltz_storage.core.errors import DirectoryRefused

DATA_MARK = "waltz-storage.data"
META_MARK = "waltz-storage.meta"

_MARK_BYTES = 36
"""A UUID as text."""

IN_USE = "failed to acquire the lock: another process uses this storage directory"

_OTHERS = "storage.directory is not the one that belongs to this storage.metaDirectory"
_MOUNT = (
    "Mount both volumes of the same storage; if one is lost, empty both directories to begin with "
    "an empty storage, and recover its partitions from other replicas"
)


def check_alone(data: Disk) -> None:
    """Check that ``data`` may be the only directory of a storage; raises DirectoryRefused."""
    if data.exists(META_MARK):
        raise DirectoryRefused(
            f"storage.directory is the meta directory of a storage (it has {META_MARK}): set "
            "storage.metaDirectory to it, and storage.directory to the directory of its partitions"
        )
    if data.exists(DATA_MARK) and not data.exists(CONTROL_FILE):
        raise DirectoryRefused(
            f"the control file {CONTROL_FILE} of this storage.directory is in a directory of its "
            "own: set storage.metaDirectory to that, or, while the storage is stopped, move the "
            "control file into storage.directory"
        )


def check_pair(data: Disk, meta: Disk) -> None:
    """Check by the files present that the two may belong together; raises DirectoryRefused."""
    if data.exists(META_MARK) or meta.exists(DATA_MARK):
        raise DirectoryRefused(
            "storage.directory and storage.metaDirectory are exchanged: storage.directory is the "
            f"one that has {DATA_MARK}, or the directories of partitions"
        )
    if data.exists(CONTROL_FILE):
        raise DirectoryRefused(
            f"the control file {CONTROL_FILE} is in storage.directory although "
            "storage.metaDirectory is set: this storage keeps everything in one directory. Remove "
            "the setting; or, if the file was once moved from that meta directory, move it back"
        )
    if not meta.exists(CONTROL_FILE):
        return
    if not meta.exists(META_MARK):
        raise DirectoryRefused(
            f"the control file {CONTROL_FILE} in storage.metaDirectory is of a storage that keeps "
            "everything in one directory: move it back to its partitions and remove the setting, "
            "or begin with two empty directories"
        )
    if not data.exists(DATA_MARK):
        raise DirectoryRefused(f"{_OTHERS}: it has no {DATA_MARK}. {_MOUNT}")


@dataclass(frozen=True, slots=True)
class Pair:
    """The locked marks of two directories: no other process can use either of them."""

    data: DiskFile
    meta: DiskFile

    def close(self) -> None:
        """Release both directories."""
        self.data.close()
        self.meta.close()


def lock_pair(data: Disk, meta: Disk) -> Pair:
    """Lock two directories that belong together, or make a pair of two that are empty.

    Raises DirectoryRefused: in use, or not a pair. Raises OSError, NoSpace, DiskFailed.
    """
    with ExitStack() as opened:
        marks = []
        for disk, name in ((data, DATA_MARK), (meta, META_MARK)):
            mark = disk.create(name)
            opened.callback(mark.close)
            if not mark.lock(_MARK_BYTES):
                raise DirectoryRefused(IN_USE)
            marks.append(mark)
        pair = Pair(*marks)
        if meta.exists(CONTROL_FILE):
            _compare(pair)
        else:
            _write(pair, str(uuid.uuid4()).encode())
            data.flush_directory("")
            meta.flush_directory("")
        opened.pop_all()
        return pair


def _compare(pair: Pair) -> None:
    data_mark, meta_mark = (mark.read(0, _MARK_BYTES) for mark in (pair.data, pair.meta))
    if data_mark != meta_mark or len(data_mark) < _MARK_BYTES:
        raise DirectoryRefused(f"{_OTHERS}: {DATA_MARK} and {META_MARK} differ. {_MOUNT}")


def _write(pair: Pair, text: bytes) -> None:
    for mark in (pair.data, pair.meta):
        mark.truncate(0)
        mark.write(0, text)
        mark.flush()
