"""Report the store sessions of a server to the model of the recovery rule (`tests.model.trace`)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.model import trace
from tests.model.values import Do, Entry, Phase
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.protocol import storage as st
from waltz_server.core.effects import Effect, SendToStorage, WriteMetadata
from waltz_server.core.replication.session_state import ReplicaStage, SessionPhase
from waltz_server.core.replication.store_partition import StorePartition
from waltz_server.core.replication.store_session import StoreSession

_OF_SESSIONS = (
    st.LastSessionInfoRequest,
    st.MaxTransactionIdRequest,
    st.TruncateRequest,
    st.TruncateBelowMarkRequest,
    st.SetLowWaterMarkRequest,
    st.AppendRequest,
)
"""The requests of a session to the replica that they are about."""


class RecordedSessions:
    """The sessions of one server for one partition, each of which the model must allow."""

    def __init__(self, store: StorePartition, counters: Counter[str]) -> None:
        self._counters = counters
        self._store = store
        self._session: StoreSession | None = None
        self._replay: trace.Replay | None = None
        self._due: PartitionMetadata | None = None
        self._mark = -1
        self._retries = 0
        """How often the session's unreadable sources were tried again."""

    def observe(self) -> None:
        """Compare the session with the model; call this after each input, before its effects."""
        session = self._store.session
        if session is not self._session:
            self._session = session
            self._replay, self._due, self._mark, self._retries = None, None, -1, 0
            if session is not None:
                mark = self._store.high_water_mark
                began = trace.Began(
                    session.session_id,
                    _entries(session._written),
                    session.replicas,
                    -1 if mark is None else mark,
                )
                self._replay = trace.Replay.of(began)
        if session is None or session.phase is SessionPhase.CLOSED:
            self._replay = None
            return
        if session.recovery.unreadable.retries > self._retries:
            self._retries = session.recovery.unreadable.retries
            self._add(trace.SourcesRetried())
        if self._due is not None and session.metadata_due is not self._due:
            self._add(trace.Written())
        self._due = session.metadata_due
        if session.recovery.mark is not None and not session.recovery.contradiction:
            self._add(trace.Resolved(session.recovery.mark))
        if session.phase is not SessionPhase.RECOVERING:
            if self._replay is not None and self._replay.session.phase is Phase.OPEN:
                self._add(trace.Opened(session.low_water_mark))
            if session.high_water_mark > max(self._mark, session.low_water_mark):
                self._add(trace.Committed(session.high_water_mark))
                self._mark = session.high_water_mark

    def performs(self, effect: Effect) -> None:
        """Check what the server is about to do."""
        match effect:
            case SendToStorage(storage, request) if self._is_current(request):
                asked = self._asked(storage, request)
                if asked is not None:
                    self._add(asked)
            case WriteMetadata(value) if value is self._due:
                self._add(trace.Writing(_entries(value)))

    def answered(self, storage: str, request: st.Request, response: Any) -> None:
        """Note what the server learns from an answer, before the server does."""
        session = self._session
        if session is None or not self._is_current(request) or storage not in session.replicas:
            return
        if isinstance(request, st.BoundedRecordListRequest):
            self._copy_read(session, storage, request, response)
        elif isinstance(request, _OF_SESSIONS):
            self._replied(storage, session.replica_states[storage].stage, request, response)

    def _replied(
        self, storage: str, stage: ReplicaStage, request: st.Request, response: Any
    ) -> None:
        match request, response:
            case st.LastSessionInfoRequest(), st.LastSessionInfoResponse(_, _, _, last, low, local):
                if stage is ReplicaStage.CONNECTING:
                    self._add(trace.Introduced(storage, last, low, local))
            case (_, None) | (st.LastSessionInfoRequest(), _):
                return
            case _ if stage in (ReplicaStage.CONNECTING, ReplicaStage.FAILED):
                return
            case _, st.FailureResponse():
                self._add(trace.Refused(storage))
            case st.AppendRequest(records=records), _:
                end = records.first_id() + records.count - 1
                active = stage is ReplicaStage.ACTIVE
                self._add((trace.Acknowledged if active else trace.Copied)(storage, end))
            case st.MaxTransactionIdRequest(), st.MaxTransactionIdResponse(transaction_id=end):
                self._add(trace.Measured(storage, end))
            case st.SetLowWaterMarkRequest(), _:
                self._add(trace.Marked(storage))
            case _, st.MaxTransactionIdResponse(transaction_id=end):
                self._add(trace.Cut(storage, end))

    def lost(self, storage: str) -> None:
        """Note that the connection to ``storage`` is lost, before the server does."""
        session = self._session
        if session is None or storage not in session.replicas:
            return
        if session.replica_states[storage].stage is not ReplicaStage.CONNECTING:
            self._add(trace.Lost(storage))

    def _copy_read(
        self,
        session: StoreSession,
        source: str,
        request: st.BoundedRecordListRequest,
        response: Any,
    ) -> None:
        records = getattr(response, "records", None)
        if records and records.first_id() == request.first_id:
            return
        for name, state in session.replica_states.items():
            if state.copying is request and state.stage is ReplicaStage.RECOVERING:
                self._add(trace.NotCopied(name))
            elif state.copying is request and response is not None:
                self._add(trace.NotRead(source, request.first_id))

    def _asked(self, storage: str, request: st.Request) -> trace.Asked | None:
        session = self._session
        assert session is not None
        match request:
            case st.MaxTransactionIdRequest():
                return trace.Asked(storage, Do.MEASURE)
            case st.TruncateRequest(transaction_id=at):
                return trace.Asked(storage, Do.CUT, at)
            case st.TruncateBelowMarkRequest(transaction_id=at):
                return trace.Asked(storage, Do.CUT, at)
            case st.SetLowWaterMarkRequest(low_water_mark=at):
                return trace.Asked(storage, Do.MARK, at)
            case st.BoundedRecordListRequest(first_id=at, max_records=count):
                for name, state in session.replica_states.items():
                    if state.copying is request and state.stage is ReplicaStage.RECOVERING:
                        return trace.Asked(name, Do.COPY, at, count, storage)
        return None

    def _is_current(self, request: st.Request) -> bool:
        session = self._session
        return session is not None and request.session_id == session.session_id

    def _add(self, event: trace.Event) -> None:
        if self._replay is not None:
            self._replay = self._replay.after(event)
            self._counters["model: an event of a store session is allowed"] += 1


def _entries(metadata: PartitionMetadata) -> dict[str, Entry]:
    return {name: _entry(state) for name, state in metadata.replicas.items()}


def _entry(state: ReplicaState) -> Entry:
    mark = state.closing_mark
    return Entry(state.session_id, None if mark == UNRESOLVED else mark)
