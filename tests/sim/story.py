"""What happened in a life, in order: for people, and counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, NamedTuple

from tests.sim.clock import Clock
from waltz.protocol import RecordBatch, ReqId


class Line(NamedTuple):
    """One thing that happened. A ``detail`` is only of interest near what it led to."""

    time: float
    who: str
    text: str
    detail: bool = False


class Story:
    """Collects lines and counters. Details cost time and are only kept if they are wanted."""

    def __init__(self, clock: Clock, detailed: bool = False) -> None:
        self.detailed = detailed
        self.counters: Counter[str] = Counter()
        self.lines: list[Line] = []
        self.faults = 0
        self._clock = clock

    def tell(self, who: str, text: str) -> None:
        """Remember that ``who`` did, or suffered, something."""
        self.lines.append(Line(self._clock.now, who, text))

    def fault(self, who: str, name: str, more: str = "") -> None:
        """Count a fault that was injected, and tell it."""
        self.faults += 1
        self.counters[f"fault: {name}"] += 1
        self.tell(who, f"FAULT {name}{more}")

    def detail(self, who: str, text: str, *values: object) -> None:
        """Remember something small, if it is wanted: ``text`` with ``values`` put in."""
        if self.detailed:
            told = text.format(*(_brief(value) for value in values))
            self.lines.append(Line(self._clock.now, who, told, detail=True))

    def notes(self, names: list[str]) -> list[str]:
        """Return the texts of ``names``, without details."""
        wanted = set(names)
        return [line.text for line in self.lines if line.who in wanted and not line.detail]

    def recount(self, until: float, detail_seconds: float) -> str:
        """Return the story up to ``until``, details only of the last ``detail_seconds``."""
        since = until - detail_seconds
        return "\n".join(
            f"{line.time:10.4f}  {line.who:<11} {line.text}"
            for line in self.lines
            if line.time >= since or not line.detail
        )


_UNTOLD = {"partition", "seq_num", "checksum", "header"}


def _brief(value: Any) -> str:
    """Return a message in few words."""
    match value:
        case RecordBatch():
            first = value.first_id() if value.count else None
            return f"{first}..{first + value.count - 1}" if first is not None else "nothing"
        case ReqId():
            return f"{value.client_id}/{value.generation}/{value.seq}"
        case bytes():
            return value.rstrip(b"\0").decode(errors="replace")
        case tuple() if len(value) > 8:
            return f"{len(value)} of {type(value[0]).__name__}"
        case Enum():
            return value.name
        case _ if is_dataclass(value):
            told = (f.name for f in fields(value) if f.name not in _UNTOLD)
            parts = (f"{name}={_brief(getattr(value, name))}" for name in told)
            return f"{type(value).__name__}({', '.join(parts)})"
        case _:
            return str(value)
