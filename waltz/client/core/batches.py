"""The outcomes that an append of a batch can have, as values of the public API. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Appended:
    """The append is in the log."""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The append is not in the log: the transaction ``conflict`` took one of its locks."""

    conflict: int


@dataclass(frozen=True, slots=True)
class Absent:
    """The append is not in the log and never will be, because of a fault. Append it again."""


BatchOutcome = Appended | Refused | Absent
