"""What clients in the simulation try to append, alone or several in a batch."""

from __future__ import annotations

from dataclasses import dataclass

from waltz.protocol.batches import BatchedOutcome

Lock = int


class Op:
    """One append that a client tried: never the same bytes twice."""

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
        """The transaction that is said to have taken one of its locks."""

    @property
    def name(self) -> str:
        """The part of the data that tells appends apart."""
        return self.data.rstrip(b"\0").decode()

    @property
    def ended(self) -> bool:
        """Whether its client knows what became of it."""
        return self.denied or self.committed_as is not None


@dataclass(eq=False, slots=True)
class Batch:
    """Appends that a client tried as one; ``outcomes`` is what the server said of them."""

    ops: tuple[Op, ...]
    generation: int = -1
    sessions_before: int = -1
    """How many store sessions had opened when it was sent."""
    outcomes: tuple[BatchedOutcome, ...] = ()

    @property
    def name(self) -> str:
        """The names of its first append and its last."""
        return f"batch {self.ops[0].name} to {self.ops[-1].name}"
