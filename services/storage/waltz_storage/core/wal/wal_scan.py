"""Pure. Read all transactions since the checkpoint, and find out how the log ends.

The log ends at the first position without a valid transaction. Usually nothing was written there,
or only transactions of an earlier round of the ring (see `ring`), or a transaction whose writing a
crash interrupted. But there may also be damage: a transaction that was durable and has changed
since. If damage were taken for the end of the log, acknowledged transactions would be lost.

The rule: a transaction is written only when the one before it is durable. So if a valid transaction
follows an invalid one, the invalid one was durable, and the log is damaged. If no valid one
follows, the invalid one is the last transaction, and it is taken for *torn*: a crash has
interrupted its writing, and it was never acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from waltz_storage.core.wal.ring import TransactionId
from waltz_storage.core.wal.transaction_blocks import Transaction, Unreadable, read_transaction
from waltz_storage.core.wal.wal_header import WalHeader


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of the log: the next transaction gets the id ``following``.

    ``torn`` says whether a transaction begins at that position whose writing a crash interrupted.
    """

    following: TransactionId
    torn: bool


class WalDamaged(Exception):
    """The transaction ``id`` was durable, and is not valid any more.

    ``later`` is a valid transaction after it.
    """

    def __init__(self, damaged: TransactionId, later: TransactionId) -> None:
        super().__init__(
            f"the transaction at block {damaged.block} (sequence {damaged.sequence}) is damaged: a "
            f"later one at block {later.block} is valid"
        )
        self.id = damaged
        self.later = later


def scan_transactions(
    header: WalHeader, read_block: Callable[[int], bytes]
) -> Iterator[Transaction | LogEnd]:
    """Yield the transactions since the checkpoint, in order, then the end of the log.

    ``read_block(n)`` returns block ``n`` of the file, and its errors are passed on. Raises
    WalDamaged.
    """
    ring, position = header.ring, header.checkpoint
    while True:
        free = ring.free(header.checkpoint, position)
        at_position = _read_at(header, read_block, position, free)
        if not isinstance(at_position, Transaction):
            break
        yield at_position
        position = ring.after(position, at_position.blocks)
    # The length of the invalid transaction is not known: the next one may begin at any later block
    # of the free space.
    for distance in range(1, free):
        later = ring.after(position, distance)
        if isinstance(_read_at(header, read_block, later, free - distance), Transaction):
            raise WalDamaged(position, later)
    # Of the reasons, only INVALID means that a transaction begins at ``position``. But `_read_at`
    # also returns INVALID if there is no free block, although it has read nothing then.
    yield LogEnd(position, torn=free > 0 and at_position is Unreadable.INVALID)


def _read_at(
    header: WalHeader,
    read_block: Callable[[int], bytes],
    position: TransactionId,
    most_blocks: int,
) -> Transaction | Unreadable:
    """Return the transaction at ``position``, or why there is no valid one.

    The transaction may take at most ``most_blocks``.
    """
    ring = header.ring
    return read_transaction(
        position,
        lambda number: read_block(ring.after(position, number).block),
        most_blocks,
        header.checksum,
    )
