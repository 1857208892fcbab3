"""One store session of one partition: recovery, then quorum appends and catching up. Pure.

A session is a server's exclusive right to write a partition's replicas (spec/behaviour.md section
5). It ends when its quorum is lost or can no longer come, or when it is drained on purpose; the
store then begins another. A replica that fails leaves its session for good: what was in flight to
it can no longer be told from what was not, so only a new session's recovery may take it back in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from waltz.metadata.core.formats import PartitionMetadata, ReplicaState
from waltz.protocol import RecordBatch
from waltz.protocol import storage as st
from waltz_server.core.appends.append import Append
from waltz_server.core.effects import LogLevel, Ready, SendToStorage, WriteLog
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.replication.log_tail import LogTail, form_batch
from waltz_server.core.replication.recovery import Copy, Recovery
from waltz_server.core.replication.recovery_messages import report, request_of
from waltz_server.core.replication.replica_session import ReplicaSession, ReplicaStage
from waltz_server.core.store_reports import AppendsCommitted, StoreReports

_CATCH_UP_TARGET_BYTES = 1 << 20


class Phase(Enum):
    """Where a store session is in its life."""

    RECOVERING = auto()
    OPEN = auto()
    DRAINING = auto()
    CLOSED = auto()


class StoreSession:
    """The state machine of one session.

    ``metadata`` is what the store has just written to begin the session, ``last`` the replica
    states that it found, ``queue`` the appends that wait, which outlives the session.
    """

    def __init__(
        self,
        partition: int,
        metadata: PartitionMetadata,
        replicas: tuple[str, ...],
        last: Mapping[str, ReplicaState],
        limits: ReplicationLimits,
        queue: deque[Append],
        ready: Ready,
        reports: StoreReports,
    ) -> None:
        self.partition = partition
        self.session_id = metadata.session_id
        self.generation = metadata.generation
        self.phase = Phase.RECOVERING
        self.end_reason = ""
        self.sending = False
        """Set by the store once it has dealt with what earlier sessions left behind."""
        self.low_water_mark = -1
        self.high_water_mark = -1
        self._ready = ready
        self._reports = reports
        self.metadata_due: PartitionMetadata | None = None
        """The metadata that recovery wants written, None if there is nothing to write."""
        self.gave_way = False
        """Whether it was ended on purpose before it opened: the next one need not wait."""
        self.left: list[str] = []
        """Replicas that fell out of this session: only another one may take them back in."""
        self.fallen: list[str] = []
        """Those of them that the store has not taken note of."""
        self._unreadable: set[str] = set()
        """Replicas that could not be copied from."""
        self._limits = limits
        self.replicas = replicas
        self._quorum = len(replicas) // 2 + 1
        self._replicas = {name: ReplicaSession(name) for name in replicas}
        self.recovery = Recovery(
            self.session_id, self.generation, replicas, last, limits.copy_records
        )
        self._written = PartitionMetadata(self.generation, self.session_id, last)
        self._queue = queue
        self._next_id = 0
        self._tail = LogTail(limits.tail_bytes)

    # ---- inputs

    def storage_up(self, storage: str) -> None:
        """The connection to ``storage`` is open."""
        r = self._replicas.get(storage)
        if r is None or r.stage is not ReplicaStage.CONNECTING or r.introducing:
            return
        if self.phase in (Phase.RECOVERING, Phase.OPEN):
            r.introducing = True
            request = st.LastSessionInfoRequest(self.session_id, st.NO_SEQ, self.partition)
            self._ready.add(SendToStorage(storage, request))

    def storage_down(self, storage: str) -> None:
        """The connection to ``storage`` is gone, and with it everything asked on it."""
        r = self._replicas.get(storage)
        if r is None:
            return
        r.introducing = False
        relied = self.phase is Phase.RECOVERING and self.recovery.relies_on(storage)
        if r.stage is not ReplicaStage.CONNECTING:
            self._fail(r, f"connection to {storage} lost")
        if relied:
            self.close(f"{storage}, which was counted, may be without its fence")

    def answered(self, storage: str, request: st.Request, response: Any) -> bool:
        """A storage answered; ``response`` is None if the connection was lost instead.

        Returns False if an introduction was refused: it may be tried again later.
        """
        r = self._replicas[storage]
        if self.phase is Phase.CLOSED:
            return True
        if response is None:
            self._copy_lost(storage, request)
            return True
        if isinstance(request, st.LastSessionInfoRequest):
            return self._introduced(r, response)
        if isinstance(request, st.RecordListRequest):
            self._copy_read(storage, request, response)
            return True
        if r.stage in (ReplicaStage.CONNECTING, ReplicaStage.LEFT):
            return True
        if isinstance(response, st.FailureResponse):
            self._fail(r, f"{storage} refused: {response.failure.message}")
        elif r.stage is ReplicaStage.ACTIVE:
            assert isinstance(request, st.AppendRequest)
            self._acknowledged(r, request)
        else:
            if report(self.recovery, storage, request, response):
                self._recover()
            else:
                self._fail(r, f"{storage} gave an answer that does not fit: {response!r}")
        return True

    def metadata_written(self) -> None:
        """The metadata of ``metadata_due`` is in place: recovered replicas become active."""
        assert self.metadata_due is not None
        self._written, self.metadata_due = self.metadata_due, None
        self.recovery.metadata_written(self._written)
        self._admit()
        self._recover()

    def pump(self) -> None:
        """Form batches of what waits in the queue and send them, as far as limits allow."""
        limits = self._limits
        while (
            self._queue
            and self.sending
            and self.phase is Phase.OPEN
            and self._tail.in_flight < limits.batches_in_flight
        ):
            if self._next_id - 1 - self.low_water_mark >= limits.checkpoint_interval:
                self.drain("checkpoint")
                break
            batch = form_batch(self._queue, self._next_id, limits)
            self._next_id = batch.last_id + 1
            self._tail.add(batch)
        if self.phase is Phase.CLOSED:
            return
        for r in self._replicas.values():
            if r.stage is ReplicaStage.ACTIVE:
                self._send_due(r)

    def drain(self, reason: str) -> None:
        """Take no new batch, and close once what is in flight is committed."""
        if self.phase is Phase.RECOVERING:
            self.gave_way = True
            self.close(reason)
        elif self.phase is Phase.OPEN:
            self.phase = Phase.DRAINING
            self.end_reason = reason
            self._close_if_drained()

    def close(self, reason: str) -> None:
        """End the session now."""
        if self.phase is not Phase.CLOSED:
            self.phase = Phase.CLOSED
            self.end_reason = reason

    # ---- questions

    def uncertain(self) -> list[Append]:
        """Return the appends that were sent and not committed, in the order of their ids."""
        return self._tail.uncertain()

    def route(self, needed_id: int, excluded: frozenset[str] = frozenset()) -> str | None:
        """Return the replica to read up to ``needed_id`` from: the least loaded that has it."""
        having = [
            r
            for r in self._replicas.values()
            if r.stage is ReplicaStage.ACTIVE
            and r.acknowledged >= needed_id
            and r.storage not in excluded
        ]
        if not having:
            return None
        best = min(having, key=lambda r: r.route_weight)
        best.route_weight += best.expected_ms
        return best.storage

    def read_took(self, storage: str, elapsed_ms: float) -> None:
        """A read from ``storage`` took so long; slow replicas are asked less often."""
        r = self._replicas.get(storage)
        if r is not None:
            r.expected_ms = (r.expected_ms + min(max(elapsed_ms, 1.0), 3000.0)) / 2

    def active(self) -> frozenset[str]:
        """Return the replicas that take part in appends."""
        return frozenset(n for n, r in self._replicas.items() if r.stage is ReplicaStage.ACTIVE)

    def stands_still(self) -> bool:
        """Whether it is not open, and nothing that is under way can change that."""
        return (
            self.phase is Phase.RECOVERING
            and self.metadata_due is None
            and not self.recovery.is_at_work()
            and not any(r.introducing for r in self._replicas.values())
        )

    # ---- recovery

    def _introduced(self, r: ReplicaSession, response: Any) -> bool:
        if not r.introducing or r.stage is not ReplicaStage.CONNECTING:
            return True
        r.introducing = False
        if not isinstance(response, st.LastSessionInfoResponse):
            return False
        r.stage = ReplicaStage.RECOVERING
        self.recovery.introduced(
            r.storage,
            response.last_session_id,
            response.low_water_mark,
            response.local_low_water_mark,
        )
        self._recover()
        return True

    def _recover(self) -> None:
        for storage, step in self.recovery.steps():
            request = request_of(step, self.session_id, self.partition)
            if isinstance(step, Copy):
                assert isinstance(request, st.RecordListRequest)
                self._replicas[storage].copying = request
                storage = step.usher
            self._ready.add(SendToStorage(storage, request))
        recovered = self.recovery.recovered()
        if len(recovered) >= self._quorum and self.metadata_due is None:
            wanted = self.recovery.metadata()
            if wanted != self._written:
                self.metadata_due = wanted
            else:
                self._admit()

    def _admit(self) -> None:
        """Recovered replicas that the metadata names become active; a quorum opens the session."""
        mark = self.recovery.mark
        assert mark is not None
        recovered = self.recovery.recovered()
        for name, r in self._replicas.items():
            if (
                r.stage is ReplicaStage.RECOVERING
                and name in recovered
                and self._written.takes_part(name)
            ):
                r.stage = ReplicaStage.ACTIVE
                r.acknowledged = mark
                r.next_id = mark + 1
        if self.phase is Phase.RECOVERING and len(self.active()) >= self._quorum:
            self.phase = Phase.OPEN
            self.low_water_mark = self.high_water_mark = mark
            self._next_id = mark + 1
        elif self.phase is Phase.OPEN:
            self.pump()

    # ---- appends

    def _send_due(self, r: ReplicaSession) -> None:
        """Send ``r`` what it lacks: from the tail in memory, or by copying from a peer."""
        while r.copying is None and r.next_id < self._next_id:
            batch = self._tail.starting_at(r.next_id)
            if batch is None:
                if r.in_flight == 0:
                    self._catch_up(r)
                return
            if r.in_flight >= self._limits.batches_in_flight:
                return
            self._send_records(r, batch.records)

    def _send_records(self, r: ReplicaSession, records: RecordBatch) -> None:
        request = st.AppendRequest(self.session_id, st.NO_SEQ, self.partition, records)
        self._ready.add(SendToStorage(r.storage, request))
        r.next_id += records.count
        r.in_flight += 1

    def _catch_up(self, r: ReplicaSession) -> None:
        """Read committed records for ``r`` from a peer, up to where the tail in memory begins."""
        first_id = self._tail.first_id
        tail_start = self._next_id if first_id is None else first_id
        assert r.next_id < tail_start
        count = min(r.catch_up_records, tail_start - r.next_id)
        usher = self.route(r.next_id + count - 1, frozenset({r.storage, *self._unreadable}))
        if usher is None:
            self._fail(r, f"no peer holds what {r.storage} lacks from {r.next_id} on")
            return
        r.copying = st.RecordListRequest(
            self.session_id, st.NO_SEQ, self.partition, r.next_id, count
        )
        self._ready.add(SendToStorage(usher, r.copying))
        if not r.lagged:
            r.lagged = True
            lack = f"{r.storage} lacks {tail_start - r.next_id} transactions"
            self._ready.add(
                WriteLog(LogLevel.INFO, f"partition {self.partition}: {lack} and catches up")
            )

    def _copy_read(self, usher: str, request: st.RecordListRequest, response: Any) -> None:
        r = next((r for r in self._replicas.values() if r.copying is request), None)
        if r is None:
            return
        r.copying = None
        records = getattr(response, "records", None)
        if not records or records.first_id() != request.first_id:
            self._not_copied(r, usher, request.first_id, response)
            return
        if r.stage is ReplicaStage.RECOVERING:
            copy = st.AppendRequest(self.session_id, st.NO_SEQ, self.partition, records)
            self._ready.add(SendToStorage(r.storage, copy))
            return
        if len(records.wire) < _CATCH_UP_TARGET_BYTES // 2:
            r.catch_up_records *= 2
        elif len(records.wire) > _CATCH_UP_TARGET_BYTES:
            r.catch_up_records = max(1, r.catch_up_records // 2)
        self._send_records(r, records)

    def _not_copied(self, r: ReplicaSession, usher: str, first_id: int, response: Any) -> None:
        """Have ``r`` copy from another peer: it is not its fault that ``usher`` cannot be read."""
        self._unreadable.add(usher)
        failed = isinstance(response, st.FailureResponse)
        why = response.failure.message if failed else "it does not hold them"
        what = f"{usher} cannot be read from {first_id} on: {why}"
        self._ready.add(WriteLog(LogLevel.WARNING, f"partition {self.partition}: {what}"))
        if r.stage is ReplicaStage.RECOVERING:
            self.recovery.not_copied(r.storage, usher)
            self._recover()
        else:
            self._send_due(r)

    def _copy_lost(self, usher: str, request: st.Request) -> None:
        """``usher``, which ``request`` reads from, is gone: whoever copies needs another peer."""
        r = next((r for r in self._replicas.values() if r.copying is request), None)
        if r is None:
            return
        r.copying = None
        if r.stage is ReplicaStage.RECOVERING:
            self.recovery.not_copied(r.storage, usher)
            self._recover()
        else:
            self.pump()

    def _acknowledged(self, r: ReplicaSession, request: st.AppendRequest) -> None:
        r.in_flight -= 1
        r.acknowledged = request.records.first_id() + request.records.count - 1
        marks = sorted((x.acknowledged for x in self._replicas.values()), reverse=True)
        committed = marks[self._quorum - 1]
        for batch in self._tail.commit(committed):
            self.high_water_mark = batch.last_id
            self._reports.add(AppendsCommitted(batch.first_id, batch.appends, batch.records))
        active = (x.acknowledged for x in self._replicas.values() if x.stage is ReplicaStage.ACTIVE)
        self._tail.trim(min(active, default=-1))
        self._close_if_drained()
        if self.phase is not Phase.CLOSED:
            self.pump()

    def _close_if_drained(self) -> None:
        if self.phase is Phase.DRAINING and not self._tail.in_flight:
            self.close(self.end_reason)

    def _fail(self, r: ReplicaSession, reason: str) -> None:
        """``r`` is out of this session, which is over once no quorum can be had any more."""
        if r.stage is ReplicaStage.LEFT or self.phase is Phase.CLOSED:
            return
        if self.phase is Phase.RECOVERING or r.stage is ReplicaStage.RECOVERING:
            # It has acknowledged nothing in this session: the mark is all that it may be held to.
            # One that took part in appends stays in the metadata as one that did.
            self.recovery.left(r.storage)
        r.stage = ReplicaStage.LEFT
        r.copying = None
        self.left.append(r.storage)
        self.fallen.append(r.storage)
        remaining = self.active()
        if self.phase is Phase.RECOVERING:
            remaining = frozenset(self._replicas) - frozenset(self.left)
        if len(remaining) < self._quorum:
            self.close(reason)
            return
        what = f"partition {self.partition}: goes on without {r.storage}: {reason}"
        self._ready.add(WriteLog(LogLevel.WARNING, what))
        self.pump()
