"""Pure. The files of the regions: operations are applied to them, then flushed by a checkpoint.

A region is one file. Its row in the catalogue names the file, and creates, cuts or removes it when
an operation writes the row. The catalogue also has the position up to which a checkpoint has
flushed all changes (`catalogue`).

Operations are applied in the order of the log. When a replay applies an operation, its file may
already have the changes of this operation, and of later ones, from the process that crashed. The
result is right because of the invariants 3 to 5 in docs/decisions/write-ahead-log.md: each
operation writes bytes that depend only on the log, or on bytes that no operation in the log
changes.

No operation begins beyond the end of its file, and no row has a greater length than its file.
Otherwise bytes beyond the end would become a part of the file, and after a crash these bytes can
have any content.

Files are used only through the `Disk` objects that the caller passes. Only one thread at a time may
use the files; the flushes that `begin_flush` and `write_position` return may run on other threads
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.control.flushed_marks_format import FLUSHED_FILE
from waltz_storage.core.disk import Disk, DiskFile, changing
from waltz_storage.core.errors import NoSpace
from waltz_storage.core.log.segment_format import DATA_SUFFIX, INDEX_SUFFIX, segment_name
from waltz_storage.core.wal.catalogue import (
    CATALOGUE_REGION,
    FIRST_REGION,
    ROW_BYTES,
    Catalogue,
    CatalogueDamaged,
    CatalogueRow,
    FileKind,
    FileName,
    RowState,
    written_rows,
)
from waltz_storage.core.wal.operations import Address, Check, Move, Operation, WriteData, Zero
from waltz_storage.core.wal.region_buffers import Buffer, ImageBuffer, RunBuffer
from waltz_storage.core.wal.ring import TransactionId

CATALOGUE_FILE = "waltz-storage.regions"
_NEW_FILE = f"{CATALOGUE_FILE}.new"
_SUFFIXES = {FileKind.DATA: DATA_SUFFIX, FileKind.INDEX: INDEX_SUFFIX}
_META_FILES = {FileKind.CONTROL: CONTROL_FILE, FileKind.FLUSHED_MARKS: FLUSHED_FILE}
_CATALOGUE_STEP_BYTES = 1024
"""The catalogue's file grows by this, so that most new files do not change its length."""

Flush = Callable[[], None]
"""A function that makes the content of one file, or the names in one directory, durable.

It raises DiskFailed."""


def create_catalogue(meta: Disk, rows: Sequence[CatalogueRow], position: TransactionId) -> None:
    """Create the catalogue's file for an empty log that begins at ``position``.

    The file gets its name when its content is durable. Raises DiskFailed, or NoSpace after it has
    removed what it has written.
    """
    # The rows before FIRST_REGION hold the position. The first position goes to one of them; the
    # other row stays unused, all zeros.
    offset, position_row = Catalogue().move_position(position)
    raw = bytearray(FIRST_REGION * ROW_BYTES)
    raw[offset : offset + len(position_row)] = position_row
    for region, row in enumerate(rows, FIRST_REGION):
        raw += row.encode(region)
    file = meta.create(_NEW_FILE)
    try:
        file.truncate(0)
        file.write(0, bytes(raw))
        file.flush()
        meta.rename(_NEW_FILE, CATALOGUE_FILE)
        meta.flush_directory("")
    except NoSpace:
        meta.remove(_NEW_FILE)
        raise
    finally:
        file.close()


