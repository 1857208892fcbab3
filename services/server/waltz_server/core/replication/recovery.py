"""Recovery of a partition by voting: what a new store session asks of each replica. Pure.

Finds the highest mark that a quorum of the last session's replicas may have committed, cuts what
lies above it, and brings every replica up to it (spec/behaviour.md section 6; spec/zookeeper.md
section 6).

The driver takes `steps`, performs them, and reports each with `introduced`, `measured`, `cut`,
`copied` or `marked`. Nothing is decided on a guess: while absent replicas could raise the mark it
stays unresolved and the partition waits.

A mark that a session resolves never goes down in a later one: so a replica has the session on its
disk before it gets copies that count (see `recovery_cases`).

A replica that fails is reported as `left`, and is absent from then on. A vote counts for what is
durable on a disk that belongs to the set: while the mark is unresolved, what a replica told before
it left speaks neither for a position nor against one. That can only delay the decision: without its
vote every position has less support and more that might be absent. What others have copied from it
is on their own disks, and counts for them. A mark that is resolved stays so, with the vote of a
replica that leaves later: it states what the last session can have committed, which no longer
changes. Nothing rests on that replica's disk any more, because a session opens only once a quorum
of those that are here hold every transaction up to the mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz_server.core.replication.recovery_rules import NEVER, Case, Standing, judge


@dataclass(frozen=True, slots=True)
class Measure:
    """Ask the replica for its max transaction id."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the replica's log after ``transaction_id``."""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy up to ``count`` records from ``usher``, beginning with ``first_id``."""

    usher: str
    first_id: int
    count: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Set the replica's low-water mark, which makes the new session its current one."""

    low_water_mark: int


Step = Measure | Truncate | Copy | Mark


@dataclass(slots=True)
class _Replica:
    standing: Standing
    case: Case
    low_water_mark: int
    position: int | None = None
    """Max transaction id, None until it is known; published once it is."""
    floor: int = -1
    """Its disk takes no mark before its log ends here again: where it ended when it got its own."""
    entry_mark: int | None = None
    """The mark with which the session is put on its disk before its copies count."""
    busy: bool = False
    trimmed: bool = False
    """Whether it was told to cut its log to the resolved mark."""
    marked: bool = False
    recovered: bool = False
    first: Step | None = None
    """The step that comes before the vote."""


