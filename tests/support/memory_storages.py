"""Storages for tests of a server's core: the real core of a storage on a disk in memory.

A storage answers one request at a time, as it arrives. Only some answers are scripted: see
`MemoryStorage.refusing`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.inline_engine import InlineEngine, arrival
from waltz.protocol import STORAGE, Record, RecordBatch, ReqId, checksum
from waltz.protocol import storage as st
from waltz.protocol.failures import RpcFailure
from waltz.protocol.stored import StoredBatch
from waltz.testing.disk import MemoryDisk
from waltz_server.core.replication.storage_versions import RequestConverter
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_format import HEADER_BYTES, RECORD_OVERHEAD_BYTES
from waltz_storage.core.partitions.partition import StoragePartition
from waltz_storage.core.partitions.storage_directory import StorageDirectory

PARTITION = 0
_KEY = uuid.UUID(int=1)
_OPTIONS = LogOptions(now_ms=lambda: 1, allocate_bytes=1 << 10)
_NO_CLIENT = ReqId(0, 0, PARTITION, 0)
_FOREIGN = "foreign"
_VERSION = max(STORAGE.versions)


def record(transaction_id: int, text: str | None = None, req_id: ReqId = _NO_CLIENT) -> Record:
    """Return a record whose data is ``text``, by default its own id."""
    data = (text if text is not None else str(transaction_id)).encode()
    return Record(transaction_id, req_id, 0, data, checksum(data))


class MemoryStorage:
    """A storage with one replica of `PARTITION`.

    Former sessions have left a log up to ``last`` in it, and the session and marks that are given.
    Records after ``foreign`` differ from those of other storages.
    """

    def __init__(
        self,
        name: str,
        last: int = -1,
        session: int = -1,
        low: int = -1,
        local: int | None = None,
        foreign: int | None = None,
    ) -> None:
        self.name = name
        self.refusing: dict[type, str] = {}
        """Request types that are refused, and why: a storage refuses a request for faults of its
        disk and by its switches, which tests of a server need not cause one by one."""
        self.read_limit: int | None = None
        """Most records in one answer."""
        self.ignores_bytes = False
        """Whether this is a storage of version 0, whose answers have no bound in bytes."""
        self.version = _VERSION
        """The protocol version, to which a server's requests are converted."""
        self.scripted: dict[type, StoredBatch] = {}
        """Request types that are answered with these records."""
        self._disk = MemoryDisk()
        self._create_replica()
        local = min(low, last) if local is None else local
        records = [
            record(i, _FOREIGN if foreign is not None and i > foreign else None)
            for i in range(last + 1)
        ]
        self._append(max(session, 0), records[: local + 1])
        if session >= 0:
            self._begin_session(session, low)
        self._append(max(session, 0), records[local + 1 :])
        self.restart()

    @property
    def last(self) -> int:
        """The last id here, committed or not."""
        return self._replica.log.max_id

    @property
    def records(self) -> list[Record]:
        """All records, committed or not."""
        return list(self._replica.records(0, self.last + 1))

    @property
    def texts(self) -> list[str]:
        """The data of all records."""
        return [each.data.decode() for each in self.records]

    @property
    def marks(self) -> tuple[int, int, int]:
        """The last session that has begun here, its low-water mark and its local mark."""
        info = self._replica.info
        return info.session_id, info.low_water_mark, info.local_low_water_mark

    @property
    def foreign(self) -> list[int]:
        """The ids of the records that differ from those of other storages."""
        return [i for i, text in enumerate(self.texts) if text == _FOREIGN]

    def restart(self) -> None:
        """Forget what is not on disk, such as the fence."""
        self._disk = self._disk.restarted()
        self._engine = _engine_on(self._disk)

    def repair(self, transaction_id: int, peer: MemoryStorage) -> None:
        """Replace a damaged record by that of ``peer``, as the storage does by itself."""
        scanned = peer._replica.scan(transaction_id, 1, 0, 0)
        self._replica.repair(peer._replica.records(transaction_id, 1), scanned.checksum)

    def copy_disk(self) -> None:
        """Make a copy of the disk for `restore`."""
        self._copy = self._disk.restarted()

    def restore(self) -> None:
        """Restart on the copy of the disk."""
        assert self._copy is not None, "the disk was not copied"
        self._disk = self._copy.restarted()
        self._engine = _engine_on(self._disk)

    def damage(self, *transaction_ids: int, byte: int = 0) -> None:
        """Flip a bit of each of these records on the disk; all are in the first segment.

        ``byte`` counts the bytes of a record; the first ones are its id.
        """
        file = f"{PARTITION}/{0:019d}.seg"
        position = HEADER_BYTES
        for each in self.records:
            if each.transaction_id in transaction_ids:
                at = position + byte
                self._disk.damage(file, at, bytes([self._disk.content(file)[at] ^ 1]))
            position += RECORD_OVERHEAD_BYTES + len(each.data)

    def empty(self) -> None:
        """Lose the disk; the partition is assigned again."""
        self._disk = MemoryDisk()
        self._create_replica()

    def serve_former_server(self, session: int, *texts: str) -> None:
        """Let another server open ``session`` and append."""
        self._begin_session(session, self.last)
        self._append(session, [record(self.last + 1 + i, text) for i, text in enumerate(texts)])

    def handle(self, request: Any) -> Any:
        """Do a request and return its answer."""
        if type(request) in self.refusing:
            self._replica.raise_fence(request)
            failure = RpcFailure(self.refusing[type(request)])
            context = (request.session_id, request.seq_num, request.partition)
            return st.FailureResponse(*context, failure)
        if type(request) in self.scripted:
            context = (request.session_id, request.seq_num, request.partition)
            return st.StoredRecordListResponse(*context, self.scripted[type(request)])
        return self._ask(self._limited(RequestConverter().convert(request, self.version)))

    @property
    def _replica(self) -> StoragePartition:
        return self._engine.directory.partition(PARTITION)

    def _create_replica(self) -> None:
        self._engine = _engine_on(self._disk)
        self._engine.directory.assign(PARTITION)
        self._engine.directory.set_available(PARTITION, True)

    def _limited(self, request: Any) -> Any:
        if self.ignores_bytes and isinstance(request, st.BoundedRecordListRequest):
            where = (request.session_id, request.seq_num, request.partition)
            request = st.RecordListRequest(*where, request.first_id, request.max_records)
        if self.read_limit is not None and hasattr(request, "max_records"):
            request = replace(request, max_records=min(request.max_records, self.read_limit))
        return request

    def _ask(self, request: Any) -> Any:
        answers: list[Any] = []
        self._engine.submit([arrival(request, answers.append, _VERSION)])
        assert not self._engine.failures, "the storage would end"
        (answer,) = answers
        return answer

    def _begin_session(self, session: int, low: int) -> None:
        self._succeed(st.SetLowWaterMarkRequest(session, 0, PARTITION, low))

    def _append(self, session: int, records: Sequence[Record]) -> None:
        if records:
            batch = RecordBatch.of(records)
            self._succeed(st.AppendRequest(session, 0, PARTITION, batch))

    def _succeed(self, request: Any) -> None:
        answer = self._ask(request)
        assert isinstance(answer, st.SuccessResponse), answer


def _engine_on(disk: MemoryDisk) -> InlineEngine:
    return InlineEngine(StorageDirectory(disk, _KEY, PARTITION + 1, _OPTIONS))
