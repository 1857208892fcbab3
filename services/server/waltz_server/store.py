"""The store of one partition: one store session after another. Pure.

Begins each session with a compare-and-set of the partition's metadata, carries appends whose fate
is uncertain from a broken session into the next, which resolves them, and decides when a replica
that fell out may come back (behaviour.md sections 5 to 7; zookeeper.md section 6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from waltz.metadata.formats import PartitionMetadata
from waltz.protocol import storage as st
from waltz_server.effects import (
    Append,
    Ask,
    Committed,
    Failed,
    Fetched,
    Level,
    Note,
    Opened,
    ReadMetadata,
    StoreEffect,
    Unresolved,
    Wake,
    Watch,
    WriteMetadata,
)
from waltz_server.replication import Phase, ReplicationLimits, StoreSession

_METADATA_RETRY_SECONDS = (0.1, 1.0)
_FORGIVE_SECONDS = 60.0
_PATIENCE_SECONDS = 5.0
"""How long a recovery may wait for replicas before the partition counts as unhealthy."""
_NO_SEQ = -2


class _Stage(Enum):
    IDLE = auto()
    READING = auto()
    BEGINNING = auto()
    RUNNING = auto()
    WAITING = auto()
    REFUSED = auto()
    CLOSED = auto()


@dataclass(slots=True)
class _Storage:
    """What the store remembers of a storage from session to session."""

    up: bool = False
    resting: bool = False
    """Kept out of sessions for a while, because it failed in one."""
    strikes: int = 0


@dataclass(eq=False, slots=True)
class _Fetch:
    token: Any
    first_id: int
    count: int
    headers: bool
    tried: frozenset[str] = frozenset()
    request: st.Request | None = None


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Back-off between store sessions that do not open, and of replicas that fail in them."""

    initial_seconds: float = 0.1
    max_seconds: float = 20.0

    def delay(self, failures: int) -> float:
        """Return the pause after so many failures in a row."""
        return float(min(self.initial_seconds * 2 ** min(failures, 30), self.max_seconds))


@dataclass(slots=True)
class _Carried:
    """Appends that a broken session sent: ids from ``first_id`` on, fate unknown."""

    generation: int = -1
    first_id: int = 0
    appends: list[Append] = field(default_factory=list)


