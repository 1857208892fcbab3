"""Pure. Open a write-ahead log: check it, bring the files up to date, and make the log empty.

The log is read twice. The first reading changes nothing: a log that is damaged stays as it is, and
so do the files. The second reading applies all transactions in order, whether they were applied
before or not; `region_files` says why that is correct. A crash at any moment leaves a state in
which the same opening works again.

The partitions are opened, and requests answered, only after the opening has returned. So no answer
depends on data that are only in a cache, or on a transaction that is dropped later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from waltz_storage.core.disk import DiskFile
from waltz_storage.core.wal.catalogue import CatalogueDamaged, Row, written_rows
from waltz_storage.core.wal.checksums import Checksum
from waltz_storage.core.wal.logged_changes import changed_range
from waltz_storage.core.wal.operations import Check, Move
from waltz_storage.core.wal.region_files import RegionFiles
from waltz_storage.core.wal.ring import BLOCK_BYTES, TransactionId
from waltz_storage.core.wal.transaction_blocks import Transaction
from waltz_storage.core.wal.wal_file import BlockReader, read_header, write_header
from waltz_storage.core.wal.wal_header import WalHeader
from waltz_storage.core.wal.wal_scan import LogEnd, scan
from waltz_storage.core.wal.wal_writer import WalWriter

_PROGRESS_BLOCKS = 4096


class VolumesDiffer(Exception):
    """The log and the catalogue are of different moments; the text says which one is older."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How many blocks of the log were applied, out of how many."""

    blocks: int
    all_blocks: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of an opening.

    ``damaged`` are the direct data that were durable and do not match their checksum: their
    partitions must not be served. ``torn`` says whether the log ended with a transaction that a
    crash had interrupted, which was dropped.
    """

    transactions: int
    blocks: int
    torn: bool
    damaged: tuple[Check, ...]


@dataclass(slots=True)
class _Survey:
    """What the first reading has found."""

    transactions: int = 0
    blocks: int = 0
    last: Transaction | None = None
    rows: dict[int, Row] = field(default_factory=dict)
    """The first row that the log writes for each region."""
    named: set[int] = field(default_factory=set)
    """The regions that operations read, change or check."""


def open_log(
    file: DiskFile, files: RegionFiles, progress: Callable[[Progress], None]
) -> tuple[WalWriter, Checksum, Replayed]:
    """Bring ``files`` up to date, and return the writer of the log, which is empty then.

    Raises HeaderDamaged, WalDamaged, VolumesDiffer, CatalogueDamaged and OSError before a file of
    a region is changed. Raises NoSpace, DiskFailed.
    """
    header = read_header(file)
    reader = BlockReader(file)
    survey, end = _survey(header, reader)
    _complete_rows(files, survey)
    last = survey.last
    if last is not None and not _direct_data_are_whole(last, files, header.checksum):
        end = LogEnd(last.id, torn=True)
        survey.transactions -= 1
        survey.blocks -= last.blocks
        last = None
    _check_position(header, end, files)
    if last is not None:
        _write_again(file, files, header, last)
    damaged = _apply_all(header, reader, files, survey.blocks, end, progress)
    files.flush(end.following)
    header = _empty(file, header, end.following)
    return (
        _begin(file, header),
        header.checksum,
        Replayed(survey.transactions, survey.blocks, end.torn, damaged),
    )


def _survey(header: WalHeader, reader: BlockReader) -> tuple[_Survey, LogEnd]:
    """Read the log without a change; raises WalDamaged, CatalogueDamaged, OSError."""
    survey = _Survey()
    for found in scan(header, reader.read_block):
        if isinstance(found, LogEnd):
            return survey, found
        survey.transactions += 1
        survey.blocks += found.blocks
        survey.last = found
        for region, row in written_rows(found.operations):
            survey.rows.setdefault(region, row)
        for operation in found.operations:
            survey.named.add(changed_range(operation).region)
            if isinstance(operation, Move):
                survey.named.add(operation.source.region)
    raise AssertionError("a scan ends with the end of the log")


def _complete_rows(files: RegionFiles, survey: _Survey) -> None:
    """Complete the catalogue in memory by the rows in the log; raises CatalogueDamaged.

    A crash may have torn a row that the log writes again. The first version of the row in the log
    is right for the operations before it, too, because a region names one file (invariant 5).
    """
    catalogue = files.catalogue
    for region, row in survey.rows.items():
        if region in catalogue.damaged:
            catalogue.write(region, row)
    for region in sorted(survey.named - survey.rows.keys() - catalogue.rows.keys()):
        what = catalogue.damaged.get(region, f"it has no row {region}")
        raise CatalogueDamaged(f"the log changes a file that the catalogue does not name: {what}")


def _direct_data_are_whole(last: Transaction, files: RegionFiles, checksum: Checksum) -> bool:
    """Return whether the direct data of the last transaction are in their files.

    A crash may have interrupted their flush, although the transaction itself is valid. Then the
    transaction was never answered, and the log ends before it.
    """
    checks = [operation for operation in last.operations if isinstance(operation, Check)]
    return all(_is_whole(check, files, checksum) for check in checks)


def _is_whole(check: Check, files: RegionFiles, checksum: Checksum) -> bool:
    return checksum.encode(files.read(check.address, check.length)) == check.checksum


def _check_position(header: WalHeader, end: LogEnd, files: RegionFiles) -> None:
    """Check that the log and the catalogue are of the same moment; raises VolumesDiffer.

    The position is written before the header, and never beyond the last durable transaction.
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


