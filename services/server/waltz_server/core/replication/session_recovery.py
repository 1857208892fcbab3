"""Recovery of a partition at the beginning of a store session: vote, cut, copy. Pure.

Finds the mark R: the highest transaction id that a quorum of the last session's replicas may have
committed. Cuts what lies above R and brings every replica up to it (spec/behaviour.md section 6;
spec/zookeeper.md section 6). `replica_roles` says what each replica may be used for.

The driver takes `steps`, performs them, and reports each with `introduced`, `measured`, `cut`,
`copied` or `marked`. While absent replicas could raise the mark, it stays unresolved and the
partition waits (undecidable_vote.txt, absent_replicas.txt).

The rules, and the failure that each prevents:

* *A resolved mark never goes down in a later session.* Otherwise a disk that was marked by a
  session which then failed would prove records that a later session has cut. So a clean replica
  gets the session on its disk before it gets copies that count (see `replica_roles`).
* *A vote counts only what is durable on a disk that belongs to the set.* A replica that fails is
  absent from then on: while the mark is unresolved, its earlier reports count neither for a
  position nor against one (storage_restart.txt). This can only delay the decision: without its vote
  every position has less support, and one more replica is absent. Records that other replicas have
  copied from it are on their own disks and count for them.
* *A resolved mark stays resolved, also when a replica fails later that was counted.* It is the last
  id that the last session can have committed, which no longer changes. Nothing depends on that
  replica's disk any more: a session opens only once a quorum of connected replicas hold every
  transaction up to the mark.
* *The exception is a replica that could still be written to*: see `relies_on`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz_server.core.replication.replica_roles import NEVER, RecoveryCase, VoteRole, classify


@dataclass(frozen=True, slots=True)
class Measure:
    """Read the replica's max transaction id."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the replica's log after ``transaction_id``."""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy up to ``count`` records from ``source``, beginning with ``first_id``."""

    source: str
    first_id: int
    count: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Set the replica's low-water mark, which makes the new session its current one."""

    low_water_mark: int


Step = Measure | Truncate | Copy | Mark


@dataclass(slots=True)
class _Replica:
    role: VoteRole
    case: RecoveryCase
    low_water_mark: int
    position: int | None = None
    """Max transaction id, None until it is known; counted once it is."""
    floor: int = -1
    """Where its log ended when its disk got its mark: it takes no new mark below this position."""
    entry_mark: int | None = None
    """The mark with which the session is put on its disk before its copies count."""
    busy: bool = False
    trimmed: bool = False
    """Whether it was sent the command to cut its log to the resolved mark."""
    marked: bool = False
    recovered: bool = False
    first: Step | None = None
    """The step that comes before the vote."""


