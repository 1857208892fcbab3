"""Pure. Start the write-ahead log of a storage directory.

The directory is *plain* if its segment files are complete without the log: the log was never used,
or the storage was stopped cleanly. Then the catalogue is made anew from the files. Otherwise the
log is replayed. Files are used only through the `Disk` that the caller passes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from waltz_storage.core.disk import Disk
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.core.wal.catalogue import CatalogueDamaged, Row, present
from waltz_storage.core.wal.checksums import DEFAULT
from waltz_storage.core.wal.logged_files import LoggedFiles
from waltz_storage.core.wal.logged_nodes import file_of
from waltz_storage.core.wal.region_files import CATALOGUE_FILE, RegionFiles, create_catalogue
from waltz_storage.core.wal.ring import BLOCK_BYTES, TransactionId
from waltz_storage.core.wal.transaction_blocks import Transaction
from waltz_storage.core.wal.wal_file import WAL_FILE, BlockReader, create_wal, read_header
from waltz_storage.core.wal.wal_header import HeaderDamaged, WalHeader
from waltz_storage.core.wal.wal_replay import Progress, Replayed, VolumesDiffer, open_log
from waltz_storage.core.wal.wal_scan import WalDamaged, scan

MOST_OPEN_FILES = 256
"""How many unchanged files stay open after a checkpoint."""

_REMEDY = (
    "The last changes of all partitions are in the log, so this storage does not start. Empty the "
    "storage directory to begin with an empty storage, and recover its partitions from other "
    "replicas: waltz storage recover"
)


def prepare_log(disk: Disk, home: Disk, key: uuid.UUID, wal_bytes: int) -> None:
    """Make an empty log in ``home``, and the catalogue of the plain directory ``disk``.

    An existing log of the right size is used again. The directory stays plain. Raises
    DirectoryRefused if the existing log has transactions after its checkpoint; OSError, NoSpace,
    DiskFailed.
    """
    position = _existing(home, key, wal_bytes // BLOCK_BYTES)
    if position is None:
        header = WalHeader.new(key, wal_bytes // BLOCK_BYTES, DEFAULT)
        create_wal(home, header)
        position = header.checkpoint
    create_catalogue(disk, _rows(disk), position)


def start_log(
    disk: Disk, home: Disk, progress: Callable[[Progress], None]
) -> tuple[LoggedFiles, Replayed]:
    """Replay the log in ``home`` of the directory ``disk``; return the files behind the log.

    Raises DirectoryRefused, before a segment is changed, if the log is missing or damaged. Raises
    OSError, NoSpace, DiskFailed.
    """
    for place, name in ((home, WAL_FILE), (disk, CATALOGUE_FILE)):
        if not place.exists(name):
            raise DirectoryRefused(f"the file {name} is missing. {_REMEDY}")
    try:
        files = RegionFiles(disk, disk)
        writer, checksum, replayed = open_log(home.open(WAL_FILE), files, progress)
    except (HeaderDamaged, WalDamaged, CatalogueDamaged, VolumesDiffer) as error:
        raise DirectoryRefused(
            f"the write-ahead log {WAL_FILE} cannot be replayed: {error}. {_REMEDY}"
        ) from error
    return LoggedFiles(writer, files, checksum, MOST_OPEN_FILES), replayed


def _existing(disk: Disk, key: uuid.UUID, blocks: int) -> TransactionId | None:
    """Return the end of the existing log; None if there is none, or none that can be used."""
    if not disk.exists(WAL_FILE):
        return None
    file = disk.open(WAL_FILE)
    try:
        header = read_header(file)
        found = next(scan(header, BlockReader(file).read_block))
    except HeaderDamaged:
        # A plain directory needs nothing of its log.
        return None
    except WalDamaged as error:
        raise DirectoryRefused(_not_empty(str(error))) from error
    finally:
        file.close()
    if isinstance(found, Transaction):
        raise DirectoryRefused(_not_empty("it has transactions after its checkpoint"))
    return header.checkpoint if (header.key, header.blocks) == (key, blocks) else None


def _not_empty(why: str) -> str:
    return (
        f"the write-ahead log {WAL_FILE} is not empty ({why}), but the control file says that the "
        "segments are complete: the files are of different moments. This storage does not start. "
        "Restore all files of one moment, or empty the storage directory and recover its "
        "partitions from other replicas: waltz storage recover"
    )


def _rows(disk: Disk) -> list[Row]:
    """Return a row for each segment file."""
    rows: list[Row] = []
    for directory in sorted(disk.names("")):
        if directory.isascii() and directory.isdecimal():
            paths = [f"{directory}/{name}" for name in sorted(disk.names(directory))]
            rows += [present(file) for file in map(file_of, paths) if file is not None]
    return rows