class StorePartition:
    """The state machine. Every input may add to the effects that `drain_effects` returns."""

    def __init__(
        self,
        partition: int,
        limits: ReplicationLimits,
        retry: RetryLimits,
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
        self._writing = False
        self._begun: tuple[PartitionMetadata, PartitionMetadata] | None = None
        self._failures = 0
        self._attempt = 0
        self._storages: dict[str, _Storage] = {}
        self._queue: deque[Append] = deque()
        self._carried = _Carried()
        self._mark: int | None = None
        self._fetches: list[_Fetch] = []
        self._out: list[StoreEffect] = []

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
        return session.waiting_for()

    def drain_effects(self) -> list[StoreEffect]:
        """Return what is to be done since the last call, in order."""
        effects, self._out = self._out, []
        return effects

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
        self._stage = _Stage.CLOSED
        self._out.append(Watch(frozenset()))

    # ---- inputs: appends and reads

    def append(self, append: Append) -> None:
        """Take one append; `pump` must follow after the last of a batch."""
        self._queue.append(append)

    def pump(self) -> None:
        """Send what has been taken, as far as the session's limits allow."""
        if self._session is not None:
            self._session.pump()
            self._follow_session()

    def fetch_records(self, first_id: int, count: int, token: Any) -> None:
        """Read up to ``count`` committed records; `Fetched` follows with ``token``."""
        self._fetch(_Fetch(token, first_id, count, headers=False))

    def fetch_headers(self, first_id: int, count: int, token: Any) -> None:
        """Read up to ``count`` headers of committed records; `Fetched` follows with ``token``."""
        self._fetch(_Fetch(token, first_id, count, headers=True))

    # ---- inputs: the world's reports

    def storage_up(self, storage: str) -> None:
        """A connection to ``storage`` is open."""
        known = self._storages.get(storage)
        if known is not None:
            known.up = True
            self._offer(storage)

    def storage_down(self, storage: str) -> None:
        """The connection to ``storage`` is gone."""
        known = self._storages.get(storage)
        if known is not None:
            known.up = False
        if self._session is not None:
            self._session.storage_down(storage)
            self._follow_session()

    def answered(self, storage: str, request: st.Request, response: Any, elapsed_ms: float) -> None:
        """``storage`` answered ``request``, or the connection was lost (None)."""
        fetch = next((f for f in self._fetches if f.request is request), None)
        if fetch is not None:
            self._fetched(fetch, storage, response, elapsed_ms)
            return
        session = self._session
        if session is None or request.session_id != session.session_id:
            return
        if not session.answered(storage, request, response):
            self._note(Level.WARNING, f"{storage} is not ready: {response.failure.message}")
            self._rest(storage)
        self._follow_session()

    def metadata_read(self, value: PartitionMetadata, version: int) -> None:
        """The partition's metadata, as asked for by `ReadMetadata`."""
        if self._stage is not _Stage.READING:
            return
        if value.generation > self._generation:
            self._stage = _Stage.REFUSED
            self._note(
                Level.WARNING,
                f"generation {self._generation} is over: {value.generation} has begun elsewhere",
            )
            return
        begun = PartitionMetadata(self._generation, value.session_id + 1, value.replicas)
        self._begun = (begun, value)
        self._stage = _Stage.BEGINNING
        self._out.append(WriteMetadata(begun, version))

    def metadata_written(self, version: int) -> None:
        """The last `WriteMetadata` was done; the metadata now has ``version``."""
        self._version = version
        if self._stage is _Stage.BEGINNING and self._begun is not None:
            self._begin_session(*self._begun)
        elif self._writing and self._session is not None:
            self._writing = False
            if self._session.phase is not Phase.CLOSED:
                self._session.metadata_written()
        self._follow_session()

    def metadata_failed(self, reason: str) -> None:
        """The last read or write of metadata failed, or met another's change."""
        self._writing = False
        if self._stage in (_Stage.READING, _Stage.BEGINNING):
            first, longest = _METADATA_RETRY_SECONDS
            delay = min(first * 2**self._failures, longest)
            self._failures += 1
            self._wait(delay, f"metadata: {reason}")
        elif self._session is not None:
            self._session.close(f"metadata: {reason}")
            self._follow_session()

    def woken(self, purpose: Any) -> None:
        """The time of a `Wake` has come."""
        match purpose:
            case ("retry", attempt):
                if self._stage is _Stage.WAITING and attempt == self._attempt:
                    self._begin()
            case ("patience", session_id):
                self._lose_patience(session_id)
            case ("rested", storage):
                if storage in self._storages:
                    self._storages[storage].resting = False
                    self._offer(storage)
            case ("forgive", storage, strikes):
                known = self._storages.get(storage)
                if known is not None and known.strikes == strikes:
                    known.strikes = 0

    # ---- sessions

    def _lose_patience(self, session_id: int) -> None:
        """A recovery that waits for replicas says so again and again, until it is over."""
        if self.waiting_for is None or session_id != self.session_id:
            return
        self.healthy = False
        self._note(Level.WARNING, f"session {session_id} waits: {self.waiting_for}")
        self._out.append(Wake(_PATIENCE_SECONDS, ("patience", session_id)))

    def _watch(self) -> None:
        """Keep in touch with the replicas, and with those that the current session still needs."""
        wanted = dict.fromkeys(self._replicas)
        if self._session is not None:
            wanted |= dict.fromkeys(self._session.replicas)
        if wanted.keys() != self._storages.keys():
            self._storages = {name: self._storages.get(name, _Storage()) for name in wanted}
            self._out.append(Watch(frozenset(wanted)))

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
        self._out.append(ReadMetadata())

    def _wait(self, seconds: float, reason: str) -> None:
        self._attempt += 1
        self._stage = _Stage.WAITING
        self._note(Level.WARNING, f"{reason}; next try in {seconds:g} s")
        self._out.append(Wake(seconds, ("retry", self._attempt)))

    def _begin_session(self, begun: PartitionMetadata, found: PartitionMetadata) -> None:
        self._begun = None
        if begun.generation != self._generation:
            self._begin()
            return
        self._stage = _Stage.RUNNING
        self._opened = False
        session = StoreSession(
            self.partition, begun, self._replicas, found.replicas, self._limits, self._queue
        )
        self._session = session
        self._out.append(Wake(_PATIENCE_SECONDS, ("patience", session.session_id)))
        for name, storage in self._storages.items():
            if storage.up and not storage.resting:
                session.storage_up(name)

    def _follow_session(self) -> None:
        """Do what the session's last input asks for, and notice that it opened or ended."""
        session = self._session
        if session is None:
            return
        if not self._opened and session.phase is Phase.OPEN:
            self._session_opened(session)
        if session.out:
            self._collect(session)
        if session.metadata_due is not None and not self._writing:
            self._writing = True
            self._out.append(WriteMetadata(session.metadata_due, self._version))
        for storage in session.fallen:
            self._rest(storage)
        session.fallen.clear()
        if session.phase is Phase.CLOSED:
            self._session_ended(session)

    def _collect(self, session: StoreSession) -> None:
        self._out += session.out
        session.out = []
        if self._opened:
            self._mark = session.high_water_mark

    def _session_opened(self, session: StoreSession) -> None:
        self._opened = True
        self.healthy = True
        self._failures = 0
        mark = session.low_water_mark
        self._resolve_carried(mark)
        self._mark = mark
        self._out.append(Opened(mark))
        active = ", ".join(sorted(session.active()))
        self._note(Level.INFO, f"session {session.session_id} open at {mark} with {active}")
        waiting = [f for f in self._fetches if f.request is None]
        for fetch in waiting:
            self._fetches.remove(fetch)
            self._fetch(fetch)
        session.sending = True
        session.pump()

    def _resolve_carried(self, mark: int) -> None:
        carried, self._carried = self._carried, _Carried()
        same_writer = carried.generation == self._generation
        if not same_writer:
            stale = [a for a in self._queue if a.generation != self._generation]
            if carried.appends:
                self._out.append(Unresolved(carried.appends))
            if stale:
                fresh = [a for a in self._queue if a.generation == self._generation]
                self._queue.clear()
                self._queue.extend(fresh)
                self._out.append(Failed(stale))
            return
        done = max(0, mark + 1 - carried.first_id)
        assert done <= len(carried.appends), "the log grew by what this server never sent"
        if done:
            self._out.append(Committed(carried.first_id, carried.appends[:done]))
        if carried.appends[done:]:
            self._out.append(Failed(carried.appends[done:]))

    def _session_ended(self, session: StoreSession) -> None:
        self._session = None
        self._writing = False
        self._watch()
        if self._opened:
            self._carried = _Carried(
                session.generation, session.high_water_mark + 1, session.uncertain()
            )
            if self._carried.appends:
                number = len(self._carried.appends)
                self._note(Level.INFO, f"{number} appends carried over into the next session")
        else:
            self.healthy = False
        self._note(
            Level.INFO,
            f"session {session.session_id} ended: {session.end_reason}"
            f" ({session.recovery_story() or 'no replica came'})",
        )
        for fetch in self._fetches:
            fetch.request = None
        if self._stage is _Stage.CLOSED:
            return
        if self._opened:
            self._begin()
        else:
            delay = self._retry.delay(self._failures)
            self._failures += 1
            self._wait(delay, "the store session did not open")

    def _rest(self, storage: str) -> None:
        """Keep a storage that failed out of sessions for a while, longer each time."""
        known = self._storages.get(storage)
        if known is None or known.resting:
            return
        known.resting = True
        delay = self._retry.delay(known.strikes)
        known.strikes += 1
        self._out.append(Wake(delay, ("rested", storage)))
        self._out.append(Wake(delay + _FORGIVE_SECONDS, ("forgive", storage, known.strikes)))

    def _offer(self, storage: str) -> None:
        """Let a storage that is up and rested take part, through a new session if need be."""
        known, session = self._storages[storage], self._session
        if session is None or not known.up or known.resting:
            return
        if session.has_left(storage):
            session.drain(f"to take {storage} back in")
        else:
            session.storage_up(storage)
        self._follow_session()

    # ---- reads

    def _fetch(self, fetch: _Fetch) -> None:
        self._fetches.append(fetch)
        session = self._session
        fetch.request = None
        if session is None or not self._opened:
            return
        last_id = min(fetch.first_id + fetch.count - 1, session.high_water_mark)
        storage = session.route(last_id, fetch.tried)
        if storage is None:
            self._fetches.remove(fetch)
            tried = ", ".join(sorted(fetch.tried)) or "no replica"
            self._out.append(
                Fetched(fetch.token, error=f"{tried} could deliver from {fetch.first_id} on")
            )
            return
        kind = st.RecordHeaderListRequest if fetch.headers else st.RecordListRequest
        count = last_id - fetch.first_id + 1
        fetch.request = kind(session.session_id, _NO_SEQ, self.partition, fetch.first_id, count)
        self._out.append(Ask(storage, fetch.request))

    def _fetched(self, fetch: _Fetch, storage: str, response: Any, elapsed_ms: float) -> None:
        self._fetches.remove(fetch)
        match response:
            case st.RecordListResponse(records=records) if records.count:
                self._out.append(Fetched(fetch.token, records=records))
            case st.RecordHeaderListResponse(headers=headers) if headers:
                self._out.append(Fetched(fetch.token, headers=headers))
            case _:
                if isinstance(response, st.FailureResponse):
                    why = response.failure.message
                    self._note(Level.WARNING, f"{storage} cannot read: {why}")
                fetch.tried |= {storage}
                self._fetch(fetch)
                return
        if self._session is not None:
            self._session.read_took(storage, elapsed_ms)

    def _note(self, level: Level, text: str) -> None:
        self._out.append(Note(level, f"partition {self.partition}: {text}"))