class SessionRecovery:
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
        assert all(state.session_id < session_id for state in last.values()), (
            "session ids grow: a session that comes before one of its replicas' would be fenced"
        )
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
        """Replicas that could not be copied from: their vote counts, but they are no source."""
        self._failed: list[str] = []
        """Replicas that failed in this session."""

    def introduced(
        self, replica: str, last_session: int, low_water_mark: int, local_mark: int
    ) -> None:
        """Classify ``replica``, which has reported the session on its disk and its two marks."""
        assert replica in self.assigned
        assert replica not in self._replicas
        assert replica not in self._failed, "only another recovery may take it back in"
        found = classify(replica, self._entries, last_session, low_water_mark)
        new = _Replica(found.role, found.case, low_water_mark, entry_mark=found.entry_mark)
        new.first = Measure() if found.cut_at is None else Truncate(found.cut_at)
        new.floor = local_mark
        self._replicas[replica] = new
        if found.mark_counts:
            self._highest_low_water_mark = max(self._highest_low_water_mark, low_water_mark)

    def measured(self, replica: str, max_id: int) -> None:
        """Count ``replica``, which holds transactions up to ``max_id``."""
        r = self._done(replica)
        if max_id < r.low_water_mark:
            # It never reached its session's own mark, and its disk is intact: it can only have
            # acknowledged what it holds (lagging_replica.txt).
            r.role, r.case = VoteRole.CLEAN, RecoveryCase.LAGGING
        r.position = max_id
        self._vote()

    def cut(self, replica: str, max_id: int) -> None:
        """Count ``replica``, which has truncated its log and now ends at ``max_id``."""
        r = self._done(replica)
        r.position = max_id
        self._vote()

    def copied(self, replica: str, max_id: int) -> None:
        """Count ``replica``, which has received copies and now ends at ``max_id``."""
        r = self._done(replica)
        assert r.position is not None
        assert max_id >= r.position, "copies are appended: they never shorten a log"
        r.position = max_id
        self._vote()
        self._finish(r)

    def not_copied(self, replica: str, source: str) -> None:
        """Let ``replica`` copy from another source, because ``source`` could not be read."""
        self._done(replica)
        self._unreadable.add(source)

    def marked(self, replica: str) -> None:
        """Note that ``replica`` has the new session on its disk."""
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

        Between its answer and its low-water mark, only a fence in a storage's memory keeps the
        former server from appending to it. A restart drops that fence, and the former server could
        commit appends with it that the vote has not seen: see restart_of_counted_replica.txt. The
        danger is over once the new session is on the disk of the replica, or on those of a quorum.
        """
        safe = len(self._persisted) >= self._last_quorum or replica in self._persisted
        return self.mark is not None and replica in self._counted_on and not safe

    def failed(self, replica: str) -> None:
        """Count ``replica`` as absent from now on: it has failed, and no report of it follows.

        It must not have acknowledged anything in the new session.
        """
        self._failed.append(replica)
        self._replicas.pop(replica, None)
        self._vote()

    def is_at_work(self) -> bool:
        """Whether a step has been taken that is not reported yet."""
        return any(r.busy for r in self._replicas.values())

    def steps(self) -> list[tuple[str, Step]]:
        """Return the next steps; a step must be reported before the next step of its replica."""
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
        """Describe the reasons of the recovery's wait, for log lines and the health report."""
        seen = {*self._replicas, *self._failed}
        absent = [name for name in self.assigned if name not in seen]
        unknown = [n for n, r in self._replicas.items() if r.role is VoteRole.UNKNOWN]
        gone = [name for name in self._last if name not in self.assigned]
        parts = [
            f"{what} {', '.join(names)}"
            for what, names in (
                ("absent:", absent),
                ("failed:", self._failed),
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

    def summary(self) -> str:
        """Describe which rule applied to each replica, for log lines."""
        parts = [f"{name} {r.case.value}" for name, r in self._replicas.items()]
        parts += [f"{name} failed" for name in self._failed]
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
        """Classify replicas that connect from now on by the present metadata.

        By the metadata that was read at the beginning, a replica that connects late would support a
        vote that has ended, or keep records that differ (readded_replica_late.txt).
        """
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
                # What lies above the mark reached no quorum. Left there, a later vote would find
                # two different records under one id (undecidable_vote.txt).
                r.trimmed = True
                return Truncate(self.mark)
            return Mark(self.mark)
        found = self._copy_source(r.position)
        if found is None:
            return None
        source, end = found
        bound = self.mark if self.mark is not None else r.entry_mark
        if bound is not None:
            end = min(end, bound)
        return Copy(source, r.position + 1, min(self._copy_records, end - r.position))

    def _counted(self) -> list[tuple[int, str]]:
        """Return the positions that may be counted and copied from, highest first.

        Only replicas of the last session count: the others cannot have acknowledged anything in it.
        One whose session is not on its disk yet does not count, because a later session would cut
        the copies off that this one has counted.
        """
        return sorted(
            (
                (r.position, name)
                for name, r in self._replicas.items()
                if r.position is not None
                and name in self._last
                and r.role is not VoteRole.UNKNOWN
                and r.entry_mark is None
            ),
            reverse=True,
        )

    def _copy_source(self, position: int) -> tuple[str, int] | None:
        """Return the nearest replica ahead of ``position``, and where it ends.

        The nearest, so that a replica moves from position to position of the vote: the mark may be
        resolved at any of them, and records copied beyond it would have to be cut.
        """
        ahead = [
            (end, name)
            for end, name in self._counted()
            if end > position and name not in self._unreadable
        ]
        return (ahead[-1][1], ahead[-1][0]) if ahead else None

    def _vote(self) -> None:
        """Resolve the mark if it can be decided: the highest position that a quorum supports.

        Goes down from the highest position. A position that lacks support, but would have enough
        with the absent replicas, makes everything below it undecidable: it may be committed, and
        opening below it would lose it (undecidable_vote.txt, absent_replicas.txt).

        Nothing below that position needs a rule of its own. A transaction that the last session
        committed is held by a quorum of its replicas; each of them has a position at or above it,
        or is absent. So the transaction has enough support, or is undecidable, before the vote gets
        below it. What earlier sessions committed is covered by a mark that is known to be committed
        (known_mark.txt).
        """
        if self.mark is not None:
            return
        self._forbidden = None
        counted = self._counted()
        absent = len(self._last) - len(counted)
        assert absent >= 0, "a replica is counted once"
        supports = 0
        for position, group in groupby(counted, key=lambda entry: entry[0]):
            supports += len(list(group))
            if supports >= self._last_quorum:
                # The mark in the metadata is committed, and the mark of a voter may be committed.
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
