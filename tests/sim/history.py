"""Record the events of a run as lines to read and as counters."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, NamedTuple

from tests.sim.loop_clock import LoopClock
from waltz.protocol import RecordBatch, ReqId
from waltz.protocol.stored import StoredBatch


class Line(NamedTuple):
    """One event of the component ``who``. A ``detail`` is shown only near the end of a run."""

    time: float
    who: str
    text: str
    detail: bool = False


class History:
    """Collects lines and counters. Details cost time and are kept only if ``detailed``."""

    def __init__(self, clock: LoopClock, detailed: bool = False) -> None:
        self.detailed = detailed
        self.counters: Counter[str] = Counter()
        self.lines: list[Line] = []
        self.faults = 0
        """The number of injected faults."""
        self._clock = clock

    def note(self, who: str, text: str) -> None:
        """Add an event of the component ``who``."""
        self.lines.append(Line(self._clock.now, who, text))

    def fault(self, who: str, name: str, more: str = "") -> None:
        """Count an injected fault, and add it as an event."""
        self.faults += 1
        self.counters[f"fault: {name}"] += 1
        self.note(who, f"FAULT {name}{more}")

    def detail(self, who: str, text: str, *values: object) -> None:
        """Add a detail, if they are kept: ``text`` with ``values`` inserted."""
        if self.detailed:
            full = text.format(*(_brief(value) for value in values))
            self.lines.append(Line(self._clock.now, who, full, detail=True))

    def notes(self, names: list[str]) -> list[str]:
        """Return the texts of the events of the components ``names``, without details."""
        wanted = set(names)
        return [line.text for line in self.lines if line.who in wanted and not line.detail]

    def render(self, until: float, detail_seconds: float) -> str:
        """Return the history up to ``until``, details only of the last ``detail_seconds``."""
        since = until - detail_seconds
        return "\n".join(
            f"{line.time:10.4f}  {line.who:<11} {line.text}"
            for line in self.lines
            if line.time >= since or not line.detail
        )


_OMITTED = {"partition", "seq_num", "checksum", "header"}
"""The fields of messages that are not shown in details."""


def _brief(value: Any) -> str:
    """Return a short text for a message."""
    match value:
        case RecordBatch():
            first = value.first_id() if value.count else None
            return f"{first}..{first + value.count - 1}" if first is not None else "nothing"
        case StoredBatch():
            return f"{value.count} as they lie on a disk"
        case ReqId():
            return f"{value.client_id}/{value.generation}/{value.seq}"
        case bytes():
            return value.rstrip(b"\0").decode(errors="replace")
        case tuple() if len(value) > 8:
            return f"{len(value)} of {type(value[0]).__name__}"
        case Enum():
            return value.name
        case _ if is_dataclass(value):
            shown = (f.name for f in fields(value) if f.name not in _OMITTED)
            parts = (f"{name}={_brief(getattr(value, name))}" for name in shown)
            return f"{type(value).__name__}({', '.join(parts)})"
        case _:
            return str(value)
