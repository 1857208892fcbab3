"""What becomes of each append of a batch, as the API tells it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Appended:
    """This append of a batch is in the log."""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Not in the log: the transaction ``conflict`` took one of its locks after the mark."""

    conflict: int


@dataclass(frozen=True, slots=True)
class Absent:
    """Not in the log, and it never will be: a fault came between. It may be appended anew."""


BatchOutcome = Appended | Refused | Absent
