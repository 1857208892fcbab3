"""Pure. Start the write-ahead log of a storage directory.

The directory is *plain* if its segment files are complete without the log: the log was never used,
or the storage was stopped cleanly. `prepare_log` then makes a new catalogue from the files that it
finds. `start_log` replays the log.

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
    """Rows that the catalogue had lost after a replay, which needed none of them.

    ``damaged`` says what is wrong with each damaged row, and ``files`` has the paths of the segment
    files without a row. If ``renewed``, the catalogue was made anew and has a row of each file that
    could be listed. Otherwise the volume is full, and `LoggedDisk` refuses the partitions of the
    files.
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

    An existing log of the same cluster and size is used again. The directory stays plain. Raises
    DirectoryRefused if the existing log has transactions after its checkpoint; OSError, NoSpace,
    DiskFailed.
    """
    position = _end_of_existing_log(home, key, wal_bytes // BLOCK_BYTES)
    if position is None:
        header = WalHeader.new(key, wal_bytes // BLOCK_BYTES, DEFAULT)
        create_wal(home, header)
        position = header.checkpoint
    create_catalogue(disk, _rows_of_segments(disk), position)


def start_log(
    disk: Disk, home: Disk, progress: Callable[[Progress], None], refuse: Refuse
) -> StartedLog:
    """Replay the log in ``home`` of the directory ``disk``, and make a damaged catalogue anew.

    ``refuse`` is called before the log forgets which partitions have damaged records. The returned
    files are changed by way of the log from now on.

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
                file, files, progress, lambda damaged: refuse(_damaged_partitions(files, damaged))
            )
        except (HeaderDamaged, WalDamaged, CatalogueDamaged, VolumesDiffer) as error:
            raise DirectoryRefused(
                f"the write-ahead log {WAL_FILE} cannot be replayed: {error}. {_REMEDY}"
            ) from error
        lost_rows = _renew_catalogue(disk, files.catalogue, replayed.writer.following)
        if lost_rows is not None and lost_rows.renewed:
            old, files = files, RegionFiles(disk, disk)
            old.release()
        opened.pop_all()
    logged = LoggedFiles(replayed.writer, files, replayed.checksum, MOST_OPEN_FILES)
    return StartedLog(logged, replayed.result, lost_rows)


def _renew_catalogue(disk: Disk, catalogue: Catalogue, end: TransactionId) -> LostRows | None:
    """Make the catalogue anew if rows are lost; return the lost rows, None if there are none.

    Without its row, a file would be hidden from its partition. The new rows have other regions.
    That is correct because the log is empty after its replay, apart from a transaction without
    operations: nothing in it names a region. The new catalogue takes the place of the old one by a
    renaming. So a crash leaves one of them, and the log fits both.

    The new position is ``end``, the end of the log, after that transaction. A copy of the log from
    before the replay ends earlier, so it is refused beside the new catalogue, whose regions it does
    not mean.

    The rows of a directory that cannot be listed are kept. Raises OSError, DiskFailed.
    """
    directories = list(partition_directories(disk))
    paths = [f"{directory}/{name}" for directory, names in directories for name in names or ()]
    files = [(path, file) for path in paths if (file := file_of(path)) is not None]
    without_row = tuple(path for path, file in files if catalogue.region_of(file) is None)
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
        return LostRows(damaged, without_row, renewed=False)
    return LostRows(damaged, without_row, renewed=True)


def _release_space(disk: Disk) -> None:
    """Remove the files that took the space for new segments when the last process ended.

    They hold no records (see `LoggedDisk.rename`). If the transaction that creates the segment is
    durable, the replay needs their space: on a full disk it would fail at each start.
    """
    for directory, names in partition_directories(disk):
        for name in names or ():
            path = f"{directory}/{name}"
            if is_new_segment(path):
                disk.remove(path)


def _damaged_partitions(
    files: RegionFiles, damaged: Sequence[Check]
) -> dict[int, PartitionDamaged]:
    """Return the partitions of the ``damaged`` data, each with the error for its first data."""
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

    The catalogue is removed first: a catalogue without a log shows that the log is lost. The pair
    files are removed, too, first that of the log: after a crash in between, the directory of the
    log belongs to no storage, and a new start may use it (see `log_directory`). Raises OSError,
    DiskFailed.
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

    The last process, which used no log, may have been killed before it flushed a directory. A
    directory that cannot be listed is left out: `LoggedDisk` refuses its partition.
    """
    rows: list[CatalogueRow] = []
    for directory, names in partition_directories(disk):
        if names is None:
            continue
        disk.flush_directory(directory)
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
