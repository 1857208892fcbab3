"""Test marks on a disk that the metadata do not confirm: the log is not trusted up to them."""

from __future__ import annotations

import pytest

from waltz.metadata.core.formats import NO_SESSION, UNRESOLVED, ReplicaState
from waltz_server.core.replication.recovery_steps import Copy, Mark, Measure, Step, Truncate
from waltz_server.core.replication.session_recovery import SessionRecovery

_OTHER, _VOTER, _SUSPECT = "r0", "r1", "r2"


@pytest.mark.parametrize(
    ("suspect", "its_session", "cut_at"),
    [
        (ReplicaState(5, 10), 5, 10),
        (ReplicaState(5, 10), 6, 10),
        (ReplicaState(NO_SESSION, 10), 6, 10),
        (ReplicaState(7, 10), 6, 10),
        (ReplicaState(NO_SESSION, 30), 6, 20),
        (ReplicaState(8, UNRESOLVED), 6, 20),
    ],
)
def test_log_is_trusted_up_to_the_lower_of_disk_and_metadata_marks(
    suspect: ReplicaState, its_session: int, cut_at: int
) -> None:
    recovery = _recovery(suspect)
    recovery.introduced(_SUSPECT, its_session, 20, 20)
    assert recovery.take_steps() == [(_SUSPECT, Truncate(cut_at, 20 if cut_at < 20 else None))]


def test_replica_cut_below_its_mark_is_filled_before_a_new_mark() -> None:
    """A storage refuses a mark while its log ends below the one that it has."""
    recovery = _recovery(ReplicaState(5, 10))
    for voter in (_OTHER, _VOTER):
        recovery.introduced(voter, 8, 12, 12)
    recovery.introduced(_SUSPECT, 6, 20, 20)
    recovery.take_steps()
    for voter in (_OTHER, _VOTER):
        recovery.measured(voter, 25)
    assert recovery.mark == 25
    recovery.cut(_SUSPECT, 10)
    steps: list[Step] = []
    while due := dict(recovery.take_steps()).get(_SUSPECT):
        steps.append(due)
        match due:
            case Copy(_, first, count):
                recovery.copied(_SUSPECT, first + count - 1)
            case Truncate(to):
                recovery.cut(_SUSPECT, to)
            case Mark():
                recovery.marked(_SUSPECT)
    assert steps == [Copy(_OTHER, 11, 8), Copy(_OTHER, 19, 7), Truncate(25), Mark(25)]


def test_vote_may_resolve_less_than_the_mark_of_a_session_that_never_opened() -> None:
    recovery = _recovery(ReplicaState(5, 10))
    recovery.introduced(_SUSPECT, 6, 20, 20)
    recovery.introduced(_VOTER, 8, 12, 12)
    recovery.introduced(_OTHER, 8, 12, 12)
    recovery.take_steps()
    recovery.cut(_SUSPECT, 10)
    recovery.measured(_VOTER, 15)
    recovery.measured(_OTHER, 15)
    assert recovery.mark == 15


def test_quorum_that_holds_the_mark_of_an_unopened_session_needs_no_voter() -> None:
    """Session 9 resolved 30 and died: one replica has its mark and lags, the other was filled.

    The third replica, the only one whose position is still a vote, is absent. The two others are a
    quorum, and together they hold everything up to 30.
    """
    last = {
        "lagging": ReplicaState(8, UNRESOLVED),
        "absent": ReplicaState(8, UNRESOLVED),
        "filled": ReplicaState(5, 10),
    }
    recovery = SessionRecovery(10, 1, tuple(last), last, 20)
    ends = {"lagging": 15, "filled": 30}
    recovery.introduced("lagging", 9, 30, 15)
    recovery.introduced("filled", 9, 10, 10)
    while due := recovery.take_steps():
        for name, step in due:
            match step:
                case Measure():
                    recovery.measured(name, ends[name])
                case Truncate(to):
                    assert to == 30
                    recovery.cut(name, ends[name])
                case Copy(_, first, count):
                    ends[name] = first + count - 1
                    recovery.copied(name, ends[name])
                case Mark():
                    recovery.marked(name)
    assert recovery.mark == 30
    assert recovery.recovered() == {"lagging", "filled"}


