"""Pure. The catalogue: which file each region is.

The operations of the log address the bytes of a file by the number of its *region* (`operations`).
The catalogue is region 0. It has a row of fixed size for each region, at a fixed offset. A write of
a row also changes the file of its region. A row with the state PRESENT creates the file if it is
missing, and cuts it to the row's length. A row with the state REMOVED removes the file. A later
write beyond the row's length makes the file longer and does not change the row.

Rows 0 and 1 name no file. They hold the *position*: the end of the log when the newest checkpoint
began, as the id of the WAL transaction that begins there (`ring`). That checkpoint has flushed the
changes of all transactions before the position. The position is at or after the checkpoint in the
header of the log, and at or before the end of the log. A start checks that, and so notices if the
catalogue or the log was restored from an older copy. The two rows are written in turn, so that a
torn write leaves the previous position. They are written directly, and not by transactions. All
other rows change only by `WriteData` in transactions.

Each row has a checksum, which also covers its number: a row at the place of another one is not
valid. A crash may tear a row, but then the log has the operation that was writing it, and the
replay writes the row again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from waltz.protocol.checksums import crc32
from waltz_storage.core.wal.operations import Address, Operation, WriteData
from waltz_storage.core.wal.ring import TransactionId

CATALOGUE_REGION = 0
FIRST_REGION = 2
"""The first region whose row names a file.

