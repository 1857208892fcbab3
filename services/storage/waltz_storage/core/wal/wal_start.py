"""Pure. Start the write-ahead log of a storage directory.

The directory is *plain* if its segment files are complete without the log: the log was never used,
or the storage was stopped cleanly. For a plain directory, `prepare_log` makes an empty log and a
new catalogue from the files that it finds. `start_log` then replays the log and opens its files, as
for a directory that is not plain. `shell.wal_engine` calls both functions.

Files are used only through two `Disk` objects that the caller passes: ``disk`` is the storage
directory, which has the segments and the catalogue, ``home`` is the directory of the log. They are
the same object if the log has no directory of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from waltz_storage.core.disk import Disk
from waltz_storage.core.errors import DirectoryRefused, NoSpace, PartitionDamaged
from waltz_storage.core.wal.catalogue import (
    Catalogue,
    CatalogueDamaged,
    CatalogueRow,
    RowState,
    present,
)
from waltz_storage.core.wal.checksums import DEFAULT
from waltz_storage.core.wal.log_directory import LOG_PAIR_FILE
from waltz_storage.core.wal.logged_file_state import file_of, is_new_segment, path_of
from waltz_storage.core.wal.logged_files import LoggedFiles
from waltz_storage.core.wal.operations import Check
from waltz_storage.core.wal.region_files import CATALOGUE_FILE, RegionFiles, create_catalogue
from waltz_storage.core.wal.ring import BLOCK_BYTES, TransactionId
from waltz_storage.core.wal.transaction_blocks import Transaction
from waltz_storage.core.wal.wal_file import WAL_FILE, BlockReader, create_wal, recover_wal_header
from waltz_storage.core.wal.wal_header import HeaderDamaged, WalHeader
from waltz_storage.core.wal.wal_replay import Progress, ReplayResult, VolumesDiffer, replay_log
from waltz_storage.core.wal.wal_scan import WalDamaged, scan_transactions

Refuse = Callable[[Mapping[int, PartitionDamaged]], None]
"""Refuses partitions whose durable records a replay found damaged, now and at later starts.