class Recovery:
    """One recovery: of one partition, for one store session.

    ``last`` are the replica states of the partition's metadata as read when the session began;
    ``assigned`` are the replicas that belong to the partition now.
    """

    def __init__(
        self,
        session_id: int,
        generation: int,
        assigned: tuple[str, ...],
        last: Mapping[str, ReplicaState],
        copy_records: int,
    ) -> None:
        assert assigned, "a partition without replicas cannot be recovered"
        self.session_id = session_id
        self.generation = generation
        self.assigned = assigned
        self.quorum = len(assigned) // 2 + 1
        self.mark: int | None = None if last else -1
        """The resolved mark R; None while it is unresolved."""
        self._last = dict(last)
        self._entries = dict(last)
        self._last_quorum = len(last) // 2 + 1
        self._copy_records = copy_records
        self._replicas: dict[str, _Replica] = {}
        self._highest_low_water_mark = -1
        self._forbidden: int | None = None
        """Where the vote ended although a low-water mark is higher, None if that did not happen."""
        self._was_undecidable = False
        self._counted_on: set[str] = set()
        """The replicas whose positions were counted when the mark was resolved."""
        self._persisted: set[str] = set()
        """The last session's replicas that have the new session on their disks."""
        self._unreadable: set[str] = set()
        """Replicas that refused to be copied from: whose vote counts, but who is no usher."""
        self._left: list[str] = []
        """Replicas that failed."""

    def introduced(
        self, replica: str, last_session: int, low_water_mark: int, local_mark: int
    ) -> None:
        """``replica`` has connected and told its persisted session and that one's two marks."""
        assert replica in self.assigned
        assert replica not in self._replicas
        assert replica not in self._left, "only another recovery may take it back in"
        judged = judge(replica, self._entries, last_session, low_water_mark)
        new = _Replica(judged.standing, judged.case, low_water_mark, entry_mark=judged.entry_mark)
        new.first = Measure() if judged.cut_at is None else Truncate(judged.cut_at)
        new.floor = local_mark
        self._replicas[replica] = new
        if judged.mark_counts:
            self._highest_low_water_mark = max(self._highest_low_water_mark, low_water_mark)

    def measured(self, replica: str, max_id: int) -> None:
        """``replica`` holds transactions up to ``max_id``."""
        r = self._done(replica)
        if max_id < r.low_water_mark:
            # Lags, but its disk is intact: it can only have acknowledged what it holds.
            r.standing, r.case = Standing.CLEAN, Case.LAGGING
        r.position = max_id
        self._vote()

    def cut(self, replica: str, max_id: int) -> None:
        """``replica`` has truncated its log, which now ends at ``max_id``."""
        r = self._done(replica)
        r.position = max_id
        self._vote()

    def copied(self, replica: str, max_id: int) -> None:
        """``replica`` has received copies and now ends at ``max_id``."""
        r = self._done(replica)
        assert r.position is not None
        assert max_id >= r.position
        r.position = max_id
        self._vote()
        self._finish(r)

    def not_copied(self, replica: str, usher: str) -> None:
        """``replica`` got nothing from ``usher``, which could not be read: another one may do."""
        self._done(replica)
        self._unreadable.add(usher)

    def marked(self, replica: str) -> None:
        """``replica`` has made the new session its current one."""
        r = self._done(replica)
        if r.entry_mark is None:
            r.marked = True
        else:
            r.entry_mark = None
            self._vote()
        if replica in self._last:
            self._persisted.add(replica)
        self._finish(r)

    def relies_on(self, replica: str) -> bool:
        """Whether the resolved mark would be in doubt if ``replica`` restarted now.

        It was counted, and what keeps an older server from appending to it is a fence that a
        restart drops, until the new session is on its disk, or on those of a quorum.
        """
        safe = len(self._persisted) >= self._last_quorum or replica in self._persisted
        return self.mark is not None and replica in self._counted_on and not safe

    def left(self, replica: str) -> None:
        """``replica`` has failed: no report of it follows, and it counts as absent.

        It must not have acknowledged anything in the new session.
        """
        self._left.append(replica)
        self._replicas.pop(replica, None)
        self._vote()

    def is_at_work(self) -> bool:
        """Whether a step has been taken that is not reported yet."""
        return any(r.busy for r in self._replicas.values())

    def steps(self) -> list[tuple[str, Step]]:
        """Return what is to be done next; each step must be reported before the replica's next."""
        due = []
        for name, r in self._replicas.items():
            if not r.busy and not r.recovered:
                step = self._next_step(r)
                if step is not None:
                    r.busy = True
                    due.append((name, step))
        return due

    def recovered(self) -> frozenset[str]:
        """Return the replicas that hold exactly the log up to the mark, in the new session."""
        return frozenset(name for name, r in self._replicas.items() if r.recovered)

    def waiting_for(self) -> str:
        """Say what the recovery waits for, for people."""
        here = {*self._replicas, *self._left}
        absent = [name for name in self.assigned if name not in here]
        unknown = [n for n, r in self._replicas.items() if r.standing is Standing.UNKNOWN]
        gone = [name for name in self._last if name not in self.assigned]
        parts = [
            f"{what} {', '.join(names)}"
            for what, names in (
                ("absent:", absent),
                ("failed:", self._left),
                ("older than its metadata:", unknown),
                ("no longer assigned:", gone),
                ("cannot be read:", sorted(self._unreadable)),
            )
            if names
        ]
        if self._forbidden is not None:
            committed = f"{self._highest_low_water_mark} is known to be committed"
            parts.append(f"the vote ends at {self._forbidden}, but {committed}")
        return "; ".join(parts) or "replicas at work"

    def story(self) -> str:
        """Say which rule each replica fell under, for people."""
        parts = [f"{name} {r.case.value}" for name, r in self._replicas.items()]
        parts += [f"{name} failed" for name in self._left]
        if self._was_undecidable:
            parts.append("the vote was undecidable for a while")
        return "; ".join(parts)

    def metadata(self) -> PartitionMetadata:
        """Return the partition's metadata once a quorum has recovered: one state per replica."""
        assert self.mark is not None
        return PartitionMetadata(
            self.generation,
            self.session_id,
            {name: self._state_of(name, self.mark) for name in self.assigned},
        )

    def metadata_written(self, written: PartitionMetadata) -> None:
        """The metadata is in place; replicas that connect from now on are judged by it."""
        self._entries = dict(written.replicas)

    def _done(self, replica: str) -> _Replica:
        r = self._replicas[replica]
        assert r.busy, "a report without a step"
        r.busy = False
        r.first = None
        return r

    def _next_step(self, r: _Replica) -> Step | None:
        if r.first is not None:
            return r.first
        assert r.position is not None
        if self.mark is not None:
            r.entry_mark = None
        elif r.entry_mark is not None and r.position >= r.floor:
            return Mark(r.entry_mark)
        if self.mark is not None and not r.marked and r.position >= min(r.floor, self.mark):
            if r.position >= self.mark and not r.trimmed:
                r.trimmed = True
                return Truncate(self.mark)
            return Mark(self.mark)
        usher = self._usher(r.position)
        if usher is None:
            return None
        name, end = usher
        bound = self.mark if self.mark is not None else r.entry_mark
        if bound is not None:
            end = min(end, bound)
        return Copy(name, r.position + 1, min(self._copy_records, end - r.position))

    def _counted(self) -> list[tuple[int, str]]:
        """Return the positions that may be counted and copied from, highest first."""
        return sorted(
            (
                (r.position, name)
                for name, r in self._replicas.items()
                if r.position is not None
                and name in self._last
                and r.standing is not Standing.UNKNOWN
                and r.entry_mark is None
            ),
            reverse=True,
        )

    def _usher(self, position: int) -> tuple[str, int] | None:
        """Return the nearest replica ahead of ``position``, and where it ends."""
        ahead = [
            (end, name)
            for end, name in self._counted()
            if end > position and name not in self._unreadable
        ]
        return (ahead[-1][1], ahead[-1][0]) if ahead else None

    def _vote(self) -> None:
        """Resolve the mark if it can be decided: the highest position that a quorum supports.

        Going down from the highest position, a position that lacks support but would have enough
        with the absent replicas makes everything below it undecidable too.
        """
        if self.mark is not None:
            return
        self._forbidden = None
        counted = self._counted()
        votes = [
            r.position
            for r in self._replicas.values()
            if r.standing is Standing.VOTER and r.position is not None
        ]
        absent = len(self._last) - len(counted)
        supports = 0
        for position, group in groupby(counted, key=lambda entry: entry[0]):
            if position < min(votes, default=position + 1):
                return
            supports += len(list(group))
            if supports >= self._last_quorum:
                # A mark that the metadata vouches for is committed, and one of a voter may be.
                if position >= self._highest_low_water_mark:
                    self.mark = position
                    self._counted_on = {name for _, name in counted}
                else:
                    self._forbidden = position
                return
            if supports + absent >= self._last_quorum:
                self._was_undecidable = True
                return

    def _finish(self, r: _Replica) -> None:
        r.recovered = r.marked and r.position == self.mark

    def _state_of(self, replica: str, mark: int) -> ReplicaState:
        r = self._replicas.get(replica)
        if r is not None and r.recovered:
            return ReplicaState(self.session_id, UNRESOLVED)
        if r is not None and r.marked:
            # Its log is trusted up to the mark from now on, and known to be older if it is emptied.
            return ReplicaState(self.session_id, mark)
        entry = self._entries.get(replica)
        if entry is None:
            return ReplicaState(NEVER, mark)
        if entry.closing_mark == UNRESOLVED:
            return ReplicaState(entry.session_id, mark)
        return entry
