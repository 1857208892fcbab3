"""Read from a partition's replicas: try one replica after another, until one answers. Pure.

At most `READS_PER_STORAGE` reads are under way at each storage. So an append never waits behind
many reads, on the connection to a storage or in the storage. The other reads wait in their order. A
read that is under way when its store session ends is sent again in the next session, which may use
every replica again. Reads never go beyond the high-water mark, because records above the mark may
still be cut off.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from waltz.protocol import storage as st
from waltz.protocol.stored import StoredBatch
from waltz_server.core.effects import LogLevel, Ready, SendToStorage, WriteLog
from waltz_server.core.reads.read_purposes import ReadPurpose
from waltz_server.core.replication.session_state import choose_replica, readable_replicas
from waltz_server.core.replication.store_session import StoreSession
from waltz_server.core.store_reports import ReadDone, StoreReports

READS_PER_STORAGE = 2
"""Maximum number of reads of one partition that are under way at one storage: while one read is on
the network, the storage does the other one."""

_MAX_PASSED_OVER = 32
"""How many waiting reads are passed over to find one whose replicas are not busy. Each answer is
followed by such a search, so it must be short."""

_ReadRequest = st.BoundedRecordListRequest | st.StoredRecordListRequest | st.RecordHeaderListRequest


@dataclass(eq=False, slots=True)
class _ReplicaRead:
    """One read: up to ``count`` records or headers from ``first_id`` on."""

    purpose: ReadPurpose
    first_id: int
    count: int
    max_bytes: int | None
    """The most bytes of records to read; None to read headers instead of records."""
    stored: bool = False
    """Whether the records may be in disk form: as they lie on the disk of the storage."""
    tried: frozenset[str] = frozenset()
    """The storages that could not answer this read in the present store session."""
    storage: str = ""
    """The storage to which ``request`` was sent."""
    request: st.Request | None = None
    """The request under way; None while the read waits."""


class ReplicaReads:
    """The reads of one partition that are under way, and those that wait."""

    def __init__(self, partition: int, ready: Ready, reports: StoreReports) -> None:
        self._ready = ready
        self._reports = reports
        self._partition = partition
        self._session: StoreSession | None = None
        """The open store session, None between two of them."""
        self._sent: list[_ReplicaRead] = []
        """The reads under way: at most `READS_PER_STORAGE` for each storage."""
        self._waiting: deque[_ReplicaRead] = deque()
        """The reads that wait for a storage, or for the next session."""

    @property
    def is_open(self) -> bool:
        """Whether a store session is open, so that reads are sent to replicas."""
        return self._session is not None

    def opened(self, session: StoreSession) -> None:
        """Read from the replicas of ``session`` from now on."""
        self._session = session
        self._send_waiting()

    def ended(self) -> None:
        """Keep the reads for the next session, because the store session has ended."""
        self._session = None
        self._waiting.extendleft(reversed(self._sent))
        self._sent = []
        for read in self._waiting:
            read.request = None
            # A storage whose connection was lost may be back, and a damaged one may be repaired.
            read.tried = frozenset()

    def read_records(
        self,
        first_id: int,
        count: int,
        max_bytes: int,
        purpose: ReadPurpose,
        *,
        stored: bool = False,
    ) -> None:
        """Read up to ``count`` committed records of at most ``max_bytes`` together, or one record.

        `ReadDone` reports the result. A storage that does not support bounds in bytes may return
        more bytes. With ``stored``, the records are in disk form if the storage supports it: within
        the bounds, and not verified by the storage.
        """
        self._begin(_ReplicaRead(purpose, first_id, count, max_bytes, stored))

    def read_headers(self, first_id: int, count: int, purpose: ReadPurpose) -> None:
        """Read up to ``count`` headers of committed records; `ReadDone` reports the result."""
        self._begin(_ReplicaRead(purpose, first_id, count, None))

    def answered(self, storage: str, request: st.Request, response: Any, elapsed_ms: float) -> bool:
        """Report ``response`` to a read, or try another replica if it does not answer the read.

        ``response`` is None if the connection was lost. Return False, and do nothing, if
        ``request`` is not of a read that is under way.
        """
        if not isinstance(request, _ReadRequest):
            return False
        read = next((sent for sent in self._sent if sent.request is request), None)
        if read is None:
            return False
        self._sent.remove(read)
        match response:
            case st.RecordListResponse(records=records) if records.count:
                self._reports.add(ReadDone(read.purpose, records=records))
                self._learn_duration(storage, elapsed_ms)
            case st.StoredRecordListResponse(records=stored) if _is_within(request, stored):
                self._reports.add(ReadDone(read.purpose, stored=stored))
                self._learn_duration(storage, elapsed_ms)
            case st.RecordHeaderListResponse(headers=headers) if headers:
                self._reports.add(ReadDone(read.purpose, headers=headers))
                self._learn_duration(storage, elapsed_ms)
            case _:  # A refusal, a lost connection, or an answer that is empty or too large.
                if isinstance(response, st.FailureResponse):
                    why = response.failure.message
                    text = f"{storage} cannot read its records: {why}; trying another replica"
                    self._ready.add(
                        WriteLog(LogLevel.WARNING, f"partition {self._partition}: {text}")
                    )
                read.tried |= {storage}
                read.request = None
                self._waiting.appendleft(read)
        self._send_waiting()
        return True

    def _begin(self, read: _ReplicaRead) -> None:
        """Send ``read`` now, or as soon as a storage is available."""
        self._waiting.append(read)
        self._send_waiting()

    def _learn_duration(self, storage: str, elapsed_ms: float) -> None:
        if self._session is not None:
            self._session.replica_states[storage].learn_read_time(elapsed_ms)

    def _send_waiting(self) -> None:
        """Send the reads that wait, as far as `READS_PER_STORAGE` allows.

        A read whose replicas are all busy stays where it is, and does not stop the reads behind it.
        Otherwise a storage that hangs would stop all reads that the other storages can answer.
        """
        session = self._session
        if session is None:
            return
        passed: list[_ReplicaRead] = []
        while (
            self._waiting
            and len(passed) < _MAX_PASSED_OVER
            and self._has_available_replica(session)
        ):
            read = self._waiting.popleft()
            if not self._send(read, session):
                passed.append(read)
        self._waiting.extendleft(reversed(passed))

    def _has_available_replica(self, session: StoreSession) -> bool:
        """Whether any replica may be sent another read."""
        busy = self._busy_storages()
        return any(name not in busy for name in session.active())

    def _busy_storages(self) -> frozenset[str]:
        """Return the storages that have `READS_PER_STORAGE` reads under way."""
        under_way = Counter(read.storage for read in self._sent)
        return frozenset(name for name, n in under_way.items() if n >= READS_PER_STORAGE)

    def _send(self, read: _ReplicaRead, session: StoreSession) -> bool:
        """Send ``read`` or report that it failed; return False if it must wait."""
        last_id = min(read.first_id + read.count - 1, session.high_water_mark)
        replicas = session.replica_states.values()
        holders = readable_replicas(replicas, last_id, read.tried)
        if not holders:
            tried = ", ".join(sorted(read.tried)) or "none"
            error = f"no replica could deliver transactions from {read.first_id} on, tried: {tried}"
            self._reports.add(ReadDone(read.purpose, error=error))
            return True
        busy = self._busy_storages()
        storage = choose_replica(replicas, [each for each in holders if each.storage not in busy])
        if storage is None:
            return False
        read.storage = storage
        read.request = self._request_for(read, session.session_id, last_id)
        self._sent.append(read)
        self._ready.add(SendToStorage(storage, read.request))
        return True

    def _request_for(self, read: _ReplicaRead, session_id: int, last_id: int) -> _ReadRequest:
        """Return the request for the records or headers of ``read`` up to ``last_id``."""
        count = last_id - read.first_id + 1
        common = (session_id, st.NO_SEQ, self._partition, read.first_id, count)
        if read.max_bytes is None:
            return st.RecordHeaderListRequest(*common)
        if read.stored:
            return st.StoredRecordListRequest(
                session_id,
                st.NO_SEQ,
                self._partition,
                read.first_id,
                last_id,
                count,
                read.max_bytes,
            )
        return st.BoundedRecordListRequest(*common, read.max_bytes)


def _is_within(request: _ReadRequest, stored: StoredBatch) -> bool:
    """Return whether an answer in disk form has records, and keeps the bounds of its request.

    A single record may be larger than the bound in bytes. The server passes the records on without
    looking into them, so this is the only check of the bounds.
    """
    return isinstance(request, st.StoredRecordListRequest) and (
        stored.count == 1
        or (1 < stored.count <= request.max_records and len(stored.raw) <= request.max_bytes)
    )
