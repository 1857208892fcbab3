"""Test that the checker finds each kind of violation that is planted in a right history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.chaos.checker import Guarantee, Logs, check
from tests.chaos.closures import Closure, acknowledged_at, closures, late_openings
from tests.chaos.history import Append, Event, MarkRead, Outcome, Seen, decode, encode

ACK, REFUSED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.REFUSED, Outcome.UNKNOWN

A = Append("c0", 0, "a", 1.0, 2.0, ACK, 0)
B = Append("c1", 0, "b", 1.5, 3.0, ACK, 1, ("lock-1",), 0)
C = Append("c0", 0, "c", 3.5, 4.0, ACK, 2, ("lock-1",), 1)
D = Append("c1", 0, "d", 3.5, 9.0, UNKNOWN)
E = Append("c0", 0, "e", 4.5, 5.0, REFUSED, -1, ("lock-1",), 1)
F = Append("c1", 0, "f", 9.5, 9.9, ACK, 4)

RIGHT: list[Event] = [
    *(A, B, C, D, E, F),
    MarkRead("m0", 0, 2.0, 2.1, 0),
    MarkRead("m0", 0, 4.0, 4.1, 2),
    MarkRead("m1", 0, 4.2, 4.3, 1),
    Seen("r0", 0, 5.0, 0, ("a", "b")),
    Seen("r0", 0, 9.0, 2, ("c", "d")),
    Seen("r1", 0, 9.0, 1, ("b", "c", "d", "f")),
]
LOG = ("a", "b", "c", "d", "f")


def found(events: Sequence[Event], log: tuple[str, ...] = LOG) -> set[Guarantee]:
    logs: Logs = {0: log}
    return {violation.guarantee for violation in check(events, logs)}


def changed(event: Event, wrong: Event) -> list[Event]:
    assert event in RIGHT
    return [wrong if one == event else one for one in RIGHT]


def test_checker_of_right_history_finds_nothing() -> None:
    assert found(RIGHT) == set()


def test_checker_of_unknown_append_accepts_that_it_is_absent() -> None:
    events = [event for event in RIGHT if not isinstance(event, Seen) and event != F]
    assert found(events, ("a", "b", "c")) == set()


@pytest.mark.parametrize(
    ("events", "log", "guarantee"),
    [
        (RIGHT, ("a", "c", "b", "d", "f"), Guarantee.DURABILITY),
        (RIGHT, ("a", "b", "c", "d"), Guarantee.DURABILITY),
        (RIGHT, (*LOG, "b"), Guarantee.AT_MOST_ONCE),
        (RIGHT, (*LOG, "e"), Guarantee.AT_MOST_ONCE),
        (RIGHT, (*LOG, "never made"), Guarantee.AT_MOST_ONCE),
        (changed(A, replace(A, invoked=3.2, completed=3.4)), LOG, Guarantee.REAL_TIME),
        (changed(D, replace(D, invoked=9.95)), LOG, Guarantee.REAL_TIME),
        (changed(C, replace(C, mark=0)), LOG, Guarantee.LOCKS),
        (changed(D, replace(D, locks=("lock-1",), mark=1)), LOG, Guarantee.LOCKS),
        ([*RIGHT, MarkRead("m0", 0, 4.5, 4.6, 1)], LOG, Guarantee.MARKS),
        ([*RIGHT, MarkRead("m2", 0, 4.5, 4.6, 5)], LOG, Guarantee.MARKS),
        ([*RIGHT, Seen("r2", 0, 9.0, 1, ("b", "d"))], LOG, Guarantee.SAME_LOG),
        ([*RIGHT, Seen("r2", 0, 9.0, 4, ("f", "g"))], LOG, Guarantee.SAME_LOG),
        ([*RIGHT, Seen("r0", 0, 9.5, 3, ("d",))], LOG, Guarantee.DENSE),
        ([*RIGHT, Seen("r0", 0, 9.5, 5, ())], LOG, Guarantee.DENSE),
    ],
)
def test_checker_of_planted_violation_finds_it(
    events: list[Event], log: tuple[str, ...], guarantee: Guarantee
) -> None:
    assert guarantee in found(events, log)


def test_closures_of_gaps_are_measured_and_late_ones_are_violations() -> None:
    times = acknowledged_at(RIGHT, 0)
    assert times == [2.0, 3.0, 4.0, 9.9]
    closed = closures(times, 0, 10.0)
    assert closed == [
        Closure(0, 0.0, 2.0),
        Closure(0, 2.0, 3.0),
        Closure(0, 3.0, 4.0),
        Closure(0, 4.0, 9.9),
    ]
    assert late_openings(closed, faults_ended=5.0, allowed_seconds=5.0) == []
    late = late_openings(closed, faults_ended=4.5, allowed_seconds=5.0)
    assert [violation.guarantee for violation in late] == [Guarantee.AVAILABILITY]


def test_decoded_event_equals_original() -> None:
    assert [decode(encode(event)) for event in RIGHT] == RIGHT
