"""Turn the directory of a stopped storage with the engine ``wal`` into one of the engine ``files``.

The directory is opened, with a replay of its write-ahead log, and closed, as a start and a clean
stop of the storage do. The directory is then *plain*: its segment files are complete without the
log. The files of the log are removed afterwards. ``waltz disk flatten`` does this. Touches files
and the log of the program.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from waltz_storage.core.control.control_file import ControlFile, open_control
from waltz_storage.core.control.control_format import CONTROL_FILE, HEADER_BYTES, ControlHeader
from waltz_storage.core.disk import Disk
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.log_directory import LOG_PAIR_FILE, lock_log_directory
from waltz_storage.core.wal.region_files import CATALOGUE_FILE
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.core.wal.wal_start import check_log_is_empty, remove_log_files
from waltz_storage.inspect.completeness import cluster_key
from waltz_storage.inspect.control_reading import read_control
from waltz_storage.shell.posix_disk import PosixDisk
from waltz_storage.shell.wal_engine import WalEngine, WalOptions

_WAL_BYTES = 16 * BLOCK_BYTES
"""The size of the log, if `_start_and_stop` must create one.

It must do so only in one case: a storage was still running here when `flatten_directories` read the
key, and has stopped cleanly since. Its segment files then need no log.
"""


@dataclass(frozen=True, slots=True)
class RefusedPartition:
    """A partition that a start of the storage does not serve, and the reason."""

    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class FlattenResult:
    """What `flatten` has done.

    ``transactions`` is how many transactions of the log were replayed into the segment files.
    ``interrupted`` says whether the log ended with a transaction that a crash had interrupted. That
    transaction was dropped: its appends were never answered. A start would not serve the
    ``refused`` partitions either, and would leave their files as they are now.
    """

    transactions: int
    interrupted: bool
    refused: tuple[RefusedPartition, ...]


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories of a storage.

    ``meta`` is the directory of the control file, ``log`` that of the write-ahead log. Each is None
    if it is ``data``.
    """

    data: Disk
    meta: Disk | None = None
    log: Disk | None = None


def flatten(data: Path, meta: Path | None = None, log: Path | None = None) -> FlattenResult:
    """Turn a storage directory into one of the engine ``files`` (see `Directories`).

    Raises DirectoryRefused in these cases:

    * A storage uses one of the directories, or they do not belong together.
    * The control file is missing or cut off, or the files are of different moments.
    * The log is missing or damaged, and the segments need it, or may need it because no file shows
      the key of the cluster (see `_check_nothing_lost`).

    Raises CannotInspect, NoSpace, DiskFailed, OSError. After an error, or a crash, the call may be
    repeated.
    """
    directories = Directories(
        PosixDisk(data),
        PosixDisk(meta) if meta is not None else None,
        PosixDisk(log) if log is not None else None,
    )
    _check_log_is_named(directories)
    header = _read_header(directories)
    key = cluster_key(data, log)
    if key is None:
        _check_nothing_lost(directories.data, data, meta)
        key = header.key
    return flatten_directories(directories, key, header.num_partitions)


def flatten_directories(
    directories: Directories,
    key: uuid.UUID,
    num_partitions: int,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> FlattenResult:
    """Do what `flatten` does, for the cluster ``key`` with ``num_partitions``."""
    _check_log_is_named(directories)
    data, log = directories.data, directories.log
    result = FlattenResult(0, interrupted=False, refused=())
    # While the segments need the log, the key in the control file is *inverted*: all its bits are.
    # With the plain key there is nothing to replay.
    if _read_header(directories).key != key:
        result = _start_and_stop(directories, key, num_partitions, now_ms)
    # Since the key was read, a storage with the engine `wal` may have started here. Then
    # `open_control` refuses the directory: it is locked, or it needs its log again.
    control = open_control(data, key, num_partitions, now_ms(), directories.meta)
    with closing(control):
        _remove_log(data, log, control)
    return result


def _check_log_is_named(directories: Directories) -> None:
    """Raise DirectoryRefused if the log is in a directory of its own that was not named."""
    if directories.log is None and directories.data.exists(LOG_PAIR_FILE):
        raise DirectoryRefused(
            "the write-ahead log is in a directory of its own: name the directory of the setting "
            "storage.wal.directory with --wal"
        )


def _check_nothing_lost(disk: Disk, data: Path, meta: Path | None) -> None:
    """Raise DirectoryRefused if the log is lost or damaged.

    Call this if neither the log nor a segment shows the key of the cluster. Then nothing shows
    whether the key in the control file is that key, or the inverted key, which says that the
    segments need the log. The log is lost in two cases:

    * A partition is assigned. The headers of its files have the key, but no file on the disk shows
      it. So the headers are in a log that is lost. A damaged entry (a text) may be that of an
      assigned partition.
    * There is a catalogue, which names the files that the log covers (`core.wal.catalogue`). A
      crash leaves no catalogue without its log (see `remove_log_files`).

    ``disk`` is the directory ``data``. Raises CannotInspect, OSError.
    """
    entries = read_control(data, meta).entries.values()
    is_assigned = any(isinstance(entry, str) or entry.info.assigned for entry in entries)
    if is_assigned or disk.exists(CATALOGUE_FILE):
        raise DirectoryRefused(
            "neither the write-ahead log nor a segment shows the key of the cluster: the log is "
            "missing or damaged. Mount the volume of the log; if the log is lost, empty the "
            "storage directory, and recover its partitions from other replicas: waltz storage "
            "recover"
        )


def _read_header(directories: Directories) -> ControlHeader:
    """Return the header of the control file; raises DirectoryRefused, OSError."""
    home = directories.data if directories.meta is None else directories.meta
    if not home.exists(CONTROL_FILE):
        raise DirectoryRefused(
            f"the control file {CONTROL_FILE} is missing: name the directory of the setting "
            "storage.directory, and that of storage.metaDirectory if it is set"
        )
    with closing(home.open(CONTROL_FILE)) as file:
        raw = file.read(0, HEADER_BYTES)
    if len(raw) < HEADER_BYTES:
        raise DirectoryRefused(f"the control file {CONTROL_FILE} is cut off")
    return ControlHeader.decode(raw)


def _start_and_stop(
    directories: Directories, key: uuid.UUID, num_partitions: int, now_ms: Callable[[], int]
) -> FlattenResult:
    """Replay the log into the segment files, and close them cleanly."""
    wal = WalEngine(WalOptions(_WAL_BYTES, time.monotonic, directory=directories.log))
    directory = StorageDirectory(
        directories.data, key, num_partitions, LogOptions(now_ms), directories.meta, wal
    )
    refused = tuple(
        RefusedPartition(partition, str(reason))
        for partition, reason in sorted(directory.refused.items())
    )
    replayed = wal.replayed
    directory.close()
    return FlattenResult(replayed.transactions, replayed.torn, refused)


def _remove_log(data: Disk, log: Disk | None, control: ControlFile) -> None:
    """Remove the files of the log of a plain directory, whose ``control`` file is locked."""
    assert not control.is_logged, "the segment files need nothing of the log"
    if log is None:
        check_log_is_empty(data)
        remove_log_files(data, data)
        return
    with closing(lock_log_directory(data, log, logged=False)):
        check_log_is_empty(log)
        remove_log_files(data, log)
