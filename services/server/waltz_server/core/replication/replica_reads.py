"""Reads from a partition's replicas on behalf of its server: each tried until one delivers. Pure.

A read that is under way when its store session ends is asked again in the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from waltz.protocol import storage as st
from waltz_server.core.effects import LogLevel, Ready, SendToStorage, WriteLog
from waltz_server.core.reads.read_purposes import ReadPurpose
from waltz_server.core.replication.store_session import StoreSession
from waltz_server.core.store_reports import ReadDone, StoreReports

_ReadRequest = st.RecordListRequest | st.BoundedRecordListRequest | st.RecordHeaderListRequest


@dataclass(eq=False, slots=True)
class _Fetch:
    purpose: ReadPurpose
    first_id: int
    count: int
    headers: bool = False
    max_bytes: int | None = None
    tried: frozenset[str] = frozenset()
    request: st.Request | None = None
    """What was asked; None while no session is open."""


class ReplicaReads:
    """The reads under way, each with the replica that it was sent to."""

    def __init__(self, partition: int, ready: Ready, reports: StoreReports) -> None:
        self._ready = ready
        self._reports = reports
        self._partition = partition
        self._session: StoreSession | None = None
        self._fetches: list[_Fetch] = []

    def opened(self, session: StoreSession) -> None:
        """Read from the replicas of ``session`` from now on."""
        self._session = session
        for fetch in self._fetches.copy():
            self._ask(fetch)

    def ended(self) -> None:
        """The session is over: what was asked in it is asked again in the next one."""
        self._session = None
        for fetch in self._fetches:
            fetch.request = None

    def records(self, first_id: int, count: int, purpose: ReadPurpose) -> None:
        """Read up to ``count`` committed records for ``purpose``; `ReadDone` follows."""
        self._begin(_Fetch(purpose, first_id, count))

    def bounded_records(
        self, first_id: int, count: int, max_bytes: int, purpose: ReadPurpose
    ) -> None:
        """Read up to ``count`` committed records of about ``max_bytes``, but at least one.

        `ReadDone` follows with ``purpose``; it may hold more, if the storage cannot be told.
        """
        self._begin(_Fetch(purpose, first_id, count, max_bytes=max_bytes))

    def headers(self, first_id: int, count: int, purpose: ReadPurpose) -> None:
        """Read up to ``count`` headers of committed records for ``purpose``."""
        self._begin(_Fetch(purpose, first_id, count, headers=True))

    def answered(self, storage: str, request: st.Request, response: Any, elapsed_ms: float) -> bool:
        """A storage answered, or its connection was lost (None); returns False if not to a read."""
        if not isinstance(request, _ReadRequest):
            return False
        fetch = next((f for f in self._fetches if f.request is request), None)
        if fetch is None:
            return False
        match response:
            case st.RecordListResponse(records=records) if records.count:
                self._end(fetch, ReadDone(fetch.purpose, records=records))
            case st.RecordHeaderListResponse(headers=headers) if headers:
                self._end(fetch, ReadDone(fetch.purpose, headers=headers))
            case _:
                if isinstance(response, st.FailureResponse):
                    text = f"{storage} cannot read: {response.failure.message}"
                    self._ready.add(
                        WriteLog(LogLevel.WARNING, f"partition {self._partition}: {text}")
                    )
                fetch.tried |= {storage}
                self._ask(fetch)
                return True
        if self._session is not None:
            self._session.read_took(storage, elapsed_ms)
        return True

    def _begin(self, fetch: _Fetch) -> None:
        self._fetches.append(fetch)
        self._ask(fetch)

    def _ask(self, fetch: _Fetch) -> None:
        session = self._session
        if session is None:
            fetch.request = None
            return
        last_id = min(fetch.first_id + fetch.count - 1, session.high_water_mark)
        storage = session.route(last_id, fetch.tried)
        if storage is None:
            tried = ", ".join(sorted(fetch.tried)) or "no replica"
            error = f"{tried} could deliver from {fetch.first_id} on"
            self._end(fetch, ReadDone(fetch.purpose, error=error))
            return
        fetch.request = self._request(fetch, session.session_id, last_id - fetch.first_id + 1)
        self._ready.add(SendToStorage(storage, fetch.request))

    def _request(self, fetch: _Fetch, session_id: int, count: int) -> _ReadRequest:
        what = (session_id, st.NO_SEQ, self._partition, fetch.first_id, count)
        if fetch.headers:
            return st.RecordHeaderListRequest(*what)
        if fetch.max_bytes is not None:
            return st.BoundedRecordListRequest(*what, fetch.max_bytes)
        return st.RecordListRequest(*what)

    def _end(self, fetch: _Fetch, done: ReadDone) -> None:
        self._fetches.remove(fetch)
        self._reports.add(done)