The refusals must be durable when it returns."""

MOST_OPEN_FILES = 256
"""How many unchanged files stay open after a checkpoint."""

_REMEDY = (
    "The last changes of all partitions are in the log, so this storage does not start. Empty the "
    "storage directory to begin with an empty storage, and recover its partitions from other "
    "replicas: waltz storage recover"
)


@dataclass(frozen=True, slots=True)
class LostRows:
    """Rows of the catalogue that were damaged or missing after a replay, which did not need them.

    ``damaged`` says what is wrong with each damaged row, and ``files`` has the paths of the segment
    files without a row. If ``renewed``, the catalogue was made anew and has a row of each file that
    could be listed. Otherwise the volume is full, and `LoggedDisk` refuses the partitions of
    ``files``.
    """

    damaged: tuple[str, ...]
    files: tuple[str, ...]
    renewed: bool


@dataclass(frozen=True, slots=True)
class StartedLog:
    """An open log with its files, and what the replay has done.

    ``lost_rows`` is None if the catalogue had lost no row.
    """

    logged: LoggedFiles
    result: ReplayResult
    lost_rows: LostRows | None


def prepare_log(disk: Disk, home: Disk, key: uuid.UUID, wal_bytes: int) -> None:
    """Make an empty log in ``home``, and the catalogue of the plain directory ``disk``.

    ``key`` is that of the cluster, and ``wal_bytes`` the size of the log in bytes. An existing log
    of the same cluster and size is used again. The directory stays plain. Raises DirectoryRefused
    if the existing log has transactions after its checkpoint; OSError, NoSpace, DiskFailed.
    """
    blocks = wal_bytes // BLOCK_BYTES
    position = _end_of_existing_log(home, key, blocks)
    if position is None:
        header = WalHeader.new(key, blocks, DEFAULT)
        create_wal(home, header)
        position = header.checkpoint
    create_catalogue(disk, _rows_of_segments(disk), position)


def start_log(
    disk: Disk, home: Disk, progress: Callable[[Progress], None], refuse: Refuse
) -> StartedLog:
    """Replay the log in ``home`` of the directory ``disk``, and make a damaged catalogue anew.

    ``refuse`` is called before the log forgets which partitions have damaged records. From now on,
    the returned files must be changed only through the log.

    Raises DirectoryRefused if the log is missing or damaged (see `replay_log` for the files that it
    may have changed before). Raises OSError, NoSpace, DiskFailed.
    """
    for place, name in ((home, WAL_FILE), (disk, CATALOGUE_FILE)):
        if not place.exists(name):
            raise DirectoryRefused(f"the file {name} is missing. {_REMEDY}")
    _release_space(disk)
    with ExitStack() as opened:
        # The catalogue is in the directory of the segments.
        files = RegionFiles(disk, disk)
        opened.callback(files.release)
        file = home.open(WAL_FILE)
        opened.callback(file.close)
        try:
            replayed = replay_log(
                file,
                files,
                progress,
                refuse=lambda damaged: refuse(_damaged_partitions(files, damaged)),
            )
        except (HeaderDamaged, WalDamaged, CatalogueDamaged, VolumesDiffer) as error:
            raise DirectoryRefused(
                f"the write-ahead log {WAL_FILE} cannot be replayed: {error}. {_REMEDY}"
            ) from error
        lost_rows = _renew_catalogue(disk, files.catalogue, replayed.writer.following)
        if lost_rows is not None and lost_rows.renewed:
            renewed_files = RegionFiles(disk, disk)
            files.release()
            files = renewed_files
        opened.pop_all()
    logged = LoggedFiles(replayed.writer, files, replayed.checksum, MOST_OPEN_FILES)
    return StartedLog(logged, replayed.result, lost_rows)


def _renew_catalogue(disk: Disk, catalogue: Catalogue, end: TransactionId) -> LostRows | None:
    """Make the catalogue anew if rows are lost; return the lost rows, None if there are none.

    Without its row, a file would be hidden from its partition. The new rows have other regions.
    That is correct because nothing in the log names a region: after its replay, the log has only
    the transaction without operations that `replay_log` has written. The new catalogue replaces the
    old one by a renaming. So a crash leaves one of them, and the log fits both.

    The new position is ``end``, the end of the log, after that transaction. A copy of the log from
    before the replay names regions of the old catalogue. Such a copy ends before the new position,
    so it is refused beside the new catalogue.

    The rows of a directory that cannot be listed are kept. Raises OSError, DiskFailed.
    """
    directories = list(partition_directories(disk))
    without_row: list[str] = []
    for directory, names in directories:
        for name in names or ():
            path = f"{directory}/{name}"
            file = file_of(path)
            if file is not None and catalogue.region_of(file) is None:
                without_row.append(path)
    damaged = tuple(catalogue.damaged.values())
    if not without_row and not damaged:
        return None
    unlisted = {directory for directory, names in directories if names is None}
    kept = [
        row
        for row in catalogue.rows.values()
        if row.state is RowState.PRESENT and str(row.file.partition) in unlisted
    ]
    try:
        create_catalogue(disk, [*_rows_of_segments(disk), *kept], end)
    except NoSpace:
        return LostRows(damaged, tuple(without_row), renewed=False)
    return LostRows(damaged, tuple(without_row), renewed=True)


def _release_space(disk: Disk) -> None:
    """Remove the files by which the last process had reserved the space of new segments.

    These files have no records (see `LoggedDisk.rename`). If the transaction that creates such a
    segment is durable, the replay needs the space: on a full disk, each start would fail.
    """
    for directory, names in partition_directories(disk):
        for name in names or ():
            path = f"{directory}/{name}"
            if is_new_segment(path):
                disk.remove(path)


def _damaged_partitions(
    files: RegionFiles, damaged: Sequence[Check]
) -> dict[int, PartitionDamaged]:
    """Return the partitions of the ``damaged`` data, each with the error for its first Check."""
    partitions: dict[int, PartitionDamaged] = {}
    for check in damaged:
        file = files.catalogue.rows[check.address.region].file
        partitions.setdefault(
            file.partition,
            PartitionDamaged(
                file.partition,
                path_of(file),
                check.address.offset,
                f"{check.length} bytes of records fail their checksum in the write-ahead log",
            ),
        )
    return partitions


def check_log_is_empty(home: Disk) -> None:
    """Check that the log in ``home`` of a plain directory has no transaction to replay.

    A log that is missing, or whose header is damaged, passes: the segments need nothing of it. The
    header is written again, unchanged (see `recover_wal_header`). Raises DirectoryRefused, OSError,
    NoSpace, DiskFailed.
    """
    _header_of_empty_log(home)


def remove_log_files(disk: Disk, home: Disk) -> None:
    """Remove the log in ``home`` and the catalogue of the plain directory ``disk``, durably.

    The catalogue is removed first, because a catalogue without a log would show that the log is
    lost. The pair files are removed, too, first the one in the directory of the log. After a crash
    in between, that directory belongs to no storage, and a new start may use it (see
    `log_directory`). Raises OSError, DiskFailed.
    """
    for place, names in (
        (disk, (CATALOGUE_FILE,)),
        (home, (WAL_FILE, LOG_PAIR_FILE)),
        (disk, (LOG_PAIR_FILE,)),
    ):
        for name in names:
            if place.exists(name):
                place.remove(name)
        place.flush_directory("")


def _end_of_existing_log(home: Disk, key: uuid.UUID, blocks: int) -> TransactionId | None:
    """Return the end of the existing empty log; None if there is no log that can be used again.

    Raises DirectoryRefused if the log is not empty.
    """
    header = _header_of_empty_log(home)
    if header is None or (header.key, header.blocks) != (key, blocks):
        return None
    return header.checkpoint  # The log is empty, so it also ends there.


def _header_of_empty_log(home: Disk) -> WalHeader | None:
    """Return the header of the existing empty log; None if no log has a valid header.

    Raises DirectoryRefused if the log is not empty.
    """
    if not home.exists(WAL_FILE):
        return None
    file = home.open(WAL_FILE)
    try:
        header = recover_wal_header(file)
        first = next(scan_transactions(header, BlockReader(file).read_block))
    except HeaderDamaged:
        # A plain directory needs nothing of its log.
        return None
    except WalDamaged as error:
        raise DirectoryRefused(_not_empty(str(error))) from error
    finally:
        file.close()
    if isinstance(first, Transaction):
        raise DirectoryRefused(_not_empty("it has transactions after its checkpoint"))
    return header


def _not_empty(why: str) -> str:
    """Return the text of a refusal because of a log that is not empty."""
    return (
        f"the write-ahead log {WAL_FILE} is not empty ({why}), but the control file says that the "
        "segments are complete: the files are of different moments. This storage does not start. "
        "Restore all files of one moment, or empty the storage directory and recover its "
        "partitions from other replicas: waltz storage recover"
    )


def _rows_of_segments(disk: Disk) -> list[CatalogueRow]:
    """Make the name of each segment file durable, and return a row for each of these files.

    A process that used no log may have been killed before it flushed a directory. A directory that
    cannot be listed is left out: `LoggedDisk` refuses its partition. Raises OSError, DiskFailed.
    """
    rows: list[CatalogueRow] = []
    for directory, names in partition_directories(disk):
        if names is None:
            continue
        disk.flush_directory(directory)
        # None for each name that is not that of a segment file.
        files = [file_of(f"{directory}/{name}") for name in names]
        rows += [present(file) for file in files if file is not None]
    return rows


def partition_directories(disk: Disk) -> Iterator[tuple[str, list[str] | None]]:
    """Yield each directory of a partition and the sorted names in it, None if they are unknown.

    Raises OSError if the storage directory itself cannot be listed.
    """
    for directory in sorted(disk.names("")):
        if directory.isascii() and directory.isdecimal():
            try:
                names = sorted(disk.names(directory))
            except OSError:
                names = None
            yield directory, names