class RegionFiles:
    """The catalogue and the files of its rows.

    ``data`` is the directory of the segments, ``meta`` that of the other files; both may be the
    same directory.
    """

    def __init__(self, data: Disk, meta: Disk) -> None:
        """Read the catalogue; raises OSError, NoSpace, DiskFailed."""
        self._data = data
        self._meta = meta
        self._catalogue_file = meta.open(CATALOGUE_FILE)
        try:
            # The last process may have died before its flush. The position must not go back, so
            # the same bytes are written and flushed again before they are used.
            raw = self._catalogue_file.read(0, self._catalogue_file.size())
            self._catalogue_file.write_durably(0, raw)
            meta.flush_directory("")
        except BaseException:
            self._catalogue_file.close()
            raise
        self._catalogue_buffer = ImageBuffer(self._catalogue_file)
        """The bytes of the rows, with those that are not written to the file yet."""
        self.catalogue = Catalogue.decode(raw)
        """The same rows, decoded."""
        self._open: dict[int, Buffer] = {}
        """The buffers of the open files, by region."""
        self._dirty: set[int] = set()
        """The regions that were changed since the last `begin_flush`."""
        self._rows_changed = False
        """Whether a row was written since the last `begin_flush`."""
        self._changed_names: dict[tuple[int, str], tuple[Disk, str]] = {}
        """The directories in which names were changed since the last `begin_flush`.

        The key makes each directory occur once: the `id` of the disk, and the path."""
        self._retired: list[DiskFile] = []
        """The open files that were removed. They stay open, because a flush may be using them."""

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply a transaction. It must be durable (invariant 1).

        After NoSpace or DiskFailed the process must end; the next start applies the transaction
        again. Raises CatalogueDamaged if an operation names a region without a row, or changes the
        catalogue other than by writing a valid row.
        """
        for operation in operations:
            address = operation.address
            if address.region == CATALOGUE_REGION:
                for region, row in written_rows([operation]):
                    self._write_row(region, row)
                continue
            buffer = self._buffer_to_change(address.region)
            if buffer is None:
                # This is a replay. The process that crashed had already applied a later operation
                # of the log, which removed this file.
                continue
            match operation:
                case WriteData(_, data):
                    buffer.write(address.offset, data)
                case Move(_, source, length):
                    buffer.write(address.offset, self.read(source, length))
                case Zero(_, length):
                    buffer.zero(address.offset, length)
                case Check():
                    pass

    def read(self, address: Address, length: int) -> bytes:
        """Return ``length`` bytes: zeros after the end of the file, or if the file does not exist.

        Raises OSError, NoSpace, DiskFailed, CatalogueDamaged.
        """
        buffer = self._open.get(address.region)
        if buffer is None:
            row = self._row(address.region)
            disk, _, path = self._place(row.file)
            if row.state is RowState.REMOVED or not disk.exists(path):
                return bytes(length)
            # `_open_file` would raise DiskFailed, which ends the process. Here an OSError fails
            # only this read.
            buffer = self._open[address.region] = _buffer_of(row.file, disk.open(path))
        return buffer.read(address.offset, length).ljust(length, b"\0")

    def write_pending(self, region: int, offset: int, length: int) -> None:
        """Write the pending changes of these bytes to their file, not durably.

        After this call, another handle of the file reads the bytes that were applied. Raises
        NoSpace, DiskFailed.
        """
        buffer = self._open.get(region)
        if buffer is not None:
            buffer.write_pending(offset, length)

    def reserve_row(self, region: int) -> None:
        """Make the catalogue's file long enough for the row of ``region``.

        The row of a durable transaction must have space: otherwise a checkpoint fails, and the
        process ends. The new bytes are zeros, which are unused rows. A crash may leave other bytes
        in such a row. The row is then damaged, but nothing needs it until a transaction writes it.
        Raises NoSpace, DiskFailed.
        """
        with changing("growth of the catalogue"):
            size = self._catalogue_file.size()
        end = (region + 1) * ROW_BYTES
        if end > size:
            whole_steps = (end + _CATALOGUE_STEP_BYTES - 1) // _CATALOGUE_STEP_BYTES
            self._catalogue_file.allocate(size, whole_steps * _CATALOGUE_STEP_BYTES)

    def write_directly(self, address: Address, data: bytes) -> Flush:
        """Write to the file at once; return the flush that makes the data durable.

        The transaction that has the Check of these data is complete only after that flush. The
        caller must keep invariant 3. Raises NoSpace, DiskFailed, CatalogueDamaged.
        """
        buffer = self._buffer_to_change(address.region)
        assert buffer is not None, "data are written only to a file that exists"
        # Write the pending changes first: the data must not begin beyond the end of the file.
        buffer.write_out()
        buffer.file.write(address.offset, data)
        return _flush_of(buffer.file)

    def extend(self, region: int, start: int, end: int) -> None:
        """Write zeros from ``start``, the end of the file, to ``end``; raises NoSpace, DiskFailed.

        The log has no operation for the zeros. After a crash they may be there or not.
        """
        buffer = self._buffer(region)
        assert buffer is not None, "only a file that exists is extended"
        buffer.file.allocate(start, end)

    def shorten(self, region: int, end: int) -> None:
        """Remove the zeros after ``end`` that `extend` has written; raises DiskFailed."""
        buffer = self._buffer(region)
        assert buffer is not None, "only a file that exists is shortened"
        buffer.file.truncate(end)

    def begin_flush(self) -> list[Flush]:
        """Write out all changes; return the flushes that make them durable, in any order.

        Call `write_position` and `end_flush` after the flushes. Raises NoSpace, DiskFailed.
        """
        flushes: list[Flush] = []
        for region in sorted(self._dirty):
            buffer = self._open[region]
            buffer.write_out()
            flushes.append(_flush_of(buffer.file))
        for disk, directory in self._changed_names.values():
            flushes.append(partial(disk.flush_directory, directory))
        if self._rows_changed:
            self._catalogue_buffer.write_out()
            flushes.append(_flush_of(self._catalogue_file))
        self._dirty.clear()
        self._rows_changed = False
        self._changed_names.clear()
        return flushes

    def write_position(self, position: TransactionId) -> Flush:
        """Write the position; return the flush that makes it durable. Raises NoSpace, DiskFailed.

        Before this call, all transactions before ``position`` must be applied, and then flushed by
        the flushes of a `begin_flush`. Otherwise a snapshot of the volume could have the position
        without these changes. With a log whose checkpoint is at the position, the snapshot would
        pass the check of the positions, and the changes would be lost.

        The position must be durable before the checkpoint is written to the header of the log.
        """
        offset, position_row = self.catalogue.move_position(position)
        self._catalogue_buffer.write(offset, position_row)
        self._catalogue_buffer.write_out()
        return _flush_of(self._catalogue_file)

    def end_flush(self, most_open: int) -> None:
        """Close the removed files, and all but ``most_open`` of the unchanged ones.

        Call this when the flushes of `begin_flush` have returned: they use these files.
        """
        for file in self._retired:
            file.close()
        self._retired.clear()
        idle = [region for region in self._open if region not in self._dirty]
        for region in idle[: max(0, len(idle) - most_open)]:
            self._open.pop(region).file.close()

    def flush(self, position: TransactionId) -> None:
        """Flush all changes and write the position, durably; raises NoSpace, DiskFailed."""
        for flush_file in self.begin_flush():
            flush_file()
        flush_position = self.write_position(position)
        flush_position()
        self.end_flush(len(self._open))

    def release(self) -> None:
        """Close all files without changing them."""
        open_files = [buffer.file for buffer in self._open.values()]
        for file in (*self._retired, *open_files, self._catalogue_file):
            file.close()
        self._retired.clear()
        self._open.clear()

    def _buffer_to_change(self, region: int) -> Buffer | None:
        """Return the buffer of a region, and let the next `begin_flush` flush its file.

        Returns None if the file of the region is removed.
        """
        buffer = self._buffer(region)
        if buffer is not None:
            self._dirty.add(region)
        return buffer

    def _row(self, region: int) -> CatalogueRow:
        """Return the row of a region; raises CatalogueDamaged if there is none."""
        row = self.catalogue.rows.get(region)
        if row is None:
            what = self.catalogue.damaged.get(region, f"region {region} has no row")
            raise CatalogueDamaged(f"an operation in the log needs a row of the catalogue: {what}")
        return row

    def _buffer(self, region: int) -> Buffer | None:
        """Return the buffer of a region, None if its file is removed."""
        buffer = self._open.get(region)
        if buffer is None:
            row = self._row(region)
            if row.state is RowState.REMOVED:
                return None
            buffer = self._open[region] = self._open_file(row.file)
        return buffer

    def _write_row(self, region: int, row: CatalogueRow) -> None:
        """Write a row, and create, cut or remove the file of its region."""
        before = self.catalogue.rows.get(region)
        if before is not None and before.file != row.file and before.state is RowState.PRESENT:
            raise CatalogueDamaged(f"row {region} would get another file, but its file exists")
        self.catalogue.write(region, row)
        self._catalogue_buffer.write(region * ROW_BYTES, row.encode(region))
        self._rows_changed = True
        if row.state is RowState.PRESENT:
            buffer = self._buffer_to_change(region)
            assert buffer is not None, "the row is present"
            buffer.cut(row.length)
        else:
            buffer_of_removed = self._open.pop(region, None)
            if buffer_of_removed is not None:
                self._retired.append(buffer_of_removed.file)
            self._dirty.discard(region)
            disk, _, path = self._place(row.file)
            if disk.exists(path):
                disk.remove(path)
        # The directory must be flushed even if nothing was created or removed now: a process that
        # died before its flush may have created or removed the file.
        self._note_names(row.file)

    def _open_file(self, file: FileName) -> Buffer:
        """Open a file; create it if it is missing.

        During a replay, a file may be missing because a later operation in the log has removed it
        before the crash. If the file was lost instead, the opening of its partition detects that.
        """
        disk, directory, path = self._place(file)
        with changing(f"opening of {path}"):
            is_missing = not disk.exists(path)
            if not disk.exists(directory):
                disk.make_directory(directory)
            open_file = disk.create(path)
            if is_missing:
                self._note_names(file)
            return _buffer_of(file, open_file)

    def _note_names(self, file: FileName) -> None:
        """Note that the name of a file, or of its directory, may not be durable."""
        disk, directory, _ = self._place(file)
        for name in ("", directory):
            if disk.exists(name):
                self._changed_names[id(disk), name] = (disk, name)

    def _place(self, file: FileName) -> tuple[Disk, str, str]:
        """Return the disk, the directory and the path of a file."""
        if file.kind in _META_FILES:
            return self._meta, "", _META_FILES[file.kind]
        directory = str(file.partition)
        path = f"{directory}/{segment_name(file.first_id)}{_SUFFIXES[file.kind]}"
        return self._data, directory, path


def _buffer_of(file: FileName, open_file: DiskFile) -> Buffer:
    """Return the buffer for a file of this kind: segment files grow at their ends."""
    return RunBuffer(open_file) if file.kind in _SUFFIXES else ImageBuffer(open_file)


def _flush_of(file: DiskFile) -> Flush:
    """Return the flush of a file: a durable write of no bytes (`wal_file.flush_wal` says why)."""
    return partial(file.write_durably, 0, b"")
