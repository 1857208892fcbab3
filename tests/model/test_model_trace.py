"""Test that a replay allows a correct session, and forbids each kind of wrong step."""

from __future__ import annotations

import pytest

from tests.model import trace
from tests.model.trace import Began, Event, Forbidden, Replay
from tests.model.values import Do, Entry

_VOTER = Entry(6, None)
_BEGAN = Began(7, {"a": _VOTER, "b": _VOTER, "c": Entry(6, 3)}, ("a", "b", "c"))

_RIGHT: list[Event] = [
    trace.Introduced("a", 6, 3, 3),
    trace.Asked("a", Do.MEASURE),
    trace.Measured("a", 9),
    trace.Introduced("b", 6, 3, 3),
    trace.Asked("b", Do.MEASURE),
    trace.Measured("b", 9),
    trace.Resolved(9),
    trace.Asked("a", Do.CUT, 9),
    trace.Cut("a", 9),
    trace.Asked("a", Do.MARK, 9),
    trace.Marked("a"),
    trace.Asked("b", Do.CUT, 9),
    trace.Cut("b", 9),
    trace.Asked("b", Do.MARK, 9),
    trace.Marked("b"),
    trace.Writing({"a": Entry(7, None), "b": Entry(7, None), "c": Entry(6, 3)}),
    trace.Written(),
    trace.Opened(9),
    trace.Acknowledged("a", 10),
    trace.Introduced("c", 6, 3, 3),
    trace.Asked("c", Do.CUT, 3),
    trace.Cut("c", 3),
    trace.Acknowledged("b", 10),
    trace.Committed(10),
]

_WRONG: list[tuple[int, Event]] = [
    (3, trace.Resolved(9)),
    (3, trace.Asked("a", Do.CUT, 8)),
    (6, trace.Resolved(8)),
    (6, trace.Asked("a", Do.CUT, 8)),
    (6, trace.Asked("b", Do.MARK, 9)),
    (9, trace.Asked("a", Do.MARK, 10)),
    (11, trace.Writing({"a": Entry(7, None), "b": Entry(7, None), "c": Entry(6, 3)})),
    (15, trace.Writing({"a": Entry(7, None), "b": Entry(7, None), "c": Entry(7, None)})),
    (16, trace.Opened(9)),
    (19, trace.Committed(10)),
    (20, trace.Asked("c", Do.MEASURE)),
    (22, trace.Asked("c", Do.MARK, 8)),
    (22, trace.Acknowledged("c", 10)),
    (24, trace.Committed(11)),
]


def replay(events: list[Event]) -> Replay:
    result = Replay.of(_BEGAN)
    for event in events:
        result = result.after(event)
    return result


def test_replay_of_correct_session_allows_every_event() -> None:
    assert replay(_RIGHT).session.mark == 9


@pytest.mark.parametrize(("place", "wrong"), _WRONG)
def test_replay_of_wrong_step_forbids_it(place: int, wrong: Event) -> None:
    before = replay(_RIGHT[:place])
    with pytest.raises(Forbidden):
        before.after(wrong)


def test_replay_forbids_session_whose_id_was_used() -> None:
    with pytest.raises(Forbidden, match="already"):
        Replay.of(Began(6, {"a": _VOTER}, ("a",)))


def test_replay_forbids_event_after_loss_of_counted_replica() -> None:
    lost = replay(_RIGHT[:7]).after(trace.Lost("a"))
    with pytest.raises(Forbidden, match="must have ended"):
        lost.after(trace.Resolved(9))


def test_replay_after_refusal_of_one_replica_goes_on_without_it() -> None:
    refused = replay(_RIGHT[:6]).after(trace.Refused("a"))
    with pytest.raises(Forbidden, match="its step is None"):
        refused.after(trace.Asked("a", Do.MARK, 9))


def test_replay_allows_a_copy_from_an_unreadable_source_only_after_a_retry() -> None:
    from_a = trace.Asked("c", Do.COPY, 4, 6, "a")
    waiting = replay(
        [
            *_RIGHT,
            trace.Asked("c", Do.MARK, 9),
            trace.Marked("c"),
            from_a,
            trace.NotCopied("c"),
            trace.Asked("c", Do.COPY, 4, 6, "b"),
            trace.NotCopied("c"),
        ]
    )
    with pytest.raises(Forbidden, match="its step is None"):
        waiting.after(from_a)
    waiting.after(trace.SourcesRetried()).after(from_a)


def test_replay_allows_copies_only_from_the_source_with_the_fewest_failures() -> None:
    marked = replay([*_RIGHT, trace.Asked("c", Do.MARK, 9), trace.NotRead("a", 20)])
    copying = marked.after(trace.Marked("c"))
    copying.after(trace.Asked("c", Do.COPY, 4, 6, "b"))
    with pytest.raises(Forbidden, match="from b is due"):
        copying.after(trace.Asked("c", Do.COPY, 4, 6, "a"))