def _write_again(file: DiskFile, files: RegionFiles, header: WalHeader, last: Transaction) -> None:
    """Make the last transaction and its direct data durable.

    The process may have died before the flush, or by a failed flush. After a failed flush, Linux
    counts the cached pages as flushed, so the same bytes are written again. All transactions before
    the last one are durable: it was written after their flushes.
    """
    for operation in last.operations:
        if isinstance(operation, Check):
            data = files.read(operation.address, operation.length)
            files.write_directly(operation.address, data)()
    for block, count in header.ring.pieces(last.id.block, last.blocks):
        position = block * BLOCK_BYTES
        file.write(position, file.read(position, count * BLOCK_BYTES))
    file.write_durably(0, b"")


def _apply_all(
    header: WalHeader,
    reader: BlockReader,
    files: RegionFiles,
    all_blocks: int,
    end: LogEnd,
    progress: Callable[[Progress], None],
) -> tuple[Check, ...]:
    """Apply the transactions before ``end``; return the Checks that fail."""
    checks = _UnchangedChecks()
    blocks = reported = 0
    for transaction in _transactions(header, reader, end.following):
        files.apply(transaction.operations)
        checks.add(transaction)
        blocks += transaction.blocks
        if blocks - reported >= _PROGRESS_BLOCKS:
            reported = blocks
            progress(Progress(blocks, all_blocks))
    return tuple(check for check in checks.found() if not _is_whole(check, files, header.checksum))


def _transactions(
    header: WalHeader, reader: BlockReader, end: TransactionId
) -> Iterator[Transaction]:
    if header.checkpoint == end:
        return
    for found in scan(header, reader.read_block):
        assert isinstance(found, Transaction), "the first reading has found the end"
        yield found
        if header.ring.after(found.id, found.blocks) == end:
            return


class _UnchangedChecks:
    """The Checks whose direct data no later operation has changed: they can be verified."""

    def __init__(self) -> None:
        self._checks: dict[int, list[Check]] = {}

    def add(self, transaction: Transaction) -> None:
        """Add the Checks of the next transaction, and remove those that it makes invalid."""
        for operation in transaction.operations:
            changed = changed_range(operation)
            if changed.region in self._checks:
                kept = self._checks[changed.region]
                self._checks[changed.region] = [
                    check for check in kept if not changed_range(check).overlaps(changed)
                ]
            if isinstance(operation, Check):
                self._checks.setdefault(changed.region, []).append(operation)

    def found(self) -> list[Check]:
        """Return the Checks that can be verified."""
        return [check for checks in self._checks.values() for check in checks]


def _empty(file: DiskFile, header: WalHeader, end: TransactionId) -> WalHeader:
    """Write the header of an empty log durably; the files are flushed."""
    if end == header.checkpoint:
        return header
    header = header.advanced(end)
    write_header(file, header)
    file.write_durably(0, b"")
    return header


def _begin(file: DiskFile, header: WalHeader) -> WalWriter:
    """Return the writer, after an empty transaction has replaced an interrupted one.

    The blocks of an interrupted transaction may be whole, and only its direct data missing. If the
    same records were written to the same place again, it would become valid, and change other
    partitions in a way that this storage has reported not to have happened.
    """
    writer = WalWriter(file, header, header.checkpoint)
    written = writer.write([])
    writer.flush()
    writer.complete(written)
    return writer
