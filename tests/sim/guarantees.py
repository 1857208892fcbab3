"""Define the guarantees of the log, and the exception for a broken one."""

from __future__ import annotations

from enum import Enum


class Guarantee(Enum):
    """The guarantees of the log."""

    DURABLE = "committed transactions are on the disks of a quorum, and stay there"
    SAME = "all clients see the same log: no gaps, each transaction once"
    ONCE = "an append is in the log once, or never if its client was answered so"
    LOCKS = "no append is committed whose lock was taken after its client's mark"
    BATCH = "a batch is decided at one instant, and only a fault cuts it to a prefix"
    RANGE = "a range is a part of the committed log, from the requested id up to its mark at most"
    FENCED = "a server that was replaced commits nothing"
    ALIVE = "all work proceeds once faults end, and activity ends when there is no work"
    READABLE = "a replica that takes part can be read from end to end"
    SOUND = "no assertion of the product fails"


class Violation(AssertionError):
    """The log violated ``guarantee``."""

    def __init__(self, guarantee: Guarantee, text: str) -> None:
        super().__init__(text)
        self.guarantee = guarantee
