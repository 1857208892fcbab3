"""Replay the events of a real store session as transitions of the model. Pure.

A server reports what it learns (answers of storages, lost connections, written metadata) and what
it does (requests, states to write, marks). The model takes what was learned, and what the server
does must be what the model allows then. A trace may end anywhere: its server has stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from tests.model import rule
from tests.model.values import Do, Entry, Phase, Session, Stage, Step


@dataclass(frozen=True, slots=True)
class Began:
    """The session has written its id; ``states`` are those that it has read.

    Its server knows that everything up to ``committed`` is committed.
    """

    session: int
    states: Mapping[str, Entry]
    assigned: tuple[str, ...]
    committed: int = -1


@dataclass(frozen=True, slots=True)
class Introduced:
    replica: str
    session: int
    mark: int
    local: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The server has sent the request of a step; ``source`` is that of a copy."""

    replica: str
    do: Do
    at: int = -1
    count: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    replica: str
    end: int


@dataclass(frozen=True, slots=True)
class Cut:
    replica: str
    end: int


@dataclass(frozen=True, slots=True)
class Copied:
    replica: str
    end: int


@dataclass(frozen=True, slots=True)
class NotCopied:
    """The source of the replica's copy could not be read."""

    replica: str


@dataclass(frozen=True, slots=True)
class NotRead:
    """The replica could not be read from ``at`` on, for an active replica that lags."""

    replica: str
    at: int


@dataclass(frozen=True, slots=True)
class SourcesRetried:
    """Replicas may copy again from the sources that could not be read."""


@dataclass(frozen=True, slots=True)
class Marked:
    """The replica has set the mark of the session on its disk."""

    replica: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The replica has refused a request."""

    replica: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection to the replica is lost."""

    replica: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The replica has acknowledged the appends of the open session up to ``end``."""

    replica: str
    end: int


@dataclass(frozen=True, slots=True)
class Writing:
    """The server sends these states to ZooKeeper."""

    states: Mapping[str, Entry]


@dataclass(frozen=True, slots=True)
class Written:
    """The server knows that the states are in ZooKeeper."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The vote has given ``mark``."""

    mark: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The session has opened at ``mark``."""

    mark: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The server has acknowledged appends up to ``end`` to clients."""

    end: int


Event = (
    Began
    | Introduced
    | Asked
    | Measured
    | Cut
    | Copied
    | NotCopied
    | NotRead
    | SourcesRetried
    | Marked
    | Refused
    | Lost
    | Acknowledged
    | Writing
    | Written
    | Resolved
    | Opened
    | Committed
)


class Forbidden(Exception):
    """The model does not allow an event at this place of the trace."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The model's session after the events so far."""

    session: Session
    names: tuple[str, ...]

    @classmethod
    def of(cls, began: Began) -> Replay:
        """Begin with the first event of a session."""
        names = tuple(sorted({*began.states, *began.assigned}))
        states = tuple(began.states.get(name) for name in names)
        if any(entry is not None and entry.session >= began.session for entry in states):
            raise Forbidden(f"{began}: a session has this id, or a higher one, already")
        assigned = tuple(name in began.assigned for name in names)
        return cls(rule.begin(began.session, states, assigned, began.committed), names)

    def after(self, event: Event) -> Replay:
        """Return the replay after another event; raises Forbidden."""
        session = self.session
        if session.phase is Phase.CLOSED:
            raise Forbidden(f"{event}: session {session.id} must have ended")
        match event:
            case Began():
                raise Forbidden(f"{event}: session {session.id} has begun already")
            case Asked():
                self._check_asked(event)
                return self
            case Writing(states):
                self._check_states(event, states)
                return self
            case Resolved(mark):
                self._require(session.mark == mark, event, f"the vote gives {session.mark}")
                return self
            case Opened(mark):
                opened = session.phase is Phase.OPEN and session.mark == mark
                self._require(opened, event, f"{session.phase.name} at {session.mark}")
                return self
            case Committed(end):
                has = sorted((view.acknowledged for view in session.views), reverse=True)
                held = has[session.quorum - 1]
                self._require(end <= held, event, f"a quorum has up to {held}")
                return self
            case Written():
                self._require(session.due is not None, event, "no states were to be written")
                return Replay(rule.states_written(session), self.names)
            case SourcesRetried():
                return Replay(rule.sources_retried(session), self.names)
            case _:
                return Replay(self._learned(event), self.names)

    def _learned(
        self,
        event: Introduced
        | Measured
        | Cut
        | Copied
        | NotCopied
        | NotRead
        | Marked
        | Refused
        | Lost
        | Acknowledged,
    ) -> Session:
        session, number = self.session, self._number(event)
        view = session.views[number]
        match event:
            case Introduced(_, disk_session, mark, local):
                self._require(view.stage is Stage.ABSENT, event, "it has joined already")
                return rule.introduced(session, number, (disk_session, mark, local))
            case Measured(_, end):
                self._require_step(event, view.step, Do.MEASURE)
                return rule.measured(session, number, end)
            case Cut(_, end):
                self._require_step(event, view.step, Do.CUT)
                return rule.cut(session, number, end)
            case Copied(_, end):
                self._require_step(event, view.step, Do.COPY)
                assert view.step is not None
                within = view.step.at <= end < view.step.at + view.step.number
                self._require(within, event, f"{view.step} was asked for")
                return rule.copied(session, number, end)
            case NotCopied():
                self._require_step(event, view.step, Do.COPY)
                return rule.not_copied(session, number)
            case NotRead(_, at):
                return rule.not_read(session, number, at)
            case Marked():
                self._require_step(event, view.step, Do.MARK)
                return rule.marked(session, number)
            case Refused():
                return rule.failed(session, number)
            case Lost():
                return rule.lost(session, number)
            case Acknowledged(_, end):
                active = view.stage is Stage.ACTIVE and end > view.acknowledged
                self._require(active, event, f"{view.stage.name}, with {view.acknowledged}")
                return rule.with_view(session, number, view._replace(acknowledged=end))
            case _:
                assert_never(event)

    def _number(self, event: Event) -> int:
        replica = getattr(event, "replica", "")
        self._require(replica in self.names, event, "it is no replica")
        return self.names.index(replica)

    def _check_asked(self, event: Asked) -> None:
        step = self.session.views[self._number(event)].step
        self._require(not self.session.contradicted, event, "a replica contradicts the metadata")
        self._require_step(event, step, event.do)
        assert step is not None
        self._require(event.do is Do.MEASURE or event.at == step.at, event, f"{step} is due")
        if event.do is Do.COPY:
            source = self.names[step.source]
            right = event.source == source and 0 < event.count <= step.number
            self._require(right, event, f"{step} from {source} is due")

    def _check_states(self, event: Writing, states: Mapping[str, Entry]) -> None:
        due = self.session.due
        self._require(due is not None, event, "no states are to be written")
        assert due is not None
        allowed = {n: entry for n, entry in zip(self.names, due, strict=True) if entry is not None}
        self._require(dict(states) == allowed, event, f"{allowed} are due")

    def _require_step(self, event: Event, step: Step | None, do: Do) -> None:
        self._require(step is not None and step.do is do, event, f"its step is {step}")

    def _require(self, holds: bool, event: Event, otherwise: str) -> None:
        if not holds:
            raise Forbidden(f"session {self.session.id}: {event} is forbidden: {otherwise}")
