"""Recover the replicas of a partition at the beginning of a store session. Pure.

Recovery decides the mark R by a vote: the highest transaction id that a quorum of the last
session's replicas may have committed. It cuts the records above R from each replica, and copies
records until each replica ends at R (spec/behaviour.md section 6; spec/zookeeper.md section 6).
`replica_roles` decides how a replica may be used. The .txt files are in tests/transcripts.

A replica's *position* is its last transaction id. A log is *right* up to an id if its records up to
this id are those of the partition. A log is *cut* at an id when its records after this id are
deleted. A storage keeps the id of its last session on its disk, with two marks. The *low-water
mark* is the mark that this session resolved. The *local low-water mark* (*local mark*) is the id at
which the log of this storage ended when the low-water mark was written. A *closing mark*, in the
metadata in ZooKeeper, is the mark at which a replica left its session.

A *clean* replica has certainly acknowledged no record that its log lacks. So its position counts,
also after it has received copies. If its log must be cut, the order is: cut it, write the new
session id to its disk, copy. Without the id on the disk, copies do not count: the next session
would cut them off. A storage writes a session id only together with a low-water mark. While R is
unresolved, this mark is an *interim mark*: the id at which the log was cut, or the low-water mark
on the disk if that is higher.

The session reports each replica that connects with `introduced`. It takes steps with `take_steps`,
performs them, and reports each with `measured`, `cut`, `copied`, `not_copied` or `marked`. While
absent replicas could raise R, it stays unresolved and the partition waits (undecidable_vote.txt,
absent_replicas.txt).

The steps of one replica, which are classes of `recovery_steps`, in this order:

1. `Measure` or `Truncate`: the report has the position of the replica.
2. `Mark` with the interim mark: only for a clean replica whose log was cut, and only while R is
   unresolved.
3. `Copy`, while another replica holds more records.
4. As soon as R is resolved: `Truncate` to R, if the log reaches R, and `Mark` with R. If the log
   ends below R, `Copy` up to R follows. Then the replica has *recovered*.

A storage accepts no mark while its log ends below its local mark; then `Copy` comes before `Mark`.

The rules, and the failure that each prevents:

* *A resolved mark never goes down in a later session* (how: see `replica_roles`). Otherwise session
  8 could resolve 100, write this mark to a disk and fail. If session 9 then resolved 90, other
  records 91 to 100 would follow, and that disk would still count as right up to 100.
* *A vote counts only records on the disks of replicas that are present.* A replica that fails is
  absent from then on. While the mark is unresolved, its reports count neither for a position nor
  against one (storage_restart.txt). This can only delay the decision: every position has less
  support, and one more replica is absent. Copies of its records on other replicas still count.
* *A resolved mark stays resolved, also when a counted replica fails later.* The mark is the last id
  that the last session can have committed, and that id no longer changes. Recovery does not need
  the failed disk any more: a session opens only once a quorum of connected replicas hold every
  transaction up to the mark. The exception is a failed replica that the former server could still
  write to: see `relies_on`.
"""

from __future__ import annotations

from collections.abc import Mapping

from waltz.metadata.core.formats import PartitionMetadata, ReplicaState
from waltz_server.core.replication.lost_metadata import (
    Contradiction,
    names_no_replica,
    older_than_replica,
)
from waltz_server.core.replication.mark_vote import decided_position
from waltz_server.core.replication.recovering_replica import RecoveringReplica, state_to_write
from waltz_server.core.replication.recovery_steps import Copy, Mark, Measure, Step, cut_log
from waltz_server.core.replication.replica_roles import RecoveryCase, VoteRole, classify
from waltz_server.core.replication.unreadable_sources import UnreadableSources
from waltz_server.core.replication.waiting_reasons import waiting_reasons