def test_resolved_mark_relies_on_a_counted_replica_until_a_quorum_has_the_session() -> None:
    recovery = _resolved(9, 9, 9)
    for name in ("r0", "r1", "r2"):
        recovery.cut(name, 9)
    recovery.take_steps()
    relied = [recovery.relies_on(name) for name in ("r0", "r1", "r2")]
    assert relied == [True, True, False], "two positions were counted when the mark was resolved"
    recovery.marked("r0")
    assert [recovery.relies_on(name) for name in ("r0", "r1")] == [False, True]
    recovery.marked("r2")
    assert [recovery.relies_on(name) for name in ("r0", "r1")] == [False, False]


def test_source_that_could_not_be_read_is_not_asked_for_the_same_record_again() -> None:
    recovery = _resolved(9, 9, 5)
    recovery.marked("r2")
    assert dict(recovery.take_steps())["r2"] == Copy("r0", 6, 4)
    recovery.not_copied("r2", "r0")
    assert dict(recovery.take_steps())["r2"] == Copy("r1", 6, 4)
    recovery.not_copied("r2", "r1")
    assert "r2" not in dict(recovery.take_steps())
    assert "cannot be read: r0, r1" in recovery.waiting_for()


def test_source_that_could_not_be_read_is_asked_for_later_records() -> None:
    """It is asked if the other source cannot be read there."""
    recovery = _resolved(9, 9, 5)
    recovery.marked("r2")
    recovery.take_steps()
    recovery.not_copied("r2", "r0")
    recovery.take_steps()
    recovery.copied("r2", 7)
    assert dict(recovery.take_steps())["r2"] == Copy("r1", 8, 2)
    assert "cannot be read" not in recovery.waiting_for()
    recovery.not_copied("r2", "r1")
    assert dict(recovery.take_steps())["r2"] == Copy("r0", 8, 2)


def test_replica_that_has_the_mark_but_lacks_records_is_closed_in_the_metadata() -> None:
    """Its log is trusted up to the mark. The session counts it only after it has caught up."""
    recovery = _resolved(9, 9, 5)
    recovery.marked("r2")
    for name in ("r0", "r1"):
        recovery.cut(name, 9)
    recovery.take_steps()
    for name in ("r0", "r1"):
        recovery.marked(name)
    states = recovery.metadata().replicas
    assert states["r2"] == ReplicaState(9, 9)
    assert states["r0"] == states["r1"] == ReplicaState(9, UNRESOLVED)


def _resolved(*ends: int) -> SessionRecovery:
    """Return the recovery of voters with logs up to ``ends``; each has a step under way."""
    last = {f"r{number}": ReplicaState(8, UNRESOLVED) for number in range(len(ends))}
    recovery = SessionRecovery(9, 1, tuple(last), last, 8)
    for name in last:
        recovery.introduced(name, 8, -1, -1)
    recovery.take_steps()
    for name, end in zip(last, ends, strict=True):
        recovery.measured(name, end)
    assert recovery.mark == max(ends)
    recovery.take_steps()
    return recovery


def _recovery(suspect: ReplicaState) -> SessionRecovery:
    voter = ReplicaState(8, UNRESOLVED)
    last = {_OTHER: voter, _VOTER: voter, _SUSPECT: suspect}
    return SessionRecovery(9, 1, tuple(last), last, 8)


def test_replica_below_its_local_mark_is_not_counted() -> None:
    """Its disk lost records that it had when it got its mark: it does not lag."""
    recovery = _recovery(ReplicaState(8, UNRESOLVED))
    recovery.introduced(_SUSPECT, 8, 20, 20)
    recovery.introduced(_VOTER, 8, 20, 15)
    recovery.take_steps()
    recovery.measured(_SUSPECT, 12)
    recovery.measured(_VOTER, 15)
    assert recovery.mark is None
    assert recovery.take_steps() == []
    assert f"lost records below its own mark: {_SUSPECT}" in recovery.waiting_for()
    assert f"{_SUSPECT} has lost records" in recovery.summary()
    recovery.introduced(_OTHER, 8, 20, 20)
    recovery.take_steps()
    recovery.measured(_OTHER, 25)
    assert recovery.take_steps() == [(_VOTER, Copy(_OTHER, 16, 8))]
