"""Pure. Divide operations that are too large for one transaction.

Only records may be divided: a crash between two parts leaves a prefix of them, which recovery cuts
at the last whole record. Changes that belong together, such as a row and a mark, are much smaller
than a transaction, and are passed in a call of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from waltz_storage.core.wal.operations import Address, Operation, WriteData, encoded_bytes

_WRITE_HEAD_BYTES = 16


def divide(operations: Iterable[Operation], most_bytes: int) -> Iterator[list[Operation]]:
    """Yield groups of operations, in order, of at most ``most_bytes`` encoded bytes each.

    A WriteData that is too large for one group is divided into several.
    """
    assert most_bytes > _WRITE_HEAD_BYTES, "a group must have room for a byte"
    group: list[Operation] = []
    size = 0
    for operation in operations:
        for part in _parts(operation, most_bytes):
            length = encoded_bytes(part)
            assert length <= most_bytes, "only a WriteData can be divided"
            if group and size + length > most_bytes:
                yield group
                group, size = [], 0
            group.append(part)
            size += length
    if group:
        yield group


def _parts(operation: Operation, most_bytes: int) -> Iterator[Operation]:
    step = most_bytes - _WRITE_HEAD_BYTES
    if not isinstance(operation, WriteData) or len(operation.data) <= step:
        yield operation
        return
    region, offset = operation.address.region, operation.address.offset
    for position in range(0, len(operation.data), step):
        part = operation.data[position : position + step]
        yield WriteData(Address(region, offset + position), part)
