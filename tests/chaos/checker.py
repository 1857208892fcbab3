"""Decide whether a history keeps the guarantees of docs/promises.md. Pure.

The log at the end is known, and it orders all appends. So nothing has to be searched for: each
guarantee is a comparison of the history with that one order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.history import Append, Event, MarkRead, Outcome, Seen


class Guarantee(StrEnum):
    DURABILITY = "every acknowledged append is in the log, with its id"
    AT_MOST_ONCE = "no append is in the log twice, and none that was refused or never made"
    REAL_TIME = "an append that began after another one was acknowledged comes after it"
    LOCKS = "no append takes a lock that another one took after its mark"
    MARKS = "the high-water mark never goes backwards for a reader, and is never above the log"
    SAME_LOG = "all readers see the same log"
    DENSE = "the ids that a reader sees have no gap and no repetition"
    CLIENTS = "no client fails because of a fault"
    AVAILABILITY = "a partition takes appends soon after the faults have ended"


@dataclass(frozen=True, slots=True)
class Violation:
    guarantee: Guarantee
    partition: int
    text: str


Logs = Mapping[int, Sequence[str]]
"""The keys of the log of each partition at the end, in the order of their ids."""


def check(events: Iterable[Event], logs: Logs) -> list[Violation]:
    """Return what the history violates, except for availability (`closures`).

    A partition whose log could not be read is not checked.
    """
    appends: dict[int, list[Append]] = defaultdict(list)
    marks: dict[int, list[MarkRead]] = defaultdict(list)
    seen: dict[tuple[str, int], list[Seen]] = defaultdict(list)
    for event in events:
        match event:
            case Append():
                appends[event.partition].append(event)
            case MarkRead():
                marks[event.partition].append(event)
            case Seen():
                seen[event.reader, event.partition].append(event)
            case _:
                pass
    found: list[Violation] = []
    for partition, log in logs.items():
        made = appends[partition]
        ordered = _in_log_order(made, log)
        found += _durability(partition, made, log)
        found += _at_most_once(partition, made, log)
        found += _real_time(partition, ordered)
        found += _locks(partition, ordered)
        found += _marks(partition, marks[partition], len(log) - 1)
    for (reader, partition), parts in seen.items():
        if partition not in logs:
            continue
        found += _readers(reader, partition, parts, logs[partition])
    return found


def _in_log_order(made: Iterable[Append], log: Sequence[str]) -> list[tuple[int, Append]]:
    """Return the appends that are in the log with their ids, in the order of the log."""
    by_key = {append.key: append for append in made}
    return [(number, by_key[key]) for number, key in enumerate(log) if key in by_key]


def _durability(partition: int, made: Iterable[Append], log: Sequence[str]) -> Iterator[Violation]:
    for append in made:
        if append.outcome is not Outcome.ACKNOWLEDGED:
            continue
        found = log[append.id] if 0 <= append.id < len(log) else "nothing"
        if found != append.key:
            text = f"{append.key} was acknowledged with id {append.id}, where the log has {found}"
            yield Violation(Guarantee.DURABILITY, partition, text)


def _at_most_once(
    partition: int, made: Sequence[Append], log: Sequence[str]
) -> Iterator[Violation]:
    places: dict[str, int] = {}
    for number, key in enumerate(log):
        if key in places:
            text = f"{key} is in the log with the ids {places[key]} and {number}"
            yield Violation(Guarantee.AT_MOST_ONCE, partition, text)
        places[key] = number
    known = {append.key: append for append in made}
    for key, number in places.items():
        append = known.get(key)
        if append is None or append.outcome is Outcome.REFUSED:
            why = "was never appended" if append is None else "was refused"
            text = f"{key} {why}, but is in the log with id {number}"
            yield Violation(Guarantee.AT_MOST_ONCE, partition, text)


def _real_time(partition: int, ordered: Sequence[tuple[int, Append]]) -> Iterator[Violation]:
    latest: tuple[int, Append] | None = None
    for number, append in ordered:
        # An append without an answer may have taken effect at any time after it began.
        answered = append.outcome is Outcome.ACKNOWLEDGED
        if latest is not None and answered and append.completed < latest[1].invoked:
            text = (
                f"{latest[1].key} ({latest[0]}) began at {latest[1].invoked:.3f}, after "
                f"{append.key} ({number}) was acknowledged at {append.completed:.3f}"
            )
            yield Violation(Guarantee.REAL_TIME, partition, text)
        if latest is None or append.invoked > latest[1].invoked:
            latest = (number, append)


def _locks(partition: int, ordered: Sequence[tuple[int, Append]]) -> Iterator[Violation]:
    taken: dict[str, tuple[int, Append]] = {}
    for number, append in ordered:
        for lock in append.locks:
            before = taken.get(lock)
            if before is not None and before[0] > append.mark:
                text = (
                    f"{append.key} ({number}) has lock {lock} with mark {append.mark}, although "
                    f"{before[1].key} ({before[0]}) took it meanwhile"
                )
                yield Violation(Guarantee.LOCKS, partition, text)
            taken[lock] = (number, append)


def _marks(partition: int, reads: Iterable[MarkRead], end: int) -> Iterator[Violation]:
    last: dict[str, MarkRead] = {}
    for read in sorted(reads, key=lambda one: one.invoked):
        before = last.get(read.client)
        if before is not None and read.mark < before.mark and before.completed <= read.invoked:
            text = f"{read.client} read the mark {read.mark} after {before.mark}"
            yield Violation(Guarantee.MARKS, partition, text)
        if read.mark > end:
            text = f"{read.client} read the mark {read.mark}, but the log ends at {end}"
            yield Violation(Guarantee.MARKS, partition, text)
        if before is None or read.mark >= before.mark:
            last[read.client] = read


def _readers(
    reader: str, partition: int, parts: Iterable[Seen], log: Sequence[str]
) -> Iterator[Violation]:
    expected: int | None = None
    for part in parts:
        if expected is not None and part.first != expected:
            text = f"{reader} received id {part.first} after {expected - 1}"
            yield Violation(Guarantee.DENSE, partition, text)
        for number, key in enumerate(part.keys, part.first):
            there = log[number] if number < len(log) else "nothing"
            if there != key:
                text = f"{reader} received {key} with id {number}, where the log has {there}"
                yield Violation(Guarantee.SAME_LOG, partition, text)
        expected = part.first + len(part.keys)
