"""Pure. Replay a write-ahead log: check it, bring the files up to date, and make the log empty.

The log is read twice. The first reading changes nothing: a log that is damaged stays as it is, and
so do the files. The second reading applies all transactions in order, whether they were applied
before or not; `region_files` says why that is correct. After a crash at any moment, the same replay
can be done again.

*Regions* are the files whose changes are logged, by number. The *catalogue* is region 0. It has a
row for each region, which names the file, and the *position*: the place in the log where the newest
checkpoint began. A checkpoint writes the position first and the header of the log afterwards. So
the position is at or after the checkpoint in the header, and at or before the end of the log.

*Direct data* are those of a large record. They are written to their file before the transaction,
which has only a `Check` with their checksum.

The partitions are opened, and requests answered, only after `replay_log` has returned. So no answer
depends on data that are only in a cache, or on a transaction that is dropped later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from waltz_storage.core.disk import DiskFile
from waltz_storage.core.wal.catalogue import CatalogueDamaged, CatalogueRow, written_rows
from waltz_storage.core.wal.checksums import Checksum
from waltz_storage.core.wal.logged_changes import changed_range
from waltz_storage.core.wal.operations import Check, Move
from waltz_storage.core.wal.region_files import RegionFiles
from waltz_storage.core.wal.ring import BLOCK_BYTES, TransactionId
from waltz_storage.core.wal.transaction_blocks import Transaction
from waltz_storage.core.wal.wal_file import (
    BlockReader,
    flush_wal,
    recover_wal_header,
    write_wal_header,
)
from waltz_storage.core.wal.wal_header import WalHeader
from waltz_storage.core.wal.wal_scan import LogEnd, scan_transactions
from waltz_storage.core.wal.wal_writer import WalWriter

_PROGRESS_BLOCKS = 4096
"""The progress is reported each time that this many blocks were applied."""


class VolumesDiffer(Exception):
    """The log or the catalogue was restored from an older copy; the text says which one."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How many blocks of the log were applied, out of how many."""

    blocks: int
    all_blocks: int


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay has done.

    It has applied ``transactions``, which had this many ``blocks``. ``torn`` says whether the log
    ended with a transaction that a crash had interrupted, which was dropped.
    """

    transactions: int
    blocks: int
    torn: bool


@dataclass(frozen=True, slots=True)
class ReplayedLog:
    """A log after its replay: the writer of new transactions, and the result of the replay.

    ``checksum`` is the algorithm that the log names in its header.
    """

    writer: WalWriter
    checksum: Checksum
    result: ReplayResult


@dataclass(slots=True)
class _Survey:
    """What the first reading has found: how many ``transactions`` with how many ``blocks``."""

    transactions: int = 0
    blocks: int = 0
    last: Transaction | None = None
    """The last transaction. `note` was not called for it yet, because it may be dropped."""
    rows: dict[int, CatalogueRow] = field(default_factory=dict)
    """For each region whose row the log writes, the first one of these rows."""
    named: set[int] = field(default_factory=set)
    """The regions that operations read, change or check. A write of a row counts as a change of the
    row's region, not of the catalogue (`changed_range`)."""

    def note(self, transaction: Transaction) -> None:
        """Add the rows and regions of a transaction that will be applied.

        Raises CatalogueDamaged if it changes the catalogue otherwise than by rows.
        """
        for region, row in written_rows(transaction.operations):
            self.rows.setdefault(region, row)
        for operation in transaction.operations:
            self.named.add(changed_range(operation).region)
            if isinstance(operation, Move):
                self.named.add(operation.source.region)


