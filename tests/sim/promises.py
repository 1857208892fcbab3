"""What the log promises, and what is raised when a promise is broken."""

from __future__ import annotations

from enum import Enum


class Promise(Enum):
    """What the log promises."""

    DURABLE = "what is committed is on the disks of a quorum, and stays"
    SAME = "everybody sees the same log: no gaps, each transaction once"
    ONCE = "an append is in the log once, or never if its client was told so"
    LOCKS = "nobody gets in under a lock that was taken after what he had seen"
    BATCH = "a batch is decided at one instant, and only a fault cuts it to a prefix"
    RANGE = "a range is the committed log, from where it was asked for to at most its mark"
    FENCED = "a deposed server commits nothing"
    ALIVE = "everything goes on once faults end, and rests when nothing is to be done"
    READABLE = "a replica that takes part can be read from end to end"
    SOUND = "no assertion of the product fails"


class Violation(AssertionError):
    """The log broke ``promise``."""

    def __init__(self, promise: Promise, text: str) -> None:
        super().__init__(text)
        self.promise = promise
