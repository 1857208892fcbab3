"""Run one store session of a partition: recovery, then appends to a quorum. Pure.

A session is a server's exclusive right to write a partition's replicas (spec/behaviour.md section
5). It ends when its quorum is lost or cannot be reached, when it is drained on purpose, or when
another generation or session begins. The store (`store_partition`) then begins the next session.
Only the recovery of a new session may readmit a replica that failed. In the old session, the server
does not know which batches are on its disk, and could count a later append above a gap.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from waltz.metadata.core.formats import PartitionMetadata
from waltz.protocol import RecordBatch
from waltz.protocol import storage as st
from waltz_server.core.appends.append import Append
from waltz_server.core.effects import LogLevel, Ready, SendToStorage, WriteLog
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.replication.log_tail import LogTail, form_batch
from waltz_server.core.replication.lost_metadata import closed_by, continued_despite
from waltz_server.core.replication.recovery_messages import report_answer, report_info, request_of
from waltz_server.core.replication.recovery_steps import Copy
from waltz_server.core.replication.session_recovery import SessionRecovery
from waltz_server.core.replication.session_state import (
    ReplicaSession,
    ReplicaStage,
    SessionPhase,
    choose_replica,
    committed_id,
    end_copy,
    readable_replicas,
)
from waltz_server.core.store_reports import AppendsCommitted, StoreReports


class StoreSession:
    """The state machine of one session.

    ``metadata`` is what the store has just written to begin the session. ``queue`` has the waiting
    appends; the store keeps it for the next session. ``committed`` is as in `SessionRecovery`.
    """

    def __init__(
        self,
        partition: int,
        metadata: PartitionMetadata,
        replicas: tuple[str, ...],
        limits: ReplicationLimits,
        queue: deque[Append],
        ready: Ready,
        reports: StoreReports,
        committed: int,
    ) -> None:
        self.partition = partition
        self.session_id = metadata.session_id
        self.generation = metadata.generation
        self.phase = SessionPhase.RECOVERING
        self.end_reason = ""
        self.sending = False
        """Whether appends are sent. The store sets it once it has resolved the in-doubt appends of
        the session before: until then the queue may have appends that must not be sent."""
        self.low_water_mark = -1
        """The mark at which the session opened, -1 before it opens."""
        self.high_water_mark = -1  # The last committed id, -1 before the session opens.
        self._ready = ready
        self._reports = reports
        self.metadata_due: PartitionMetadata | None = None
        """The metadata that the store must write for this session, None if nothing is to write."""
        self.drained_early = False
        """Whether the session was drained before it opened: the next begins without a pause."""
        self.failed: list[str] = []
        """Replicas that failed in this session; only another session may admit them again."""
        self.newly_failed: list[str] = []
        """Failed replicas that the store has not handled yet."""
        self._contradiction_logged = False
        self._limits = limits
        self.replicas = replicas
        self._quorum = len(replicas) // 2 + 1
        assert self._quorum <= len(replicas) < 2 * self._quorum, "any two quorums share a replica"
        self.replica_states = {name: ReplicaSession(name) for name in replicas}
        last_replicas, copy_records = metadata.replicas, limits.copy_records
        self.recovery = SessionRecovery(
            self.session_id, self.generation, replicas, last_replicas, copy_records, committed
        )
        self._written = metadata
        """The metadata as this session has last written them."""
        self._queue = queue
        self._next_id = 0
        """The id of the next append that is sent."""
        self._tail = LogTail(limits.tail_bytes)

    # ---- inputs

    def storage_up(self, storage: str) -> None:
        """Request the last session on the disk of ``storage``, which is connected now."""
        replica = self.replica_states.get(storage)
        if replica is None or replica.stage is not ReplicaStage.CONNECTING:
            return
        admits_replicas = self.phase in (SessionPhase.RECOVERING, SessionPhase.OPEN)
        if admits_replicas and not replica.info_requested:
            replica.info_requested = True
            request = st.LastSessionInfoRequest(self.session_id, st.NO_SEQ, self.partition)
            self._ready.add(SendToStorage(storage, request))

    def storage_down(self, storage: str) -> None:
        """Drop ``storage`` from the session: its connection is lost with all requests on it."""
        replica = self.replica_states.get(storage)
        if replica is None:
            return
        replica.info_requested = False
        # The storage may have restarted, and so lost the fence in its memory. The former server
        # could then commit appends that the vote has not seen (restart_of_counted_replica.txt).
        was_relied_on = self.phase is SessionPhase.RECOVERING and self.recovery.relies_on(storage)
        if replica.stage is not ReplicaStage.CONNECTING:
            self._fail(replica, f"connection to {storage} lost")
        if was_relied_on:
            self.close(f"{storage}, whose position was counted, may have lost its fence")

    def answered(self, storage: str, request: st.Request, response: Any) -> bool:
        """Handle an answer; ``response`` is None if the connection was lost: see `storage_down`.

        Return False if the request of `storage_up` failed: the store repeats it later.
        """
        replica = self.replica_states[storage]
        if self.phase is SessionPhase.CLOSED:
            return True
        if response is None:
            self._copy_source_lost(storage, request)
            return True
        if isinstance(request, st.LastSessionInfoRequest):
            return self._introduced(replica, response)
        if isinstance(request, st.BoundedRecordListRequest):
            self._copy_received(storage, request, response)
            return True
        if replica.stage in (ReplicaStage.CONNECTING, ReplicaStage.FAILED):  # A late answer.
            return True
        if isinstance(response, st.FailureResponse):
            self._fail(replica, f"{storage} refused: {response.failure.message}")
        elif replica.stage is ReplicaStage.ACTIVE and isinstance(response, st.SuccessResponse):
            self._acknowledged(replica, request)
        elif report_answer(self.recovery, storage, request, response):
            self._recover()
        else:
            mismatch = f"an answer that does not fit its request: {response!r}"
            self._fail(replica, f"{storage} gave {mismatch}")
        return True

    def metadata_written(self) -> None:
        """Make recovered replicas active, because ``metadata_due`` is written now."""
        assert self.metadata_due is not None
        self._written, self.metadata_due = self.metadata_due, None
        self.recovery.metadata_written(self._written)
        self._admit()
        self._recover()

    def pump(self) -> None:
        """Form batches of the queued appends and send them, as far as the limits allow."""
        limits = self._limits
        while (
            self._queue
            and self.sending
            and self.phase is SessionPhase.OPEN
            and self._tail.in_flight < limits.batches_in_flight
        ):
            batch = form_batch(self._queue, self._next_id, limits)
            self._next_id = batch.last_id + 1
            self._tail.add(batch)
        if self.phase is SessionPhase.CLOSED:
            return
        for replica in self.replica_states.values():
            if replica.stage is ReplicaStage.ACTIVE and replica.next_id < self._next_id:
                self._send_due(replica)

    def drain(self, reason: str) -> None:
        """Close once all batches in flight are committed; a session in recovery closes at once."""
        if self.phase is SessionPhase.RECOVERING:
            self.drained_early = True
            self.close(reason)
        elif self.phase is SessionPhase.OPEN:
            self.phase = SessionPhase.DRAINING
            self.end_reason = reason
            self._close_if_drained()

    def close(self, reason: str) -> None:
        """End the session now."""
        if self.phase is not SessionPhase.CLOSED:
            self.phase = SessionPhase.CLOSED
            self.end_reason = reason

    def retry_copies(self) -> None:
        """Let replicas copy again from the sources that could not be read: they may be repaired."""
        if self.phase is not SessionPhase.CLOSED:
            self.recovery.unreadable.forget()
            self._recover()

    def in_doubt(self) -> list[Append]:
        """Return the appends that were sent and not committed, in the order of their ids."""
        return self._tail.in_doubt()

    def active(self) -> frozenset[str]:
        """Return the replicas that take part in appends."""
        states = self.replica_states.items()
        return frozenset(name for name, replica in states if replica.stage is ReplicaStage.ACTIVE)

    def is_checkpoint_due(self) -> bool:
        """Whether the session has so many transactions that low-water marks should advance."""
        return self._next_id - 1 - self.low_water_mark >= self._limits.checkpoint_interval

    def is_stuck(self) -> bool:
        """Whether the session is recovering, and no operation under way can open it."""
        return (
            self.phase is SessionPhase.RECOVERING
            and self.metadata_due is None
            and not self.recovery.is_at_work()
            and not any(replica.info_requested for replica in self.replica_states.values())
        )

    # ---- recovery

    def _introduced(self, replica: ReplicaSession, response: Any) -> bool:
        """Begin the recovery of ``replica``, whose first request is answered; see `answered`."""
        if not replica.info_requested or replica.stage is not ReplicaStage.CONNECTING:
            return True
        replica.info_requested = False
        if not report_info(self.recovery, replica.storage, response):
            return False
        replica.stage = ReplicaStage.RECOVERING
        self._recover()
        return True

    def _recover(self) -> None:
        """Request the next steps; once a quorum has recovered, have the metadata written."""
        # A replica contradicts metadata that were lost, restored from an older backup, or changed.
        if (contradiction := self.recovery.contradiction) is not None:
            if self.phase is SessionPhase.RECOVERING:
                self.close(closed_by(contradiction))
            elif not self._contradiction_logged:
                self._contradiction_logged = True
                self._log(continued_despite(contradiction, self.session_id, self.active()))
            return
        self.recovery.unreadable.start_timer(self._ready)
        for storage, step in self.recovery.take_steps():
            request = request_of(step, self.session_id, self.partition, self._limits.copy_bytes)
            if isinstance(step, Copy):
                assert isinstance(request, st.BoundedRecordListRequest)
                self.replica_states[storage].copying = request
            receiver = step.source if isinstance(step, Copy) else storage
            self._ready.add(SendToStorage(receiver, request))
        if len(self.recovery.recovered()) >= self._quorum and self.metadata_due is None:
            wanted = self.recovery.metadata()
            if wanted != self._written:
                self.metadata_due = wanted
            else:
                self._admit()

    def _admit(self) -> None:
        """Make recovered replicas active if the metadata name them; open the session with a quorum.

        The next vote counts only named replicas, so it would miss what other ones acknowledged.
        """
        mark = self.recovery.mark
        assert mark is not None
        admitted = frozenset(filter(self._written.takes_part, self.recovery.recovered()))
        for name, replica in self.replica_states.items():
            if replica.stage is ReplicaStage.RECOVERING and name in admitted:
                replica.activate(mark)
        if self.phase is SessionPhase.RECOVERING and len(self.active()) >= self._quorum:
            assert self._written.session_id == self.session_id
            assert self._written.generation == self.generation
            self.phase = SessionPhase.OPEN
            self.low_water_mark = self.high_water_mark = mark
            self._next_id = mark + 1
        elif self.phase is SessionPhase.OPEN:
            self.pump()

    # ---- appends

    def _send_due(self, replica: ReplicaSession) -> None:
        """Send ``replica`` the batches that it lacks, from memory, or as copies from a peer."""
        while replica.copying is None and replica.next_id < self._next_id:
            batch = self._tail.starting_at(replica.next_id)
            if batch is None:
                if replica.in_flight == 0:  # One copy at a time, and none beside batches.
                    self._catch_up(replica)
                return
            if replica.in_flight >= self._limits.batches_in_flight:
                return
            self._send_records(replica, batch.records)

    def _send_records(self, replica: ReplicaSession, records: RecordBatch) -> None:
        replica.sent(records.first_id(), records.count)
        request = st.AppendRequest(self.session_id, st.NO_SEQ, self.partition, records)
        self._ready.add(SendToStorage(replica.storage, request))

    def _catch_up(self, replica: ReplicaSession) -> None:
        """Copy committed records to ``replica`` from a peer, up to the batches in memory."""
        first_id = self._tail.first_id
        tail_start = self._next_id if first_id is None else first_id
        assert replica.next_id < tail_start
        count = min(self._limits.copy_records, tail_start - replica.next_id)
        replicas = self.replica_states.values()
        peers = readable_replicas(replicas, replica.next_id + count - 1, {replica.storage})
        preferred = self.recovery.unreadable.preferred(replica.next_id, [p.storage for p in peers])
        source = choose_replica(replicas, [p for p in peers if p.storage in preferred])
        if source is None:
            lacking = f"the records from {replica.next_id} on that {replica.storage} lacks"
            self._fail(replica, f"no peer holds {lacking}")
            return
        where = (self.session_id, st.NO_SEQ, self.partition, replica.next_id)
        replica.copying = st.BoundedRecordListRequest(*where, count, self._limits.copy_bytes)
        self._ready.add(SendToStorage(source, replica.copying))
        if not replica.lagged:
            replica.lagged = True
            lack = f"{replica.storage} lacks {tail_start - replica.next_id} transactions"
            self._log(f"{lack} and catches up from its peers", LogLevel.INFO)

    def _copy_received(
        self, source: str, request: st.BoundedRecordListRequest, response: Any
    ) -> None:
        """Send the records that ``source`` has returned to the replica that copies them."""
        replica = end_copy(self.replica_states.values(), request)
        if replica is None:
            return
        records = getattr(response, "records", None)
        if not records or records.first_id() != request.first_id:
            # ``source`` is damaged or lacks the records. ``replica`` is not, and goes on.
            if reason := self.recovery.unreadable.refused(source, request.first_id, response):
                self._log(f"{reason}; {replica.storage} tries another peer")
            self._copy_from_another(replica, source)
            return
        if replica.stage is ReplicaStage.RECOVERING:
            copy = st.AppendRequest(self.session_id, st.NO_SEQ, self.partition, records)
            self._ready.add(SendToStorage(replica.storage, copy))
            return
        self._send_records(replica, records)

    def _copy_source_lost(self, source: str, request: st.Request) -> None:
        """If ``request`` was for a copy, let its replica try another peer: ``source`` is lost."""
        replica = end_copy(self.replica_states.values(), request)
        if replica is not None:
            self._copy_from_another(replica, source)

    def _copy_from_another(self, replica: ReplicaSession, source: str) -> None:
        if replica.stage is ReplicaStage.RECOVERING:
            self.recovery.not_copied(replica.storage, source)
            self._recover()
        else:
            self.recovery.unreadable.start_timer(self._ready)
            self._send_due(replica)

    def _acknowledged(self, replica: ReplicaSession, request: st.Request) -> None:
        """Commit the batches that a quorum has now, and send the next ones."""
        assert isinstance(request, st.AppendRequest)
        if not replica.acknowledge(request.records.first_id(), request.records.count):
            self._fail(replica, f"{replica.storage} did not acknowledge appends in their order")
            return
        replicas = self.replica_states.values()
        committed = committed_id(replicas, self._quorum)
        if committed > self.high_water_mark:
            for batch in self._tail.commit(committed):
                assert batch.first_id == self.high_water_mark + 1, "committed ids have no gap"
                self.high_water_mark = batch.last_id
                self._reports.add(AppendsCommitted(batch.first_id, batch.appends, batch.records))
        acknowledged = [s.acknowledged for s in replicas if s.stage is ReplicaStage.ACTIVE]
        self._tail.trim(min(acknowledged, default=-1))
        assert self.low_water_mark <= self.high_water_mark < self._next_id
        self._close_if_drained()
        if self.phase is not SessionPhase.CLOSED:
            self.pump()

    def _close_if_drained(self) -> None:
        if self.phase is SessionPhase.DRAINING and not self._tail.in_flight:
            self.close(self.end_reason)

    def _fail(self, replica: ReplicaSession, reason: str) -> None:
        """Drop ``replica`` from this session; close the session if the others are no quorum."""
        if replica.stage is ReplicaStage.FAILED or self.phase is SessionPhase.CLOSED:
            return
        if self.phase is SessionPhase.RECOVERING or replica.stage is ReplicaStage.RECOVERING:
            # It has acknowledged no append of this session, so the metadata may say that it left.
            # An active replica stays in them: the next vote must count what it has acknowledged.
            self.recovery.failed(replica.storage)
        self.recovery.unreadable.drop(replica.storage)
        replica.stage = ReplicaStage.FAILED
        replica.copying = None
        self.failed.append(replica.storage)
        self.newly_failed.append(replica.storage)
        remaining = self.active()
        if self.phase is SessionPhase.RECOVERING:
            remaining = frozenset(self.replica_states) - frozenset(self.failed)
        if len(remaining) < self._quorum:
            self.close(reason)
            return
        self._log(f"session {self.session_id} continues without {replica.storage}: {reason}")
        self.pump()

    def _log(self, text: str, level: LogLevel = LogLevel.WARNING) -> None:
        self._ready.add(WriteLog(level, f"partition {self.partition}: {text}"))
