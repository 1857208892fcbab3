"""Pure. The ids of the transactions of a write-ahead log (WAL), and the space of its ring.

A transaction here is a list of operations on files (see `waltz_storage.core.wal`). It is not a
transaction of a client, and its id is not the transaction id of a record.

The blocks of a WAL are a ring: the block after the last one is the first one. A transaction begins
where the previous one ends. Its id is its position: the low 32 bits are the number of its first
block in the file, the high 32 bits are the *sequence*, which grows by one each time the log wraps.
So ids grow, and an id shows where its transaction is. Each block has the id of its transaction in
its header (`transaction_blocks`). So a block that is left over from an earlier round of the ring is
recognized: the id in it is lower than that of the transaction that belongs there.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_BYTES = 4096
_BLOCK_BITS = 32
_BLOCK_MASK = (1 << _BLOCK_BITS) - 1


@dataclass(frozen=True, slots=True, order=True)
class TransactionId:
    """The id of a transaction of the WAL: ids are ordered as the transactions are."""

    sequence: int
    block: int

    def __post_init__(self) -> None:
        assert 0 <= self.sequence <= _BLOCK_MASK, "a sequence has 32 bits"
        assert 0 <= self.block <= _BLOCK_MASK, "a block number has 32 bits"

    @property
    def value(self) -> int:
        """The id as the 64-bit number on disk."""
        return (self.sequence << _BLOCK_BITS) | self.block

    @classmethod
    def of(cls, value: int) -> TransactionId:
        """Return the id with the 64-bit number ``value``."""
        return cls(value >> _BLOCK_BITS, value & _BLOCK_MASK)


@dataclass(frozen=True, slots=True)
class Ring:
    """The blocks of the file that hold transactions: ``count`` blocks from block ``first`` on."""

    first: int
    count: int

    def __post_init__(self) -> None:
        assert self.count >= 2, "one block stays unused, see `free`"
        assert self.first + self.count <= 1 << _BLOCK_BITS, "a block number has 32 bits"

    @property
    def start(self) -> TransactionId:
        """The id of the first transaction of a new log."""
        return TransactionId(1, self.first)

    def after(self, begin: TransactionId, blocks: int) -> TransactionId:
        """Return the id of the transaction that follows one at ``begin`` with ``blocks`` blocks."""
        assert 0 <= blocks <= self.count, "a transaction is not larger than the ring"
        offset = begin.block - self.first + blocks
        return TransactionId(
            begin.sequence + offset // self.count, self.first + offset % self.count
        )

    def distance(self, begin: TransactionId, end: TransactionId) -> int:
        """Return the number of blocks from ``begin`` to ``end``, which is not before ``begin``."""
        assert begin <= end, "ids grow"
        return (end.sequence - begin.sequence) * self.count + end.block - begin.block

    def free(self, oldest: TransactionId, following: TransactionId) -> int:
        """Return how many blocks the next transaction, with the id ``following``, may have.

        ``oldest`` is the oldest transaction that is still needed. One block always stays unused.
        Otherwise the position after a full ring would be the position of its oldest transaction.
        """
        return self.count - 1 - self.distance(oldest, following)

    def pieces(self, block: int, blocks: int) -> list[tuple[int, int]]:
        """Return the one or two extents in the file of ``blocks`` blocks from ``block`` on.

        An extent is the number of its first block and its number of blocks. A range that goes
        beyond the end of the ring continues at the ring's first block, and has two extents.
        """
        until_end = self.first + self.count - block
        if blocks <= until_end:
            return [(block, blocks)]
        return [(block, until_end), (self.first, blocks - until_end)]
