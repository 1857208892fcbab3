"""Define the appends of simulated clients, single or in a batch."""

from __future__ import annotations

from dataclasses import dataclass

from waltz.protocol.batches import BatchedOutcome

Lock = int


class Op:
    """One append that a client tried; the data of each differ."""

    def __init__(self, data: bytes, write: tuple[Lock, ...], read: tuple[Lock, ...]) -> None:
        self.data = data
        self.write = write
        self.read = read
        self.append: tuple[Lock, ...] = ()
        self.mark: int | None = None
        self.batch: Batch | None = None
        self.committed_as: int | None = None
        self.denied = False
        self.refused_by: int | None = None
        """The transaction that took one of its locks, by the server's answer."""

    @property
    def name(self) -> str:
        """The part of the data that identifies the append."""
        return self.data.rstrip(b"\0").decode()

    @property
    def ended(self) -> bool:
        """Whether its client has received its outcome."""
        return self.denied or self.committed_as is not None


@dataclass(eq=False, slots=True)
class Batch:
    """Appends that a client sent as one batch; ``outcomes`` are the server's answer."""

    ops: tuple[Op, ...]
    generation: int = -1
    sessions_before: int = -1
    """The number of store sessions that had opened when it was sent."""
    outcomes: tuple[BatchedOutcome, ...] = ()

    @property
    def name(self) -> str:
        """The names of its first and its last append."""
        return f"batch {self.ops[0].name} to {self.ops[-1].name}"
