"""The store of one partition: it runs one store session after another. Pure.

The store begins each session with a compare-and-set of the partition's metadata. It resolves the
appends that the session before left in doubt. It decides when a failed replica may take part again
(spec/behaviour.md sections 5 and 6; spec/zookeeper.md section 6).

The compare-and-set makes a session exclusive: of two servers that assume that they own the
partition, only one writes the next session id. A storage refuses appends of all sessions but the
highest one that has contacted it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from waltz.metadata.core.formats import PartitionMetadata
from waltz.net.core.backoff import Backoff
from waltz.protocol import storage as st
from waltz_server.core.appends.append import Append
from waltz_server.core.effects import (
    BackoffOver,
    ConnectStorages,
    LogLevel,
    MetadataOperation,
    ReadMetadata,
    Ready,
    RecoveryOverdue,
    ResetFailures,
    RetryCopies,
    RetryMetadata,
    RetrySession,
    StartTimer,
    StoreTimer,
    WriteLog,
    WriteMetadata,
)
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.replication.awaited_operation import AwaitedOperation
from waltz_server.core.replication.in_doubt_appends import InDoubtAppends, outcomes
from waltz_server.core.replication.lost_metadata import LostMetadata
from waltz_server.core.replication.replica_reads import ReplicaReads
from waltz_server.core.replication.session_attempts import SessionAttempts
from waltz_server.core.replication.session_metadata import (
    REPLICAS_CHANGED,
    SessionMetadata,
    renewal_reason,
)
from waltz_server.core.replication.session_state import SessionPhase, StoreStage
from waltz_server.core.replication.storage_backoff import StorageBackoff
from waltz_server.core.replication.store_session import StoreSession
from waltz_server.core.store_reports import SessionDelayed, SessionOpened, StoreReports

_OVERDUE_SECONDS = 5.0
"""How long a recovery may take before the partition counts as unhealthy."""


class StorePartition:
    """The state machine of a store. It adds effects to ``ready`` and reports to ``reports``."""

    def __init__(
        self,
        partition: int,
        limits: ReplicationLimits,
        retry: Backoff,
        ready: Ready,
        reports: StoreReports,
    ) -> None:
        self.partition = partition
        self.healthy = True
        """False after an overdue or failed recovery, or lost metadata, until a session opens."""
        self._limits = limits
        self._generation = -1
        self._replicas: tuple[str, ...] = ()
        self._stage = StoreStage.IDLE
        self.session: StoreSession | None = None
        """The current store session, None between two sessions."""
        self._opened = False
        """Whether the newest session has opened."""
        self._metadata: SessionMetadata | None = None  # None between two sessions
        self._awaited = AwaitedOperation(ready)
        self._begun: PartitionMetadata | None = None
        """The metadata that are being written to begin a session."""
        self._lost_metadata = LostMetadata()
        self._attempts = SessionAttempts(partition, retry, ready)
        self._backoff = StorageBackoff(retry.delay, ready)
        self._queue: deque[Append] = deque()  # The granted appends that wait to be sent.
        self._in_doubt = InDoubtAppends()  # Of the last session that opened and has ended.
        self._last_session_id = -1  # The newest session that this server has begun.
        self._mark: int | None = None
        self._ready = ready
        self._reports = reports
        self.reads = ReplicaReads(partition, ready, reports)

    # ---- state

    @property
    def high_water_mark(self) -> int | None:
        """The last id that this server knows to be committed, None until a session has opened."""
        return self._mark

    @property
    def is_open(self) -> bool:
        """Whether a session is open, so that appends are sent."""
        return self.session is not None and self.session.phase is SessionPhase.OPEN

    @property
    def queued(self) -> int:
        """Number of appends that wait to be sent."""
        return len(self._queue)

    @property
    def session_id(self) -> int:
        """Id of the current store session, -1 without one."""
        return self.session.session_id if self.session is not None else -1

    @property
    def active_replicas(self) -> frozenset[str]:
        """The replicas that take part in appends now."""
        return self.session.active() if self.session is not None else frozenset()

    @property
    def waiting_for(self) -> str | None:
        """What the recovery waits for, or why lost metadata keep the partition closed; or None."""
        session = self.session
        if session is None or session.phase is not SessionPhase.RECOVERING:
            return self._lost_metadata.reason
        return session.recovery.waiting_for()

    # ---- inputs: ownership and assignment

    def set_generation(self, generation: int) -> None:
        """Begin a session in ``generation``; ignore a generation that is not newer."""
        if generation <= self._generation or self._stage is StoreStage.CLOSED:
            return
        self._generation = generation
        if self.session is not None:
            self.session.close("generation changed")
            self._after_session_input()
        else:
            self._restart()

    def set_replicas(self, replicas: Iterable[str]) -> None:
        """Use the replicas on these storages, from the next session on."""
        assigned = tuple(replicas)
        if set(assigned) == set(self._replicas) or self._stage is StoreStage.CLOSED:
            return
        self._replicas = assigned
        self._connect_storages()
        if self.session is None:
            self._restart()
        elif self.session.phase is SessionPhase.RECOVERING:
            self.session.drain(REPLICAS_CHANGED)
        self._after_session_input()  # An open session is renewed: see `renewal_reason`.

    def close(self) -> None:
        """Stop. Appends without an outcome get none; their clients look for them in the log."""
        if self.session is not None:
            self.session.close("the partition is closed")
        self.session = self._metadata = None
        self._awaited.cancel()
        self.reads.ended()
        self._stage = StoreStage.CLOSED
        self._ready.add(ConnectStorages(frozenset()))

    # ---- inputs: appends

    def append(self, appends: Sequence[Append]) -> None:
        """Queue ``appends``, in order, and send as many queued appends as the limits allow."""
        self._queue += appends
        if self.session is not None:
            self.session.pump()
            self._after_session_input()

    # ---- inputs: results of effects

    def storage_up(self, storage: str) -> None:
        """Let a storage take part: its connection is open."""
        self._backoff.set_connected(storage, True)
        self._admit_storage(storage)

    def storage_down(self, storage: str) -> None:
        """Drop a storage from the session, because its connection is lost."""
        self._backoff.set_connected(storage, False)
        if self.session is not None:
            self.session.storage_down(storage)
            self._after_session_input()

    def answered(self, storage: str, request: st.Request, response: Any, elapsed_ms: float) -> None:
        """Handle the answer to ``request``; ``response`` is None if the connection was lost."""
        if self.reads.answered(storage, request, response, elapsed_ms):
            return
        session = self.session
        if session is None or request.session_id != session.session_id:
            return
        if not session.answered(storage, request, response):
            # A request of `StoreSession.storage_up` failed; `_admit_storage` repeats it later.
            failed = isinstance(response, st.FailureResponse)
            why = response.failure.message if failed else f"unexpected answer {response!r}"
            self._log(LogLevel.WARNING, f"{storage} is not ready: {why}; backing off")
            self._backoff.back_off((storage,))
        self._after_session_input()

    def metadata_read(
        self, operation: MetadataOperation, value: PartitionMetadata, version: int
    ) -> None:
        """Begin a session on ``value``, or pass it to the current session if there is one."""
        if not self._awaited.accept(operation):
            return
        if self._metadata is not None:
            self._metadata.was_read(value, version)
            self._after_session_input()
            return
        if value.generation > self._generation:
            # Another server owns the partition now: a new session here would end its session.
            self._stage = StoreStage.REFUSED
            self._lost_metadata.forget()
            self._reports.add(SessionDelayed())
            ours, newer = f"generation {self._generation}", f"generation {value.generation}"
            why = f"{ours} is over: {newer} has begun on another server"
            self._log(LogLevel.WARNING, f"{why}; waiting for a new assignment")
            return
        if reason := self._lost_metadata.check(value, version, self._last_session_id):
            self._retry_unhealthy(reason)
            return
        session_id = value.session_id + 1
        begun = self._begun = PartitionMetadata(self._generation, session_id, value.replicas)
        self._stage = StoreStage.BEGINNING
        self._awaited.start(WriteMetadata(begun, version))

    def metadata_written(self, operation: MetadataOperation, version: int) -> None:
        """Continue after ``operation`` has succeeded; the metadata now have ``version``."""
        if not self._awaited.accept(operation):
            return
        if self._stage is StoreStage.BEGINNING and self._begun is not None:
            self._begin_session(self._begun, version)
        elif self._metadata is not None:
            self._metadata.written(version)
        self._after_session_input()

    def metadata_failed(self, operation: MetadataOperation, reason: str) -> None:
        """Retry later: ``operation`` failed, or may have failed. A session in recovery ends."""
        if not self._awaited.accept(operation):
            return
        if self._stage in (StoreStage.READING, StoreStage.BEGINNING):
            self._stage = StoreStage.WAITING
            self._reports.add(SessionDelayed())
            self._attempts.pause_without_metadata(f"metadata: {reason}")
        elif self._metadata is not None:
            self._metadata.failed(operation, reason)
            self._after_session_input()

    def timer_expired(self, timer: StoreTimer) -> None:
        """Act on a timer that `StartTimer` started."""
        match timer:
            case RetrySession():
                if self._stage is StoreStage.WAITING and self._attempts.is_due(timer):
                    self._start_attempt()
            case RetryMetadata(session_id):
                if self._metadata is not None and session_id == self.session_id:
                    self._metadata.pause_over()
                    self._after_session_input()
            case RetryCopies(session_id):
                if self.session is not None and session_id == self.session_id:
                    self.session.retry_copies()
                    self._after_session_input()
            case RecoveryOverdue(session_id):  # Repeated until the recovery ends.
                if self.waiting_for is not None and session_id == self.session_id:
                    self.healthy = False
                    self._reports.add(SessionDelayed())
                    self._log(LogLevel.WARNING, f"session {session_id} waits: {self.waiting_for}")
                    self._ready.add(StartTimer(_OVERDUE_SECONDS, timer))
            case BackoffOver(storage):
                self._backoff.backoff_over(storage)
                self._admit_storage(storage)
            case ResetFailures(storage, failures):
                self._backoff.reset_failures(storage, failures)
            case _:
                assert_never(timer)

    # ---- sessions

    def _connect_storages(self) -> None:
        """Connect to the assigned replicas, and to those that the current session still needs."""
        wanted = (*self._replicas, *(self.session.replicas if self.session is not None else ()))
        if self._backoff.track(wanted):
            self._ready.add(ConnectStorages(frozenset(wanted)))

    def _restart(self) -> None:
        """Use a new generation or new replicas: start an attempt, unless one is under way."""
        if self._stage in (StoreStage.IDLE, StoreStage.WAITING, StoreStage.REFUSED):
            self._start_attempt()

    def _start_attempt(self) -> None:
        """Read the metadata to begin a session, if generation and replicas are known."""
        if self._generation < 0 or not self._replicas:
            self._stage = StoreStage.IDLE
            return
        self._stage = StoreStage.READING
        self._awaited.start(ReadMetadata())

    def _begin_session(self, begun: PartitionMetadata, version: int) -> None:
        self._begun = None
        if begun.generation != self._generation:  # A new generation came during the write.
            self._start_attempt()
            return
        assert begun.session_id > self._last_session_id, "session ids grow"
        self._last_session_id = begun.session_id
        self._stage = StoreStage.RUNNING
        self._opened = False
        self._lost_metadata.session_begun(begun.session_id, version)
        limits, queue, ready = self._limits, self._queue, self._ready
        # A disk may be restored from a copy of the last session. Only what this server knows to be
        # committed shows that such a disk lacks records (restored_in_session.txt).
        committed = -1 if self._mark is None else self._mark
        session = self.session = StoreSession(
            self.partition, begun, self._replicas, limits, queue, ready, self._reports, committed
        )
        self._metadata = SessionMetadata(session, version, self._awaited, ready)
        self._ready.add(StartTimer(_OVERDUE_SECONDS, RecoveryOverdue(session.session_id)))
        for name in self._backoff.available():
            session.storage_up(name)

    def _after_session_input(self) -> None:
        """Act on the changes that an input made to the session, which may have opened or ended."""
        session = self.session
        if session is None or self._metadata is None:
            return
        if not self._opened and session.phase is SessionPhase.OPEN:
            self._session_opened(session)
        if self._opened:
            self._mark = session.high_water_mark
        self._backoff.back_off(session.newly_failed)
        session.newly_failed.clear()
        renewal = renewal_reason(session, self._replicas, self._backoff)
        # A session in recovery ends here only if it is stuck. Otherwise a storage that returns and
        # fails again and again could end each recovery before it succeeds.
        if renewal is not None and session.is_stuck():
            session.drain(renewal)
        # An open session reads the metadata first, and drains when it has them.
        self._metadata.proceed(renewal)
        if session.phase is SessionPhase.CLOSED:
            self._session_ended(session)

    def _session_opened(self, session: StoreSession) -> None:
        self._opened = True
        self.healthy = True
        self._attempts.succeeded()
        mark = session.low_water_mark
        assert self._mark is None or mark >= self._mark, "a committed id is never given up"
        in_doubt, self._in_doubt = self._in_doubt, InDoubtAppends()
        for outcome in outcomes(in_doubt, self._queue, self._generation, mark):
            self._reports.add(outcome)
        self._mark = mark
        self._reports.add(SessionOpened(mark))
        active = ", ".join(sorted(session.active()))
        self._log(LogLevel.INFO, f"session {session.session_id} open at {mark} with {active}")
        # Without a new backoff, a failed storage could end the session at once (`renewal_reason`).
        self._backoff.back_off(session.failed)
        self.reads.opened(session)
        session.sending = True
        session.pump()

    def _session_ended(self, session: StoreSession) -> None:
        self.session = self._metadata = None
        self._awaited.cancel()
        self.reads.ended()
        self._connect_storages()
        # A session that did not open has sent no append: those in doubt are of an earlier session.
        if self._opened:
            self._in_doubt = InDoubtAppends(
                session.generation, session.high_water_mark + 1, session.in_doubt()
            )
            if count := len(self._in_doubt.appends):
                self._log(LogLevel.INFO, f"{count} appends in doubt until the next session opens")
        why = f"{session.end_reason} ({session.recovery.summary() or 'no replica connected'})"
        self._log(LogLevel.INFO, f"session {session.session_id} ended: {why}")
        if self._opened or session.drained_early or session.generation != self._generation:
            self._start_attempt()
        else:  # The session failed to open, so the next attempt waits.
            self._lost_metadata.session_did_not_open(session.recovery.contradiction)
            self._retry_unhealthy("the store session did not open")

    def _retry_unhealthy(self, reason: str) -> None:
        """Count the store as unhealthy, and retry: later each time, until a session opens."""
        self.healthy = False
        self._reports.add(SessionDelayed())
        self._stage = StoreStage.WAITING
        self._attempts.pause_without_session(reason)

    def _admit_storage(self, storage: str) -> None:
        """Let ``storage`` take part if it is available, in a new session if necessary."""
        session = self.session
        if session is not None and self._backoff.is_available(storage):
            session.storage_up(storage)
            self._after_session_input()

    def _log(self, level: LogLevel, text: str) -> None:
        self._ready.add(WriteLog(level, f"partition {self.partition}: {text}"))
