"""Replicas fail at any point of a recovery: nothing committed is cut, the others recover."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.metadata.core.formats import UNRESOLVED, ReplicaState
from waltz_server.core.replication.recovery_steps import Copy, Mark, Measure, Step, Truncate
from waltz_server.core.replication.session_recovery import SessionRecovery

_EMPTIED = -1


@dataclass
class Run:
    """A recovery of replicas that were all in the last session, which held up to ``ends``."""

    ends: list[int]
    recovery: SessionRecovery = field(init=False)
    due: list[tuple[str, Step]] = field(default_factory=list)
    here: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.last = {f"r{i}": end for i, end in enumerate(self.ends)}
        self.quorum = len(self.ends) // 2 + 1
        self.committed = sorted(self.ends, reverse=True)[self.quorum - 1]
        states = dict.fromkeys(self.last, ReplicaState(0, UNRESOLVED))
        self.recovery = SessionRecovery(1, 1, tuple(self.last), states, 2)

    def introduce(self, name: str) -> None:
        if name not in self.here | self.left:
            self.here.add(name)
            self.recovery.introduced(name, 0, -1, -1)
            self.due += self.recovery.take_steps()

    def leave(self, name: str, *, emptied: bool) -> None:
        if name in self.here:
            self.here.discard(name)
            self.left.add(name)
            self.due = [entry for entry in self.due if entry[0] != name]
            self.recovery.failed(name)
            if emptied:
                self.last[name] = _EMPTIED

    def perform(self, number: int) -> None:
        if not self.due:
            return
        name, step = self.due.pop(number % len(self.due))
        match step:
            case Measure():
                self.recovery.measured(name, self.last[name])
            case Truncate(to):
                self.last[name] = min(self.last[name], to)
                self.recovery.cut(name, self.last[name])
            case Mark():
                self.recovery.marked(name)
            case Copy(source) if source in self.left:
                self.recovery.not_copied(name, source)
            case Copy(_, first, count):
                assert first == self.last[name] + 1
                self.last[name] += count
                self.recovery.copied(name, self.last[name])
        self.due += self.recovery.take_steps()
        self.check()

    def check(self) -> None:
        mark = self.recovery.mark
        if mark is not None:
            assert mark >= self.committed, "a committed transaction is cut"
        recovered = self.recovery.recovered()
        assert recovered <= self.here, "one that left opens no session"
        assert all(self.last[name] == mark for name in recovered)
        if len(recovered) >= self.quorum:
            for name, state in self.recovery.metadata().replicas.items():
                assert (state.closing_mark == UNRESOLVED) == (name in recovered)


_NUMBERS = st.integers(0, 4)
_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("introduce"), _NUMBERS),
        st.tuples(st.just("perform"), _NUMBERS),
        st.tuples(st.just("perform"), _NUMBERS),
        st.tuples(st.just("leave"), _NUMBERS),
        st.tuples(st.just("empty"), _NUMBERS),
    ),
    max_size=40,
)
_ENDS = st.one_of(
    *(st.lists(st.integers(0, 6), min_size=size, max_size=size) for size in (1, 3, 4, 5))
)


@given(_ENDS, _EVENTS)
@settings(max_examples=500)
def test_failing_replica_cuts_nothing_and_blocks_no_other(
    ends: list[int], events: list[tuple[str, int]]
) -> None:
    run = Run(ends)
    names = list(run.last)
    for event, number in events:
        match event:
            case "introduce":
                run.introduce(names[number % len(names)])
            case "perform":
                run.perform(number)
            case _:
                run.leave(names[number % len(names)], emptied=event == "empty")
        run.check()
    for name in names:
        run.introduce(name)
    while run.due:
        run.perform(0)
    assert not run.recovery.is_at_work()
    if len(run.here) >= run.quorum:
        assert run.recovery.recovered() == run.here


def test_vote_of_a_failed_replica_supports_no_position() -> None:
    run = Run([9, 9, 5])
    for name in ("r0", "r2"):
        run.introduce(name)
    run.perform(0)
    run.leave("r0", emptied=True)
    while run.due:
        run.perform(0)
    assert run.recovery.mark is None
    assert "failed: r0" in run.recovery.waiting_for()
    run.introduce("r1")
    while run.due:
        run.perform(0)
    assert run.recovery.mark == 9
    assert run.recovery.recovered() == {"r1", "r2"}


def test_resolved_mark_stays_when_its_voter_fails() -> None:
    run = Run([8, 8, 9])
    for name in ("r0", "r1"):
        run.introduce(name)
    run.perform(0)
    run.perform(0)
    assert run.recovery.mark == 8
    run.leave("r0", emptied=True)
    run.introduce("r2")
    while run.due:
        run.perform(0)
    assert run.last == {"r0": _EMPTIED, "r1": 8, "r2": 8}
    assert run.recovery.recovered() == {"r1", "r2"}


def test_recovery_relies_on_counted_replicas_until_the_session_is_on_a_quorum_of_disks() -> None:
    """A restart drops a fence; then an older server could append where the vote has ended."""
    run = Run([8, 8, 8])
    run.introduce("r0")
    run.perform(0)
    assert not run.recovery.relies_on("r0"), "nothing is resolved yet"
    run.introduce("r1")
    while run.recovery.mark is None:
        run.perform(0)
    run.introduce("r2")
    assert [run.recovery.relies_on(name) for name in run.last] == [True, True, False]
    run.leave("r0", emptied=False)
    assert run.recovery.relies_on("r0"), "its fence still holds the older server off"
    while run.due:
        run.perform(0)
    assert run.recovery.recovered() == {"r1", "r2"}
    assert not any(run.recovery.relies_on(name) for name in run.last)
