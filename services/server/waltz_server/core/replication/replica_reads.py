"""Read from a partition's replicas: try one replica after another, until one answers. Pure.

A read that is under way when its store session ends is sent again in the next session. Reads never
go beyond the high-water mark, because records above the mark may still be cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from waltz.protocol import storage as st
from waltz_server.core.effects import LogLevel, Ready, SendToStorage, WriteLog
from waltz_server.core.reads.read_purposes import ReadPurpose
from waltz_server.core.replication.session_state import choose_replica
from waltz_server.core.replication.store_session import StoreSession
from waltz_server.core.store_reports import ReadDone, StoreReports

_ReadRequest = st.RecordListRequest | st.BoundedRecordListRequest | st.RecordHeaderListRequest


@dataclass(eq=False, slots=True)
class _ReplicaRead:
    purpose: ReadPurpose
    first_id: int
    count: int
    headers: bool = False
    """Whether to read headers instead of records."""
    max_bytes: int | None = None
    tried: frozenset[str] = frozenset()
    """The storages that could not answer this read."""
    request: st.Request | None = None
    """The request under way; None while no session is open."""


class ReplicaReads:
    """The reads of one partition that are under way, or that wait for the next session."""

    def __init__(self, partition: int, ready: Ready, reports: StoreReports) -> None:
        self._ready = ready
        self._reports = reports
        self._partition = partition
        self._session: StoreSession | None = None
        self._reads: list[_ReplicaRead] = []

    def opened(self, session: StoreSession) -> None:
        """Read from the replicas of ``session`` from now on."""
        self._session = session
        for read in self._reads.copy():
            self._send_read(read)

    def ended(self) -> None:
        """Keep the reads in progress for the next session, because this session has ended."""
        self._session = None
        for read in self._reads:
            read.request = None

    def records(self, first_id: int, count: int, purpose: ReadPurpose) -> None:
        """Read up to ``count`` committed records for ``purpose``; `ReadDone` follows."""
        self._begin(_ReplicaRead(purpose, first_id, count))

    def bounded_records(
        self, first_id: int, count: int, max_bytes: int, purpose: ReadPurpose
    ) -> None:
        """Read up to ``count`` committed records of about ``max_bytes`` together, at least one.

        `ReadDone` follows. Its records may be larger if the storage does not support byte bounds.
        """
        self._begin(_ReplicaRead(purpose, first_id, count, max_bytes=max_bytes))

    def headers(self, first_id: int, count: int, purpose: ReadPurpose) -> None:
        """Read up to ``count`` headers of committed records for ``purpose``; `ReadDone` follows."""
        self._begin(_ReplicaRead(purpose, first_id, count, headers=True))

    def answered(self, storage: str, request: st.Request, response: Any, elapsed_ms: float) -> bool:
        """Handle ``response``, which is None if the connection was lost.

        Return False if ``request`` is not a read that is under way.
        """
        if not isinstance(request, _ReadRequest):
            return False
        read = next((r for r in self._reads if r.request is request), None)
        if read is None:
            return False
        match response:
            case st.RecordListResponse(records=records) if records.count:
                self._end(read, ReadDone(read.purpose, records=records))
            case st.RecordHeaderListResponse(headers=headers) if headers:
                self._end(read, ReadDone(read.purpose, headers=headers))
            case _:
                if isinstance(response, st.FailureResponse):
                    why = response.failure.message
                    text = f"{storage} cannot read its records: {why}; trying another replica"
                    self._ready.add(
                        WriteLog(LogLevel.WARNING, f"partition {self._partition}: {text}")
                    )
                read.tried |= {storage}
                self._send_read(read)
                return True
        if self._session is not None:
            self._session.replica_states[storage].read_took(elapsed_ms)
        return True

    def _begin(self, read: _ReplicaRead) -> None:
        self._reads.append(read)
        self._send_read(read)

    def _send_read(self, read: _ReplicaRead) -> None:
        session = self._session
        if session is None:
            read.request = None
            return
        last_id = min(read.first_id + read.count - 1, session.high_water_mark)
        storage = choose_replica(session.replica_states.values(), last_id, read.tried)
        if storage is None:
            tried = ", ".join(sorted(read.tried)) or "none"
            error = f"no replica could deliver transactions from {read.first_id} on, tried: {tried}"
            self._end(read, ReadDone(read.purpose, error=error))
            return
        read.request = self._request(read, session.session_id, last_id - read.first_id + 1)
        self._ready.add(SendToStorage(storage, read.request))

    def _request(self, read: _ReplicaRead, session_id: int, count: int) -> _ReadRequest:
        what = (session_id, st.NO_SEQ, self._partition, read.first_id, count)
        if read.headers:
            return st.RecordHeaderListRequest(*what)
        if read.max_bytes is not None:
            return st.BoundedRecordListRequest(*what, read.max_bytes)
        return st.RecordListRequest(*what)

    def _end(self, read: _ReplicaRead, done: ReadDone) -> None:
        self._reads.remove(read)
        self._reports.add(done)
