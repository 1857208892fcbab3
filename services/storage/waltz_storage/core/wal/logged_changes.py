"""Pure. Which bytes the operations in the log change, so that no hazard is written.

Between the checkpoint and the end of the log, each operation may be applied again after the ones
behind it. Two kinds of changes would make that wrong (docs/decisions/write-ahead-log.md, invariants
3 and 4): direct data on bytes that an earlier operation changes, and a change of the source of an
earlier Move. This module finds both before they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from waltz_storage.core.wal.catalogue import CATALOGUE_REGION, ROW_BYTES
from waltz_storage.core.wal.operations import Address, Check, Move, Operation, WriteData, Zero
from waltz_storage.core.wal.ring import TransactionId

_EVERYTHING = 1 << 40
"""The end of the largest region."""


@dataclass(frozen=True, slots=True)
class Range:
    """The bytes of a region from ``start`` to before ``end``."""

    region: int
    start: int
    end: int

    def overlaps(self, other: Range) -> bool:
        """Return whether the two ranges share a byte."""
        return self.region == other.region and self.start < other.end and other.start < self.end


def range_at(address: Address, length: int) -> Range:
    """Return the range of ``length`` bytes at ``address``."""
    return Range(address.region, address.offset, address.offset + length)


def changed_range(operation: Operation) -> Range:
    """Return the bytes that an operation changes.

    A Check stands for its direct data. A row changes its whole file.
    """
    address = operation.address
    if address.region == CATALOGUE_REGION:
        return Range(address.offset // ROW_BYTES, 0, _EVERYTHING)
    match operation:
        case WriteData(_, data):
            return range_at(address, len(data))
        case Move(_, _, length) | Zero(_, length) | Check(_, length, _):
            return range_at(address, length)


@dataclass(slots=True)
class _Changes:
    """The changes of one region in the log."""

    last: TransactionId
    """The last transaction that changes the region."""
    end: int = 0
    """No byte from here on was changed since the last row."""
    row: TransactionId | None = None
    """The last transaction that writes the region's row."""


class LoggedChanges:
    """The changes of all transactions since the checkpoint, and of the one being written.

    The record is coarse: it may report a hazard that is none, never the opposite.
    """

    def __init__(self) -> None:
        self._regions: dict[int, _Changes] = {}
        self._sources: list[tuple[TransactionId, Range]] = []

    def add(self, transaction: TransactionId, operations: Iterable[Operation]) -> None:
        """Add a transaction that is going to be written."""
        for operation in operations:
            changed = changed_range(operation)
            found = self._regions.setdefault(changed.region, _Changes(transaction))
            found.last = transaction
            if operation.address.region == CATALOGUE_REGION:
                # The row covers the changes before it, too.
                found.row, found.end = transaction, 0
            else:
                found.end = max(found.end, changed.end)
            if isinstance(operation, Move):
                source = range_at(operation.source, operation.length)
                self._sources.append((transaction, source))

    def forget(self, checkpoint: TransactionId) -> None:
        """Remove the transactions before ``checkpoint``, which must be durable."""
        for region, changes in list(self._regions.items()):
            if changes.last < checkpoint:
                del self._regions[region]
            elif changes.row is not None and changes.row < checkpoint:
                changes.row = None
        self._sources = [each for each in self._sources if each[0] >= checkpoint]

    def allow_direct(self, data: Range) -> bool:
        """Return whether ``data`` may be written directly (invariants 3 and 4)."""
        changes = self._regions.get(data.region)
        if changes is not None and (changes.row is not None or changes.end > data.start):
            return False
        return not any(source.overlaps(data) for _, source in self._sources)

    def allow(self, operations: Iterable[Operation]) -> bool:
        """Return whether no operation changes the source of a Move in the log (invariant 4).

        If one does, the transaction waits until the checkpoint has passed the Move.
        """
        if not self._sources:
            return True
        changed = [changed_range(operation) for operation in operations]
        return not any(source.overlaps(each) for _, source in self._sources for each in changed)


def resolve_moves(
    operations: Sequence[Operation], read: Callable[[Address, int], bytes]
) -> list[Operation]:
    """Return the operations, with a WriteData instead of each Move that may not be applied twice.

    These are the Moves whose source is changed by the same transaction: by the Move itself, or by
    an operation after it or before it. ``read`` returns bytes as they are before the transaction.
    """
    resolved: list[Operation] = []
    for number, operation in enumerate(operations):
        if isinstance(operation, Move):
            source = range_at(operation.source, operation.length)
            if any(source.overlaps(changed_range(each)) for each in operations):
                before = resolved[:number]
                data = _bytes_after(before, source, read(operation.source, operation.length), read)
                resolved.append(WriteData(operation.address, data))
                continue
        resolved.append(operation)
    return resolved


def _bytes_after(
    operations: Sequence[Operation],
    wanted: Range,
    content: bytes,
    read: Callable[[Address, int], bytes],
) -> bytes:
    """Return the bytes of ``wanted``, which are ``content``, after ``operations``.

    The sources of the Moves among ``operations`` do not change in the transaction, so ``read``
    returns the bytes that they move.
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
