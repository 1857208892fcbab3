"""Pure. Tie a meta directory to a data directory, so that neither is used without the other.

The meta directory has the control file, the data directory has the segments. A storage with two
directories could be started with the segments of another storage, or without segments. Its control
file would then prove records that the storage does not have. So each directory has a *pair
file*, created before the control file, and a storage starts only if both pair files have the same
UUID (`test_storage_directory_pair`). Waltz 0.13.2 has one directory and no pair file. Files are
used only through the `Disk` objects that the caller passes.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass

from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.disk import Disk, DiskFile
from waltz_storage.core.errors import DirectoryRefused

DATA_PAIR_FILE = "waltz-storage.data"
META_PAIR_FILE = "waltz-storage.meta"

_PAIR_ID_BYTES = 36
"""A UUID as text."""

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
            "control file into storage.directory"
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

    def close(self) -> None:
        """Release both directories."""
        self.data.close()
        self.meta.close()


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
            if not file.lock(_PAIR_ID_BYTES):
                raise DirectoryRefused(IN_USE)
            files.append(file)
        pair = Pair(*files)
        if meta.exists(CONTROL_FILE):
            _compare(pair)
        else:
            _write(pair, str(uuid.uuid4()).encode())
            data.flush_directory("")
            meta.flush_directory("")
        opened.pop_all()
        return pair


def _compare(pair: Pair) -> None:
    data_id, meta_id = (file.read(0, _PAIR_ID_BYTES) for file in (pair.data, pair.meta))
    if data_id != meta_id or len(data_id) < _PAIR_ID_BYTES:
        raise DirectoryRefused(
            f"{_NOT_A_PAIR}: {DATA_PAIR_FILE} and {META_PAIR_FILE} differ. {_REMEDY}"
        )


def _write(pair: Pair, text: bytes) -> None:
    for file in (pair.data, pair.meta):
        file.truncate(0)
        file.write(0, text)
        file.flush()