class SessionRecovery:
    """One recovery: of one partition, for one store session.

    ``last_replicas`` are the replicas of the last session that opened: it has written their states
    to the metadata, and this session has read them there. ``assigned`` are the replicas that belong
    to the partition now. A `Copy` has at most ``copy_records`` records. ``committed`` is the last
    id that this server knows to be committed: R is not below it. If a disk was restored from a copy
    of the last session, only ``committed`` shows what it lacks (restored_in_session.txt).
    """

    def __init__(
        self,
        session_id: int,
        generation: int,
        assigned: tuple[str, ...],
        last_replicas: Mapping[str, ReplicaState],
        copy_records: int,
        committed: int = -1,
    ) -> None:
        assert assigned, "a partition without replicas cannot be recovered"
        assert all(state.session_id < session_id for state in last_replicas.values()), (
            "session ids grow: replicas refuse a session with a lower id than their last one"
        )
        self.session_id = session_id
        self.generation = generation
        self.assigned = assigned
        self.quorum = len(assigned) // 2 + 1  # So many must recover before it opens.
        self.mark: int | None = None if last_replicas else -1
        """The resolved mark R; None while it is unresolved."""
        self.contradiction: Contradiction | None = None
        """How a replica contradicts the metadata (see `lost_metadata`), None if none does.

        Once it is set, `take_steps` returns nothing, so that no replica is changed."""
        self._last_replicas = dict(last_replicas)
        self._replica_states = dict(last_replicas)
        """The replica states in the metadata now: this session writes them when it opens."""
        self._last_quorum = len(last_replicas) // 2 + 1
        self._copy_records = copy_records
        self._replicas: dict[str, RecoveringReplica] = {}
        self._highest_counted_mark = committed
        """``committed``, or a higher mark on a disk that may be committed (see `classify`)."""
        self._voted_below: int | None = None
        """The result of the vote if it is below ``_highest_counted_mark``, otherwise None."""
        self._was_undecidable = False  # Whether a vote with a counted replica was undecidable.
        self._was_below = False  # Whether a vote ended below the highest known mark.
        self._counted_on: set[str] = set()
        """The replicas whose positions were counted when the mark was resolved."""
        self._persisted: set[str] = set()
        """The last session's replicas that have the new session on their disks."""
        self.unreadable = UnreadableSources(session_id)
        """The replicas that could not be read for a copy. Their positions still count."""
        self._lost_records: list[str] = []
        """Replicas whose logs end below their own local low-water marks."""
        self._failed: list[str] = []
        """Replicas that failed in this session."""

    # ---- reports of the session

    def introduced(
        self, replica: str, last_session: int, low_water_mark: int, local_mark: int
    ) -> None:
        """Classify ``replica`` by the metadata, and by the session and the marks on its disk.

        Set ``contradiction`` if the disk does not fit the metadata.
        """
        assert replica in self.assigned
        assert replica not in self._replicas
        assert replica not in self._failed, "only another recovery may readmit a failed replica"
        if last_session >= self.session_id:
            self.contradiction = older_than_replica(replica, last_session, self.session_id)
        elif not self._last_replicas and low_water_mark >= 0:
            self.contradiction = names_no_replica(replica, low_water_mark)
        rule = classify(replica, self._replica_states, last_session, low_water_mark)
        first_step = Measure() if rule.cut_at is None else cut_log(rule.cut_at, low_water_mark)
        self._replicas[replica] = RecoveringReplica(
            rule.role, rule.case, low_water_mark, local_mark, first_step, rule.interim_mark
        )
        if rule.mark_counts:
            self._highest_counted_mark = max(self._highest_counted_mark, low_water_mark)

    def measured(self, replica: str, max_id: int) -> None:
        """Count ``replica``, whose log ends at ``max_id``; drop it if it has lost records."""
        state = self._step_done(replica)
        if not self._last_replicas and max_id >= 0:
            self.contradiction = names_no_replica(replica, max_id)
        if max_id < state.local_mark:
            # The log ended higher when the replica got its mark: records are lost, unknown which.
            # So the replica is neither counted nor changed. A storage of 0.13.2 serves such a log
            # (test_replica_below_its_local_mark_is_not_counted).
            self._lost_records.append(replica)
            del self._replicas[replica]
            self._vote()
            return
        if max_id < state.low_water_mark:
            # The session that wrote this mark had not copied the records up to it yet. So the
            # replica acknowledged no append of that session, and its position counts, also after
            # copies. R is not below the mark (lagging_replica.txt).
            state.role, state.case = VoteRole.CLEAN, RecoveryCase.LAGGING
        state.position = max_id
        self._vote()

    def cut(self, replica: str, max_id: int) -> None:
        """Count ``replica``, whose log was cut and now ends at ``max_id``."""
        state = self._step_done(replica)
        state.position = max_id
        self._vote()

    def copied(self, replica: str, max_id: int) -> None:
        """Count ``replica``, whose log has received copies and now ends at ``max_id``."""
        state = self._step_done(replica)
        assert state.position is not None
        assert max_id >= state.position, "copies are appended: they never shorten a log"
        state.position = max_id
        self._vote()
        self._update_recovered(state)

    def not_copied(self, replica: str, source: str) -> None:
        """Let ``replica`` copy its next record from another source: ``source`` cannot read it."""
        state = self._step_done(replica)
        assert state.position is not None
        self.unreadable.add(source, state.position + 1)

    def marked(self, replica: str) -> None:
        """Note that ``replica`` has the new session on its disk."""
        state = self._step_done(replica)
        if state.interim_mark is None:
            state.marked = True
        else:
            state.low_water_mark, state.interim_mark = state.interim_mark, None
            self._vote()
        if replica in self._last_replicas:
            self._persisted.add(replica)
        self._update_recovered(state)

    def failed(self, replica: str) -> None:
        """Count ``replica``, which has failed, as absent from now on.

        Do not call this if it has acknowledged an append of this session: see `StoreSession._fail`.
        """
        self._failed.append(replica)
        self._replicas.pop(replica, None)
        self._vote()

    def metadata_written(self, written: PartitionMetadata) -> None:
        """Classify replicas that connect from now on by the metadata ``written``.

        If a late replica were classified by the metadata that the session has read, it could
        support a vote that has ended, or keep records that differ from the log
        (readded_replica_late.txt).
        """
        self._replica_states = dict(written.replicas)

    # ---- results for the session

    def relies_on(self, replica: str) -> bool:
        """Whether the resolved mark would be in doubt if ``replica`` restarted now.

        After the replica is counted and until it gets its low-water mark, only a fence in its
        storage's memory refuses appends of the former server. A restart drops that fence: the
        former server could then commit appends that the vote has not seen
        (restart_of_counted_replica.txt). The danger is over once the new session is on the disk of
        this replica, or on the disks of a quorum.
        """
        is_safe = replica in self._persisted or len(self._persisted) >= self._last_quorum
        return self.mark is not None and replica in self._counted_on and not is_safe

    def is_at_work(self) -> bool:
        """Whether the report of a step is still missing."""
        return any(state.busy for state in self._replicas.values())

    def take_steps(self) -> list[tuple[str, Step]]:
        """Take the next steps: for each replica at most one, until that step is reported."""
        if self.contradiction is not None:
            return []
        due = []
        for name, state in self._replicas.items():
            if not state.busy and not state.recovered:
                step = self._next_step(state)
                if step is not None:
                    state.busy = True
                    due.append((name, step))
        return due

    def recovered(self) -> frozenset[str]:
        """Return the replicas that hold exactly the log up to the mark, in the new session."""
        return frozenset(name for name, state in self._replicas.items() if state.recovered)

    def waiting_for(self) -> str:
        """Describe why the recovery waits, for log lines and the health report."""
        parts = waiting_reasons(
            self.assigned,
            self._last_replicas,
            self._replicas,
            failed=self._failed,
            below_own_mark=self._lost_records,
            unreadable=self.unreadable.failures,
        )
        if self._voted_below is not None:
            committed = f"{self._highest_counted_mark} may be committed"
            parts.append(f"the vote ends at {self._voted_below}, but {committed}")
        return "; ".join(parts) or "replicas at work"

    def summary(self) -> str:
        """Describe which rule applied to each replica, for log lines."""
        parts = [f"{name} {state.case.value}" for name, state in self._replicas.items()]
        parts += [f"{name} failed" for name in self._failed]
        parts += [f"{name} has lost records" for name in self._lost_records]
        if self._was_undecidable:
            parts.append("the vote was undecidable for a while")
        if self._was_below:
            parts.append("the vote was below a committed id for a while")
        return "; ".join(parts)

    def metadata(self) -> PartitionMetadata:
        """Return the metadata to write, after a quorum has recovered: one state per replica."""
        assert self.mark is not None
        replicas, entries = self._replicas, self._replica_states
        states = {
            name: state_to_write(self.session_id, self.mark, replicas.get(name), entries.get(name))
            for name in self.assigned
        }
        return PartitionMetadata(self.generation, self.session_id, states)

    # ---- the vote

    def _vote(self) -> None:
        """Resolve the mark if the positions that may be counted decide it."""
        if self.mark is not None:
            return
        counted = self._counted()
        absent = len(self._last_replicas) - len(counted)
        assert absent >= 0, "a replica is counted once"
        decided = decided_position([end for end, _ in counted], absent, self._last_quorum)
        self._voted_below = None
        if decided is None:
            self._was_undecidable |= bool(counted)
        elif decided < self._highest_counted_mark:
            # Resolved here, R would be below a mark that is or may be committed.
            self._voted_below = decided
            self._was_below = True
        else:
            self.mark = decided
            self._counted_on = {name for _, name in counted}

    def _counted(self) -> list[tuple[int, str]]:
        """Return the positions that may be counted and copied from, highest first.

        Only replicas of the last session count: others have acknowledged no append of it. A replica
        with an interim mark does not count: the new session is not on its disk yet, so a later
        session would cut off the copies that this vote had counted.
        """
        return sorted(
            (
                (state.position, name)
                for name, state in self._replicas.items()
                if state.position is not None
                and name in self._last_replicas
                and state.role is not VoteRole.UNKNOWN
                and state.interim_mark is None
            ),
            reverse=True,
        )

    # ---- steps

    def _step_done(self, replica: str) -> RecoveringReplica:
        """Note that the step of ``replica`` is reported; return the replica's state."""
        state = self._replicas[replica]
        assert state.busy, "a report without a step"
        state.busy = False
        state.first_step = None
        return state

    def _update_recovered(self, state: RecoveringReplica) -> None:
        state.recovered = state.marked and state.position == self.mark

    def _next_step(self, state: RecoveringReplica) -> Step | None:
        """Return the next step of ``state``, None if it must wait for other replicas."""
        if state.first_step is not None:
            return state.first_step
        assert state.position is not None
        if self.mark is not None:
            return self._step_to(self.mark, state, state.position)
        # A storage accepts no mark while its log ends below its local mark: then copies come first.
        if state.interim_mark is not None and state.position >= state.local_mark:
            return Mark(state.interim_mark)
        return self._copy(state.position, state.interim_mark)

    def _step_to(self, mark: int, state: RecoveringReplica, position: int) -> Step | None:
        """Return the next step of ``state`` towards the resolved mark."""
        state.interim_mark = None  # the resolved mark replaces it
        # A marked replica needs only copies. A storage accepts no mark while its log ends below its
        # local mark: then copies come first. They end at ``mark``. If ``mark`` is below the local
        # mark, the storage refuses the `Mark` that follows, and the replica fails.
        if state.marked or position < min(state.local_mark, mark):
            return self._copy(position, mark)
        if position >= mark and not state.cut_sent:
            # No quorum has the records above the mark. If they stayed, a later vote would find
            # two different records with the same id (undecidable_vote.txt).
            state.cut_sent = True
            # A storage cuts below the low-water mark on its disk only if `cut_log` gets that mark.
            # Without ``_last_replicas`` the metadata may be lost, and that mark may be right. So it
            # is not passed (-1), and the storage refuses a cut below its mark.
            return cut_log(mark, state.low_water_mark if self._last_replicas else -1)
        return Mark(mark)

    def _copy(self, position: int, bound: int | None) -> Copy | None:
        """Return the next copy for a replica at ``position``, None if no replica can be its source.

        The copy ends at ``bound`` at the latest, which is above ``position``; None: no bound. The
        source is the replica whose log ends nearest above ``position``, of those with the fewest
        failed reads. A copy never goes beyond the nearest end of any of these logs: the mark may be
        resolved there, and records copied beyond the mark would have to be cut.
        """
        ends = {name: end for end, name in self._counted() if end > position}
        if self.mark is not None:
            # Recovered replicas that did not vote are sources, too: otherwise a replica would wait
            # although one of them has all that it lacks. This is safe: a recovered replica was cut
            # to its own mark or to R, had copies up to R only, and has the session on its disk. So
            # its log is right up to R. What it gets later is above R, where copies end.
            ends |= dict.fromkeys(self.recovered(), self.mark)
        preferred = self.unreadable.preferred(position + 1, ends)
        if not preferred:
            return None
        source = min(preferred, key=lambda name: (ends[name], name))
        end = min(ends.values())
        if bound is not None:
            end = min(end, bound)
        return Copy(source, position + 1, min(self._copy_records, end - position))
