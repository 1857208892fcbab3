"""Define the appends of simulated clients, single or in a batch."""

from __future__ import annotations

from dataclasses import dataclass

from waltz.protocol.batches import BatchedOutcome

LockHash = int


class Operation:
    """One append that a client tried, and what the client knows of its outcome.

    The data of each operation differ, so that it is recognized in the log. It takes write and
    append locks, and is refused if one of its write or read locks was taken after ``mark``.
    """

    def __init__(
        self, data: bytes, write_locks: tuple[LockHash, ...], read_locks: tuple[LockHash, ...]
    ) -> None:
        self.data = data
        self.write_locks = write_locks
        self.read_locks = read_locks
        self.append_locks: tuple[LockHash, ...] = ()
        self.mark: int | None = None
        """The mark with which it is sent."""
        self.batch: Batch | None = None
        """The batch that it belongs to, None for a single append."""
        self.committed_as: int | None = None
        """The transaction id, after the answer that it is committed."""
        self.absent = False
        """Whether its client was answered that it is not in the log and never will be."""
        self.refused_by: int | None = None
        """The transaction that took one of its locks, by the server's answer."""

    @property
    def name(self) -> str:
        """The part of the data that identifies the append."""
        return self.data.rstrip(b"\0").decode()


@dataclass(eq=False, slots=True)
class Batch:
    """Appends that a client sent as one batch."""

    ops: tuple[Operation, ...]
    generation: int = -1
    """The generation of the partition when it was sent."""
    sessions_before: int = -1
    """The number of store sessions that had opened when it was sent."""
    outcomes: tuple[BatchedOutcome, ...] = ()
    """The outcomes in the server's answer; empty without an answer."""

    @property
    def name(self) -> str:
        """The names of its first and its last append."""
        return f"batch {self.ops[0].name} to {self.ops[-1].name}"