def replay_log(
    file: DiskFile,
    files: RegionFiles,
    progress: Callable[[Progress], None],
    refuse: Callable[[Sequence[Check]], None],
) -> ReplayedLog:
    """Bring ``files`` up to date with the log in ``file``, and return the log, which is empty then.

    ``progress`` is called from time to time while transactions are applied. ``refuse`` gets the
    Checks of direct data that were durable and do not match their checksum. It must refuse their
    partitions durably before it returns. Afterwards, nothing in the log shows the damage, and a
    later start would take the data for an interrupted write and cut them off.

    Raises HeaderDamaged, WalDamaged, VolumesDiffer and CatalogueDamaged before a file of a region
    is changed. Only one kind of CatalogueDamaged may come later, during the second reading: a row
    in the log names another file for a region whose present file still exists. Raises OSError,
    NoSpace, DiskFailed.
    """
    header = recover_wal_header(file)
    reader = BlockReader(file)
    survey, end = _survey_log(header, reader)
    last = survey.last
    # This needs no row from the log: data are written directly only to files whose rows the log
    # does not write (`LoggedChanges.may_write_directly`).
    if last is not None and not _direct_data_are_whole(last, files, header.checksum):
        # The last transaction was interrupted and never answered: drop it.
        end = LogEnd(last.id, torn=True)
        survey.transactions -= 1
        survey.blocks -= last.blocks
        last = None
    # A dropped transaction is not noted: its rows would be in memory and never on the disk.
    if last is not None:
        survey.note(last)
    _complete_rows(files, survey)
    _check_position(header, end, files)
    if last is not None:
        _write_last_again(file, files, header, last)
    damaged = _apply_all(header, reader, files, survey.blocks, end, progress)
    # This also writes the new position to the catalogue: it must be durable before the header.
    files.flush(end.following)
    refuse(damaged)
    header = _write_header_of_empty_log(file, header, end.following)
    result = ReplayResult(survey.transactions, survey.blocks, end.torn)
    writer = WalWriter(file, header, header.checkpoint)
    _overwrite_dropped(writer)
    return ReplayedLog(writer, header.checksum, result)


def _survey_log(header: WalHeader, reader: BlockReader) -> tuple[_Survey, LogEnd]:
    """Do the first reading, without a change; raises WalDamaged, CatalogueDamaged, OSError."""
    survey = _Survey()
    for scanned in scan_transactions(header, reader.read_block):
        if isinstance(scanned, LogEnd):
            return survey, scanned
        if survey.last is not None:
            survey.note(survey.last)
        survey.transactions += 1
        survey.blocks += scanned.blocks
        survey.last = scanned
    raise AssertionError("a scan ends with the end of the log")


def _complete_rows(files: RegionFiles, survey: _Survey) -> None:
    """Replace damaged and missing rows of the catalogue, in memory, by the rows in the log.

    A crash may have torn a row that the log writes. The row is then damaged. Or it is missing,
    because zeros are in its place, or because the end of the catalogue was cut off. Operations in
    the log before that write need the lost row. The first row that the log writes for the region
    can take its place: it names the same file (docs/decisions/write-ahead-log.md, invariant 5). A
    later row in the log may say that the file is removed. With that row, operations before the
    removal would be left out.

    Raises CatalogueDamaged if an operation needs a row that neither the catalogue nor the log has.
    """
    catalogue = files.catalogue
    for region, row in survey.rows.items():
        if region not in catalogue.rows:  # It is damaged, missing, or of a new file.
            catalogue.write(region, row)
    regions_with_row = survey.rows.keys() | catalogue.rows.keys()
    for region in sorted(survey.named - regions_with_row):
        what = catalogue.damaged.get(region, f"it has no row {region}")
        raise CatalogueDamaged(f"the log changes a file that the catalogue does not name: {what}")


def _direct_data_are_whole(last: Transaction, files: RegionFiles, checksum: Checksum) -> bool:
    """Return whether the direct data of the last transaction are in their files.

    A crash may have interrupted the flush of the data, although the blocks of the transaction are
    valid. Then the transaction was never answered, and the log ends before it.
    """
    checks = [operation for operation in last.operations if isinstance(operation, Check)]
    return all(_is_whole(check, files, checksum) for check in checks)


def _is_whole(check: Check, files: RegionFiles, checksum: Checksum) -> bool:
    """Return whether the direct data of ``check`` are in their file and match the checksum."""
    return checksum.encode(files.read(check.address, check.length)) == check.checksum


def _check_position(header: WalHeader, end: LogEnd, files: RegionFiles) -> None:
    """Check that neither the log nor the catalogue is an older copy; raises VolumesDiffer.

    A checkpoint writes the position to the catalogue before it writes the header of the log, and
    the position is never beyond the last durable transaction.
    """
    position = files.catalogue.position
    if position is None:
        raise VolumesDiffer(
            "the catalogue has no valid position, so it cannot be compared with the write-ahead log"
        )
    if position < header.checkpoint:
        raise VolumesDiffer(
            f"the catalogue is older than the write-ahead log: its position is {position.value}, "
            f"the checkpoint of the log {header.checkpoint.value}"
        )
    if position > end.following:
        raise VolumesDiffer(
            f"the write-ahead log is older than the catalogue, or its last transactions are lost: "
            f"it ends at {end.following.value}, the position of the catalogue is {position.value}"
        )