Region 0 is the catalogue's own file; rows 0 and 1 have the position.
"""
MAX_REGIONS = 1 << 24
"""The number of regions: the number of a region has 24 bits."""
ROW_BYTES = 32
NO_PARTITION = -1

# Partition, kind, state, first id, length.
_FIELDS = struct.Struct("<iHHqQ")
_CRC = struct.Struct("<I")
_UNUSED = bytes(ROW_BYTES)


class CatalogueDamaged(Exception):
    """A row of the catalogue, or an operation on the catalogue, is not valid; the text says why.

    A damaged row makes a start fail only if the log needs the row (`wal_replay`).
    """


class FileKind(IntEnum):
    """What a file contains; POSITION marks the two rows that name no file.

    The format has the kinds CONTROL and FLUSHED_MARKS (docs/formats.md). This storage writes no row
    of them: it changes these files without the log (see `shell.logged_disk`).
    """

    POSITION = 1
    CONTROL = 2
    FLUSHED_MARKS = 3
    DATA = 4
    INDEX = 5


class RowState(IntEnum):
    """Whether the file of a row exists."""

    PRESENT = 1
    REMOVED = 2


@dataclass(frozen=True, slots=True)
class FileName:
    """The name of a region's file, from which its path follows (see `region_files`).

    ``first_id`` is the first id of the segment to which a data or index file belongs. The control
    file and the flushed marks belong to no partition and no segment.
    """

    kind: FileKind
    partition: int = NO_PARTITION
    first_id: int = 0


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """The row of a region: its ``file``, and whether the write of the row creates or removes it.

    The write of a PRESENT row cuts the file to ``length`` bytes. Later writes may make it longer. A
    position row is encoded in the same form, with the position as ``length``.
    """

    file: FileName
    state: RowState
    length: int = 0

    def encode(self, region: int) -> bytes:
        """Return the bytes of the row of ``region``."""
        file = self.file
        fields = _FIELDS.pack(file.partition, file.kind, self.state, file.first_id, self.length)
        return (fields + _checksum(fields, region)).ljust(ROW_BYTES, b"\0")


def present(file: FileName, length: int = 0) -> CatalogueRow:
    """Return the row that creates ``file``, or cuts it to ``length`` bytes."""
    return CatalogueRow(file, RowState.PRESENT, length)


def removed(file: FileName) -> CatalogueRow:
    """Return the row that removes ``file``."""
    return CatalogueRow(file, RowState.REMOVED)


def write_row(region: int, row: CatalogueRow) -> WriteData:
    """Return the operation that writes the row of ``region``."""
    assert FIRST_REGION <= region < MAX_REGIONS, "transactions write the rows of files only"
    return WriteData(Address(CATALOGUE_REGION, region * ROW_BYTES), row.encode(region))


def written_rows(operations: Iterable[Operation]) -> Iterator[tuple[int, CatalogueRow]]:
    """Yield the region and the row of each operation that writes a row.

    Raises CatalogueDamaged for any other operation in the catalogue.
    """
    for operation in operations:
        if operation.address.region != CATALOGUE_REGION:
            continue
        region, offset_in_row = divmod(operation.address.offset, ROW_BYTES)
        row = decode_row(operation.data, region) if isinstance(operation, WriteData) else None
        if row is None or offset_in_row != 0 or region < FIRST_REGION:
            raise CatalogueDamaged(
                f"an operation changes the catalogue at offset {operation.address.offset}, but "
                "writes no row there"
            )
        yield region, row


def decode_row(raw: bytes, region: int) -> CatalogueRow | None:
    """Return the row in ``raw``, None if it is unused; raises CatalogueDamaged."""
    if raw == _UNUSED:
        return None
    fields = raw[: _FIELDS.size]
    after_fields = _checksum(fields, region).ljust(ROW_BYTES - _FIELDS.size, b"\0")
    if len(raw) != ROW_BYTES or raw[_FIELDS.size :] != after_fields:
        raise CatalogueDamaged(f"row {region} of the catalogue fails its checksum")
    partition, kind, state, first_id, length = _FIELDS.unpack(fields)
    try:
        return CatalogueRow(FileName(FileKind(kind), partition, first_id), RowState(state), length)
    except ValueError:
        raise CatalogueDamaged(
            f"row {region} of the catalogue has the unknown kind {kind} or state {state}"
        ) from None


class Catalogue:
    """The rows, as the transactions that were applied have written them."""

    def __init__(self) -> None:
        self._rows: dict[int, CatalogueRow] = {}
        self._regions: dict[FileName, int] = {}
        """The regions of present files."""
        self._position: TransactionId | None = None
        self._position_row = 1
        """The row that has the position; the next position goes to the other one."""
        self._next_unused = FIRST_REGION
        """Neither the row of this region nor a later row was ever written."""
        self._reusable: list[int] = []
        """The regions without a file that `new_region` may return.

        They are those of removed files, and those that `return_region` took back.
        """
        self._removed: set[int] = set()
        """The regions of removed files that `take_removed` has not returned yet."""
        self._damaged: dict[int, str] = {}
        """The damaged rows, each with the reason."""

    @classmethod
    def decode(cls, raw: bytes) -> Catalogue:
        """Read the catalogue's file. Damaged rows are in `damaged`."""
        catalogue = cls()
        for region, start in enumerate(range(0, len(raw), ROW_BYTES)):
            # A crash may have cut off a part of the last row.
            part = raw[start : start + ROW_BYTES].ljust(ROW_BYTES, b"\0")
            try:
                row = decode_row(part, region)
            except CatalogueDamaged as damaged:
                catalogue._damaged[region] = str(damaged)
                catalogue._next_unused = max(catalogue._next_unused, region + 1)
                continue
            if row is None:
                continue
            if region >= FIRST_REGION:
                catalogue.write(region, row)
            elif catalogue._position is None or row.length > catalogue._position.value:
                # The length of a position row is the position. The higher one of both counts.
                catalogue._position = TransactionId.of(row.length)
                catalogue._position_row = region
        # One position row may be torn. That is no damage, because the other one has the position.
        if catalogue._position is not None:
            for region in range(FIRST_REGION):
                catalogue._damaged.pop(region, None)
        return catalogue

    @property
    def rows(self) -> Mapping[int, CatalogueRow]:
        """All rows of files, by region."""
        return self._rows

    @property
    def damaged(self) -> Mapping[int, str]:
        """The damaged rows that were not written since, each with the reason."""
        return self._damaged

    @property
    def position(self) -> TransactionId | None:
        """The position, None if neither row has a valid one."""
        return self._position

    def region_of(self, file: FileName) -> int | None:
        """Return the region of a present file, None if there is none."""
        return self._regions.get(file)

    def write(self, region: int, row: CatalogueRow) -> None:
        """Write a row in memory; the caller writes its bytes and changes its file."""
        before = self._rows.get(region)
        # If the file of the old row was removed, another region may have a new file of this name.
        if before is not None and self._regions.get(before.file) == region:
            del self._regions[before.file]
        self._damaged.pop(region, None)
        self._rows[region] = row
        self._next_unused = max(self._next_unused, region + 1)
        if row.state is RowState.PRESENT:
            self._regions[row.file] = region
            self._removed.discard(region)
        else:
            self._removed.add(region)

    def new_region(self) -> int:
        """Return a region whose row may be written for a new file; a different one in each call."""
        if self._reusable:
            return self._reusable.pop()
        assert self._next_unused < MAX_REGIONS, "a region has 24 bits"
        self._next_unused += 1
        return self._next_unused - 1

    def return_region(self, region: int) -> None:
        """Take back a region that `new_region` has returned, if its row was not written since.

        No operation in the log names the region, so `new_region` may return it again (invariant 5
        of docs/decisions/write-ahead-log.md).
        """
        row = self._rows.get(region)
        assert row is None or row.state is RowState.REMOVED, "a file that exists keeps its row"
        assert region not in self._reusable, "a region is given to one file at a time"
        self._reusable.append(region)

    def take_removed(self) -> tuple[int, ...]:
        """Return the regions whose files were removed since the last call, for `allow_reuse`."""
        taken = tuple(sorted(self._removed))
        self._removed.clear()
        return taken

    def allow_reuse(self, regions: Iterable[int]) -> None:
        """Let `new_region` return regions whose files are removed.

        The checkpoint must have passed the removals. Otherwise an operation in the log could still
        mean the removed file, and a replay would apply it to the new file of the region
        (docs/decisions/write-ahead-log.md, invariant 5).
        """
        for region in regions:
            assert self._rows[region].state is RowState.REMOVED, "a file that exists keeps its row"
            assert region not in self._reusable, "a region is given to one file at a time"
            self._reusable.append(region)

    def move_position(self, position: TransactionId) -> tuple[int, bytes]:
        """Set the position; return the offset at which to write its row, and the row's bytes."""
        assert self._position is None or self._position <= position, "a position never goes back"
        self._position = position
        self._position_row = 1 - self._position_row
        row = CatalogueRow(FileName(FileKind.POSITION), RowState.PRESENT, length=position.value)
        return self._position_row * ROW_BYTES, row.encode(self._position_row)


def _checksum(fields: bytes, region: int) -> bytes:
    """Return the checksum of a row: the CRC begins with ``region`` + 1 (docs/formats.md)."""
    return _CRC.pack(crc32(fields, region + 1))
