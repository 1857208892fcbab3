"""The store of one partition: one store session after another. Pure.

Begins each session with a compare-and-set of the partition's metadata, carries appends whose fate
is uncertain from a broken session into the next, which resolves them, and decides when a replica
that fell out may come back (spec/behaviour.md sections 5 to 7; spec/zookeeper.md section 6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum, auto
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
    RetrySession,
    StartTimer,
    StoreTimer,
    WriteLog,
    WriteMetadata,
)
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.replication.in_doubt_appends import Carried, fates, give_up
from waltz_server.core.replication.replica_reads import ReplicaReads
from waltz_server.core.replication.storage_backoff import StorageBackoff
from waltz_server.core.replication.store_session import Phase, StoreSession
from waltz_server.core.store_reports import SessionOpened, StoreReports

_METADATA_BACKOFF = Backoff(0.1, 1.0)
_PATIENCE_SECONDS = 5.0
"""How long a recovery may wait for replicas before the partition counts as unhealthy."""


class _Stage(Enum):
    IDLE = auto()
    READING = auto()
    BEGINNING = auto()
    RUNNING = auto()
    WAITING = auto()
    REFUSED = auto()
    CLOSED = auto()


class StorePartition:
    """The state machine. It adds effects to ``ready`` and reports to ``reports``."""

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
        """Whether the last session opened, and in good time; true before the first."""
        self._limits = limits
        self._retry = retry
        self._generation = -1
        self._replicas: tuple[str, ...] = ()
        self._stage = _Stage.IDLE
        self._session: StoreSession | None = None
        self._opened = False
        self._version = -1
        self._order: MetadataOperation | None = None
        """The operation on the metadata whose answer counts; that of any earlier one does not."""
        self._begun: tuple[PartitionMetadata, PartitionMetadata] | None = None
        self._failures = 0
        self._attempt = 0
        self._backoff = StorageBackoff(retry.delay, ready)
        self._queue: deque[Append] = deque()
        self._carried = Carried()
        self._mark: int | None = None
        self._ready = ready
        self._reports = reports
        self.reads = ReplicaReads(partition, ready, reports)
        """Reads from the replicas."""

    # ---- questions

    @property
    def high_water_mark(self) -> int | None:
        """The last committed id as far as this server knows, None before the first session."""
        return self._mark

    @property
    def is_open(self) -> bool:
        """Whether appends flow."""
        return self._session is not None and self._session.phase is Phase.OPEN

    @property
    def queued(self) -> int:
        """Number of appends that wait to be sent."""
        return len(self._queue)

    @property
    def session_id(self) -> int:
        """Id of the current store session, -1 without one."""
        return self._session.session_id if self._session is not None else -1

    @property
    def replicas(self) -> tuple[str, ...]:
        """The replicas of the current store session, or those that the next one will have."""
        return self._session.replicas if self._session is not None else self._replicas

    @property
    def active_replicas(self) -> frozenset[str]:
        """The replicas that take part in appends now."""
        return self._session.active() if self._session is not None else frozenset()

    @property
    def waiting_for(self) -> str | None:
        """What the current session's recovery waits for, None if none is under way."""
        session = self._session
        if session is None or session.phase is not Phase.RECOVERING:
            return None
        return session.recovery.waiting_for()

    # ---- inputs: who owns what

    def set_generation(self, generation: int) -> None:
        """The partition is this server's, in ``generation``, which never decreases."""
        if generation <= self._generation or self._stage is _Stage.CLOSED:
            return
        self._generation = generation
        self._restart("generation changed")

    def set_replicas(self, replicas: Iterable[str]) -> None:
        """The partition's replicas are on these storages from now on."""
        new = tuple(replicas)
        if set(new) == set(self._replicas) or self._stage is _Stage.CLOSED:
            return
        self._replicas = new
        self._watch()
        if self._session is not None and self._session.phase is not Phase.CLOSED:
            self._session.drain("the replica assignment changed")
            self._follow_session()
        else:
            self._restart("the replica assignment changed")

    def close(self) -> None:
        """Stop: what is pending stays unresolved, and its clients will look it up in the log."""
        if self._session is not None:
            self._session.close("the partition is closed")
        self._session = None
        self._order = None
        self.reads.ended()
        self._stage = _Stage.CLOSED
        self._ready.add(ConnectStorages(frozenset()))

    # ---- inputs: appends

    def append(self, appends: Sequence[Append]) -> None:
        """Take appends, in order, and send what has been taken, as far as limits allow."""
        self._queue += appends
        if self._session is not None:
            self._session.pump()
            self._follow_session()

    # ---- inputs: the world's reports

    def storage_up(self, storage: str) -> None:
        """A connection to ``storage`` is open."""
        self._backoff.set_up(storage, True)
        self._offer(storage)

    def storage_down(self, storage: str) -> None:
        """The connection to ``storage`` is gone."""
        self._backoff.set_up(storage, False)
        if self._session is not None:
            self._session.storage_down(storage)
            self._follow_session()

    def answered(self, storage: str, request: st.Request, response: Any, elapsed_ms: float) -> None:
        """``storage`` answered ``request``, or the connection was lost (None)."""
        if self.reads.answered(storage, request, response, elapsed_ms):
            return
        session = self._session
        if session is None or request.session_id != session.session_id:
            return
        if not session.answered(storage, request, response):
            self._note(LogLevel.WARNING, f"{storage} is not ready: {response.failure.message}")
            self._backoff.back_off((storage,))
        self._follow_session()

    def metadata_read(
        self, order: MetadataOperation, value: PartitionMetadata, version: int
    ) -> None:
        """The partition's metadata, as ``order`` asked for it."""
        if not self._is_awaited(order):
            return
        if value.generation > self._generation:
            self._stage = _Stage.REFUSED
            self._note(
                LogLevel.WARNING,
                f"generation {self._generation} is over: {value.generation} has begun elsewhere",
            )
            return
        begun = PartitionMetadata(self._generation, value.session_id + 1, value.replicas)
        self._begun = (begun, value)
        self._stage = _Stage.BEGINNING
        self._give_order(WriteMetadata(begun, version))

    def metadata_written(self, order: MetadataOperation, version: int) -> None:
        """``order`` was done; the metadata now has ``version``."""
        if not self._is_awaited(order):
            return
        self._version = version
        if self._stage is _Stage.BEGINNING and self._begun is not None:
            self._begin_session(*self._begun)
        elif self._session is not None:
            self._session.metadata_written()
        self._follow_session()

    def metadata_failed(self, order: MetadataOperation, reason: str) -> None:
        """``order`` failed, or met another's change."""
        if not self._is_awaited(order):
            return
        if self._stage in (_Stage.READING, _Stage.BEGINNING):
            self._wait(_METADATA_BACKOFF.delay(self._failures), f"metadata: {reason}")
            self._failures += 1
        elif self._session is not None:
            self._session.close(f"metadata: {reason}")
            self._follow_session()

    def timer_expired(self, timer: StoreTimer) -> None:
        """The time of a `StartTimer` has come."""
        match timer:
            case RetrySession(attempt):
                if self._stage is _Stage.WAITING and attempt == self._attempt:
                    self._begin()
            case RecoveryOverdue(session_id):
                self._lose_patience(session_id)
            case BackoffOver(storage):
                self._backoff.backoff_over(storage)
                self._offer(storage)
            case ResetFailures(storage, failures):
                self._backoff.reset_failures(storage, failures)
            case _:
                assert_never(timer)

    # ---- metadata

    def _give_order(self, order: MetadataOperation) -> None:
        self._order = order
        self._ready.add(order)

    def _is_awaited(self, order: MetadataOperation) -> bool:
        """Whether ``order`` is the one under way, which is then over."""
        if order is not self._order:
            return False
        self._order = None
        return True

    # ---- sessions

    def _lose_patience(self, session_id: int) -> None:
        """A recovery that waits for replicas says so again and again, until it is over."""
        if self.waiting_for is None or session_id != self.session_id:
            return
        self.healthy = False
        self._note(LogLevel.WARNING, f"session {session_id} waits: {self.waiting_for}")
        self._ready.add(StartTimer(_PATIENCE_SECONDS, RecoveryOverdue(session_id)))

    def _watch(self) -> None:
        """Keep in touch with the replicas, and with those that the current session still needs."""
        current = self._session.replicas if self._session is not None else ()
        wanted = (*self._replicas, *current)
        if self._backoff.watch(wanted):
            self._ready.add(ConnectStorages(frozenset(wanted)))

    def _restart(self, reason: str) -> None:
        if self._session is not None and self._session.phase is not Phase.CLOSED:
            self._session.close(reason)
            self._follow_session()
        elif self._stage in (_Stage.IDLE, _Stage.WAITING, _Stage.REFUSED):
            self._begin()

    def _begin(self) -> None:
        """Begin a session, if there is anything to begin it with."""
        if self._generation < 0 or not self._replicas:
            self._stage = _Stage.IDLE
            return
        self._stage = _Stage.READING
        self._give_order(ReadMetadata())

    def _wait(self, seconds: float, reason: str) -> None:
        self._attempt += 1
        self._stage = _Stage.WAITING
        self._note(LogLevel.WARNING, f"{reason}; next try in {seconds:g} s")
        self._ready.add(StartTimer(seconds, RetrySession(self._attempt)))

    def _begin_session(self, begun: PartitionMetadata, found: PartitionMetadata) -> None:
        self._begun = None
        if begun.generation != self._generation:
            self._begin()
            return
        self._stage = _Stage.RUNNING
        self._opened = False
        session = self._session = StoreSession(
            self.partition,
            begun,
            self._replicas,
            found.replicas,
            self._limits,
            self._queue,
            self._ready,
            self._reports,
        )
        self._ready.add(StartTimer(_PATIENCE_SECONDS, RecoveryOverdue(session.session_id)))
        for name in self._backoff.available():
            session.storage_up(name)

    def _follow_session(self) -> None:
        """Do what the session's last input asks for, and notice that it opened or ended."""
        session = self._session
        if session is None:
            return
        if not self._opened and session.phase is Phase.OPEN:
            self._session_opened(session)
        if self._opened:
            self._mark = session.high_water_mark
        if session.metadata_due is not None and self._order is None:
            self._give_order(WriteMetadata(session.metadata_due, self._version))
        self._backoff.back_off(session.fallen)
        session.fallen.clear()
        if session.left:
            self._take_back(session)
        if session.phase is Phase.CLOSED:
            self._session_ended(session)

    def _take_back(self, session: StoreSession) -> None:
        """Make way for a session with a storage that fell out of this one and has rested.

        A recovery that is at work goes on: the storage might only hold up the next one, too.
        """
        if session.phase is not Phase.OPEN and not session.stands_still():
            return
        if back := next(filter(self._backoff.is_available, session.left), None):
            session.drain(f"to take {back} back in")

    def _session_opened(self, session: StoreSession) -> None:
        self._opened = True
        self.healthy = True
        self._failures = 0
        mark = session.low_water_mark
        carried, self._carried = self._carried, Carried()
        if carried.generation == self._generation:
            outcomes = fates(carried, self._queue, mark)
        else:
            outcomes = give_up(carried, self._queue, self._generation)
        for outcome in outcomes:
            self._reports.add(outcome)
        self._mark = mark
        self._reports.add(SessionOpened(mark))
        active = ", ".join(sorted(session.active()))
        self._note(LogLevel.INFO, f"session {session.session_id} open at {mark} with {active}")
        # Appends have a while for themselves before the session makes way to take those back in.
        self._backoff.back_off(session.left)
        self.reads.opened(session)
        session.sending = True
        session.pump()

    def _session_ended(self, session: StoreSession) -> None:
        self._session = None
        self._order = None
        self.reads.ended()
        self._watch()
        if self._opened:
            self._carried = Carried(
                session.generation, session.high_water_mark + 1, session.uncertain()
            )
            if number := len(self._carried.appends):
                self._note(LogLevel.INFO, f"{number} appends carried over into the next session")
        else:
            self.healthy = False
        self._note(
            LogLevel.INFO,
            f"session {session.session_id} ended: {session.end_reason}"
            f" ({session.recovery.story() or 'no replica came'})",
        )
        if self._stage is _Stage.CLOSED:
            return
        if self._opened or session.gave_way:
            self._begin()
        else:
            self._wait(self._retry.delay(self._failures), "the store session did not open")
            self._failures += 1

    def _offer(self, storage: str) -> None:
        """Let a storage that is up and rested take part, through a new session if need be."""
        session = self._session
        if session is not None and self._backoff.is_available(storage):
            session.storage_up(storage)
            self._follow_session()

    def _note(self, level: LogLevel, text: str) -> None:
        self._ready.add(WriteLog(level, f"partition {self.partition}: {text}"))