def _write_last_again(
    file: DiskFile, files: RegionFiles, header: WalHeader, last: Transaction
) -> None:
    """Make the last transaction and its direct data durable.

    The process that wrote them may have ended before the flush, or because the flush failed. After
    a failed flush, Linux counts the cached pages as flushed, so the same bytes are written again.
    All earlier transactions are durable: the last one was written after their flushes.
    """
    for operation in last.operations:
        if isinstance(operation, Check):
            data = files.read(operation.address, operation.length)
            flush = files.write_directly(operation.address, data)
            flush()
    for block, count in header.ring.pieces(last.id.block, last.blocks):
        position = block * BLOCK_BYTES
        file.write(position, file.read(position, count * BLOCK_BYTES))
    flush_wal(file)


def _apply_all(
    header: WalHeader,
    reader: BlockReader,
    files: RegionFiles,
    all_blocks: int,
    end: LogEnd,
    progress: Callable[[Progress], None],
) -> tuple[Check, ...]:
    """Apply the transactions before ``end``; return the Checks whose direct data are damaged.

    ``all_blocks`` is how many blocks the transactions have.
    """
    checks = _UnchangedChecks()
    blocks = reported = 0
    for transaction in _transactions(header, reader, end.following):
        files.apply(transaction.operations)
        checks.add(transaction)
        blocks += transaction.blocks
        if blocks - reported >= _PROGRESS_BLOCKS:
            reported = blocks
            progress(Progress(blocks, all_blocks))
    return tuple(
        check for check in checks.verifiable() if not _is_whole(check, files, header.checksum)
    )


def _transactions(
    header: WalHeader, reader: BlockReader, end: TransactionId
) -> Iterator[Transaction]:
    """Yield the transactions from the checkpoint to ``end``, which the first reading has found.

    Raises OSError.
    """
    if header.checkpoint == end:
        return
    for transaction in scan_transactions(header, reader.read_block):
        assert isinstance(transaction, Transaction), "the first reading has found the end"
        yield transaction
        if header.ring.after(transaction.id, transaction.blocks) == end:
            return


class _UnchangedChecks:
    """The Checks whose direct data no later operation has changed: they can be verified."""

    def __init__(self) -> None:
        self._checks: dict[int, list[Check]] = {}
        """The Checks of each region."""

    def add(self, transaction: Transaction) -> None:
        """Add the Checks of the next transaction; remove those whose direct data it changes.

        A write of a row changes the whole file of its region, so all Checks of the region are
        removed.
        """
        for operation in transaction.operations:
            changed = changed_range(operation)
            if changed.region in self._checks:
                earlier = self._checks[changed.region]
                self._checks[changed.region] = [
                    check for check in earlier if not changed_range(check).overlaps(changed)
                ]
            if isinstance(operation, Check):
                self._checks.setdefault(changed.region, []).append(operation)

    def verifiable(self) -> list[Check]:
        """Return the Checks that can be verified."""
        return [check for checks in self._checks.values() for check in checks]


def _write_header_of_empty_log(file: DiskFile, header: WalHeader, end: TransactionId) -> WalHeader:
    """Write the header of an empty log durably: its checkpoint is ``end``. Return the header.

    Before this call, the files must be flushed, and the partitions with damaged direct data must be
    refused durably.
    """
    if end == header.checkpoint:
        return header
    header = header.advanced(end)
    write_wal_header(file, header)
    flush_wal(file)
    return header


def _overwrite_dropped(writer: WalWriter) -> None:
    """Write an empty transaction to the end of the log, where a dropped one may begin.

    Otherwise a dropped transaction could become valid again. Example: the blocks of transaction T
    are complete, but the replay drops T because its direct data for partition 1 are missing. T also
    changes partition 2. The storage answers requests to both partitions as if T did not exist. Then
    a server sends the records of partition 1 again. They are written to their file, and the process
    dies before it writes a transaction. The next replay would find the blocks and the direct data
    of T complete, and would apply T to partition 2, too.
    """
    written = writer.write([])
    writer.flush()
    writer.complete(written)
