"""The history of a run: what clients did and saw, and which faults there were. Pure.

Each event is one line of JSON in ``history.jsonl``. Times are seconds since the beginning of the
run. The key of an append is its data, which no other append has.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How an append ended for the client that made it."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """The transaction is not in the log and never will be."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Append:
    """An append. ``mark`` is the id that the decision was based on, ``locks`` the locks taken."""

    client: str
    partition: int
    key: str
    invoked: float
    completed: float
    outcome: Outcome
    id: int = -1
    locks: tuple[str, ...] = ()
    mark: int = -1


@dataclass(frozen=True, slots=True)
class MarkRead:
    """A read of the high-water mark."""

    client: str
    partition: int
    invoked: float
    completed: float
    mark: int


@dataclass(frozen=True, slots=True)
class Seen:
    """Transactions that a reader received, from the id ``first`` on, without gaps."""

    reader: str
    partition: int
    at: float
    first: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, from ``began`` to ``ended``; ``group`` is the row of the timeline."""

    group: str
    name: str
    target: str
    began: float
    ended: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """An event that is neither, for people: a process ended by itself, faults are over."""

    at: float
    text: str


Event = Append | MarkRead | Seen | Fault | Note

_TYPES: dict[str, Any] = {
    "append": Append,
    "mark": MarkRead,
    "seen": Seen,
    "fault": Fault,
    "note": Note,
}
_NAMES = {kind: name for name, kind in _TYPES.items()}


def encode(event: Event) -> str:
    """Return the line of an event, without a line end."""
    return json.dumps({"event": _NAMES[type(event)], **asdict(event)}, separators=(",", ":"))


def decode(line: str) -> Event:
    """Return the event of a line."""
    fields = json.loads(line)
    kind = _TYPES[fields.pop("event")]
    for name in ("locks", "keys"):
        if name in fields:
            fields[name] = tuple(fields[name])
    if "outcome" in fields:
        fields["outcome"] = Outcome(fields["outcome"])
    event: Event = kind(**fields)
    return event
