"""Pure. Find the changes that a later replay could apply wrongly, before they are written.

A replay applies all operations since the checkpoint again, from the first one on, to files that
may already have the changes of later operations. Two kinds of changes would make the result wrong
(docs/decisions/write-ahead-log.md, invariants 3 and 4):

* A direct write (to a file, and not to the log) of bytes that an operation in the log changes: the
  replay would write the older operation over the newer data.
* A change of the source of a Move in the log: the replay would move the changed bytes.

The log names a file by a number, its *region*. The *catalogue* is the region that has a row for
each other region, with its file; a write of a row can create, cut or remove the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from waltz_storage.core.wal.catalogue import CATALOGUE_REGION, ROW_BYTES
from waltz_storage.core.wal.operations import Address, Check, Move, Operation, WriteData, Zero
from waltz_storage.core.wal.ring import TransactionId

_LARGEST_REGION_BYTES = 1 << 40
"""The end of the largest region: an offset has 40 bits."""


@dataclass(frozen=True, slots=True)
class RegionRange:
    """The bytes of a region from ``start`` to before ``end``."""

    region: int
    start: int
    end: int

    def overlaps(self, other: RegionRange) -> bool:
        """Return whether the two ranges share a byte."""
        return self.region == other.region and self.start < other.end and other.start < self.end


def range_at(address: Address, length: int) -> RegionRange:
    """Return the range of ``length`` bytes at ``address``."""
    return RegionRange(address.region, address.offset, address.offset + length)


def changed_range(operation: Operation) -> RegionRange:
    """Return the bytes that an operation changes.

    For a Check, these are the bytes that were written directly and that it confirms. A write of a
    catalogue row changes the whole file of the row's region.
    """
    address = operation.address
    if address.region == CATALOGUE_REGION:
        return RegionRange(address.offset // ROW_BYTES, 0, _LARGEST_REGION_BYTES)
    match operation:
        case WriteData(_, data):
            return range_at(address, len(data))
        case Move(_, _, length) | Zero(_, length) | Check(_, length, _):
            return range_at(address, length)


@dataclass(slots=True)
class _RegionChanges:
    """The changes of one region in the log."""

    last: TransactionId
    """The last transaction that changes the region."""
    end: int = 0
    """The highest end of the ranges that were changed after the last write of the region's row."""
    row: TransactionId | None = None
    """The last transaction that writes the region's row, None if the log has none."""


class LoggedChanges:
    """The changes of all transactions since the checkpoint, and of the one being written.

    Only the end of the changes of each region is recorded, and the write of a row counts as a
    change of the whole file. So `may_write` and `may_write_directly` may return False for a change
    that would be safe, but never True for an unsafe change.
    """

    def __init__(self) -> None:
        self._regions: dict[int, _RegionChanges] = {}
        """The regions that these transactions change, by number."""
        self._sources: list[tuple[TransactionId, RegionRange]] = []
        """The source of each Move, and the transaction that has the Move."""

    def add(self, transaction: TransactionId, operations: Iterable[Operation]) -> None:
        """Add a transaction that is going to be written."""
        for operation in operations:
            if isinstance(operation, WriteData) and operation.address.region != CATALOGUE_REGION:
                # Almost all operations. This does what the code below does, but creates no object
                # for the range.
                address = operation.address
                changes = self._of_region(address.region, transaction)
                changes.end = max(changes.end, address.offset + len(operation.data))
                continue
            changed = changed_range(operation)
            changes = self._of_region(changed.region, transaction)
            if operation.address.region == CATALOGUE_REGION:
                # Until a checkpoint passes this write of the row, the whole file counts as changed,
                # whatever ``end`` is. That checkpoint also passes all earlier operations. So
                # ``end`` restarts at 0, for the later operations.
                changes.row, changes.end = transaction, 0
            else:
                changes.end = max(changes.end, changed.end)
            if isinstance(operation, Move):
                source = range_at(operation.source, operation.length)
                self._sources.append((transaction, source))

    def _of_region(self, region: int, transaction: TransactionId) -> _RegionChanges:
        """Return the changes of a region, of which ``transaction`` is the last one now."""
        changes = self._regions.get(region)
        if changes is None:
            changes = self._regions[region] = _RegionChanges(transaction)
        changes.last = transaction
        return changes

    def forget(self, checkpoint: TransactionId) -> None:
        """Remove the transactions before ``checkpoint``, which must be durable in the header."""
        for region, changes in list(self._regions.items()):
            if changes.last < checkpoint:
                del self._regions[region]
            elif changes.row is not None and changes.row < checkpoint:
                changes.row = None
        self._sources = [
            (transaction, source)
            for transaction, source in self._sources
            if transaction >= checkpoint
        ]

    def may_write_directly(self, data: RegionRange) -> bool:
        """Return whether ``data`` may be written directly (invariants 3 and 4)."""
        changes = self._regions.get(data.region)
        if changes is not None and (changes.row is not None or changes.end > data.start):
            return False
        return not any(source.overlaps(data) for _, source in self._sources)

    def may_write(self, operations: Iterable[Operation]) -> bool:
        """Return whether no operation changes the source of a Move in the log (invariant 4).

        If one does, the caller waits until the checkpoint has passed the Move.
        """
        if not self._sources:
            return True
        changes = [changed_range(operation) for operation in operations]
        return not any(
            source.overlaps(changed) for _, source in self._sources for changed in changes
        )


def resolve_moves(
    operations: Sequence[Operation], read: Callable[[Address, int], bytes]
) -> list[Operation]:
    """Return the operations, with a WriteData instead of each Move that must not be applied twice.

    Such a Move has a source that its own transaction changes: by the Move itself, or by another
    operation. If a replay applied it again, it would copy the changed bytes. The WriteData has the
    bytes that the Move would copy the first time. ``read`` returns bytes as they were before the
    transaction.
    """
    resolved: list[Operation] = []
    for operation in operations:
        if isinstance(operation, Move):
            source = range_at(operation.source, operation.length)
            if any(source.overlaps(changed_range(each)) for each in operations):
                content = read(operation.source, operation.length)
                # ``resolved`` has exactly the operations before this one.
                moved = _bytes_after(resolved, source, content, read)
                resolved.append(WriteData(operation.address, moved))
                continue
        resolved.append(operation)
    return resolved


def _bytes_after(
    operations: Sequence[Operation],
    wanted: RegionRange,
    content: bytes,
    read: Callable[[Address, int], bytes],
) -> bytes:
    """Return the bytes of the range ``wanted`` as they are after ``operations``.

    ``content`` has these bytes before the operations. The transaction does not change the sources
    of the Moves among ``operations``, so ``read`` returns the bytes that these Moves copy.
    """
    result = bytearray(content)
    for operation in operations:
        changed = changed_range(operation)
        if not wanted.overlaps(changed):
            continue
        assert operation.address.region != CATALOGUE_REGION, (
            "a transaction that cuts or removes a file moves nothing from it"
        )
        match operation:
            case WriteData(_, data):
                new = data
            case Move(_, source, length):
                new = read(source, length)
            case Zero(_, length):
                new = bytes(length)
            case Check():
                continue
        start = max(wanted.start, changed.start)
        end = min(wanted.end, changed.end)
        result[start - wanted.start : end - wanted.start] = new[
            start - changed.start : end - changed.start
        ]
    return bytes(result)
