"""Define the steps of a recovery: what one replica is to do next. Pure.

`session_recovery` decides the steps; `recovery_messages` converts them to requests.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measure:
    """Read the replica's position, which is its last transaction id."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the replica's log after ``transaction_id``."""

    transaction_id: int
    unconfirmed_mark: int | None = None
    """The low-water mark on the disk if the log is cut below this mark, else None.

    A session that never opened may have written a mark that is too high. A storage refuses to cut
    its log below its mark, unless the request names this mark.
    """


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy up to ``count`` records from ``source`` to the replica, beginning with ``first_id``."""

    source: str
    first_id: int
    count: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Write the new session's id and this low-water mark to the replica's disk."""

    low_water_mark: int


Step = Measure | Truncate | Copy | Mark


def cut_log(transaction_id: int, low_water_mark: int) -> Truncate:
    """Return the step that cuts a log after ``transaction_id``; its disk has ``low_water_mark``."""
    is_below_mark = transaction_id < low_water_mark
    return Truncate(transaction_id, low_water_mark if is_below_mark else None)
