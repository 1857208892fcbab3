"""Generate transcripts.json: dialogues of a peer with a server, a storage and an admin port.

``to-reference`` is what the peer sends, ``from-reference`` what it must receive.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self
from uuid import UUID

from tests.vectors.generate.wire_examples import KEY
from tests.vectors.messages import PROTOCOLS
from waltz.protocol import Record, RecordBatch, RecordHeader, ReqId, admin, checksum, storage
from waltz.protocol import client_server as client
from waltz.protocol.batches import (
    LOG_MARK,
    AppendAnswer,
    BatchedAppend,
    BatchedOutcome,
    OutcomeKind,
)
from waltz.protocol.client_server import MountState
from waltz.protocol.failures import RpcFailure
from waltz.protocol.frames import encode_frame, encode_hello

_PARTITIONS = 3
_NOT_HERE = 99
_LOCK = 4711
_SILENCE_MS = 1500
_NOT_OPEN = -(2**63)
_KEY = UUID(KEY)
_TOOL = ReqId(-1, 0, 0, 0)
_STORAGE_ERROR = "com.wepay.waltz.storage.exception.StorageException"
_FENCED = "com.wepay.waltz.storage.exception.ConcurrentUpdateException"
_NOT_FOUND = "com.wepay.waltz.store.exception.TransactionNotFoundException"

_FIRST, _SECOND, _THIRD = b"first", b"second", b"third"


class Dialogue:
    """Collects the steps of one connection; messages are encoded in its version."""

    def __init__(self, name: str, protocol: str, version: int, **more: Any) -> None:
        self._fields: dict[str, Any] = {"name": name, **more}
        self._steps: list[dict[str, Any]] = []
        self._spec, self._messages = PROTOCOLS[protocol]
        self._version = version
        self._from("Hello of the listener", self._spec.hello(dialer=False))

    def hello(self, *versions: int) -> Self:
        """Send a Hello that offers these versions."""
        return self._to("Hello", encode_hello(versions or (self._version,), "peer"))

    def send(self, note: str, message: Any) -> Self:
        """Send a message."""
        return self._to(note, self._messages.encode(message, self._version))

    def expect(self, note: str, message: Any) -> Self:
        """Receive a message."""
        return self._from(note, self._messages.encode(message, self._version))

    def keep_alive(self) -> Self:
        """Send a keep-alive."""
        return self._to("keep-alive", encode_frame(self._spec.magic, self._version, b""))

    def silence(self, note: str) -> Self:
        """Receive nothing for a while."""
        step = {"dir": "from-reference", "note": note, "silence_ms": _SILENCE_MS}
        self._steps.append(step)
        return self

    def closed(self, note: str) -> dict[str, Any]:
        """Find the connection closed; return the dialogue."""
        self._steps.append({"dir": "from-reference", "note": note, "closed": True})
        return self.end()

    def end(self) -> dict[str, Any]:
        """Return the dialogue."""
        return {**self._fields, "steps": self._steps}

    def _to(self, note: str, frame: bytes) -> Self:
        self._steps.append({"dir": "to-reference", "note": note, "hex": frame.hex()})
        return self

    def _from(self, note: str, frame: bytes) -> Self:
        self._steps.append({"dir": "from-reference", "note": note, "hex": frame.hex()})
        return self


def transcripts() -> list[dict[str, Any]]:
    """Return transcripts.json; each dialogue finds the log that those before it have left."""
    return [
        _client_4(),
        _client_4_feed(),
        _client_2(),
        _no_common_version(),
        _unknown_versions(),
        _client_5(),
        _client_6(),
        _storage_0(),
        _storage_2(),
        _admin_0(),
        _admin_1(),
        _data_before_it_exists(),
        _unassign_never_assigned(),
    ]


def _req(seq: int, *, client_id: int = 11, generation: int = 1, partition: int = 0) -> ReqId:
    return ReqId(client_id, generation, partition, seq)


def _append(req_id: ReqId, mark: int, data: bytes, **locks: tuple[int, ...]) -> Any:
    write, read, append = (locks.get(kind, ()) for kind in ("write", "read", "append"))
    return client.AppendRequest(req_id, mark, write, read, append, 5, data, checksum(data))


def _records() -> RecordBatch:
    """Return the log that the first two dialogues write to partition 0."""
    appended = ((0, 11, 2, _FIRST), (1, 11, 5, _SECOND), (2, 12, 2, _THIRD))
    return RecordBatch.of(
        Record(number, _req(seq, client_id=client_id), 5, data, checksum(data))
        for number, client_id, seq, data in appended
    )


def _client_4() -> dict[str, Any]:
    elsewhere = ReqId(11, 0, _NOT_HERE, 9)
    not_found = f"{_NOT_FOUND}: partitionId=0, transactionId=99"
    connected = dict.fromkeys(("a.example:1", "b.example:1", "c.example:1"), True)
    here = tuple(range(_PARTITIONS))
    return (
        Dialogue("client-server V4", "client-server", 4)
        .hello()
        .send("append before a mount", _append(_req(1), -1, _FIRST))
        .silence("dropped")
        .send("mount", client.MountRequest(_req(1), -1, 0))
        .expect("ready: the log is empty", client.MountResponse(_req(1), MountState.READY))
        .send("feed request", client.FeedRequest(_req(1), -1))
        .send("append with a write lock", _append(_req(2), -1, _FIRST, write=(_LOCK,)))
        .expect("it comes back in the feed", client.FeedData(_req(2), 0, 5))
        .send("write lock, old client mark", _append(_req(3), -1, _SECOND, write=(_LOCK,)))
        .expect("lock failure", client.LockFailure(_req(3), 0))
        .send("read lock, old client mark", _append(_req(4), -1, _SECOND, read=(_LOCK,)))
        .expect("lock failure", client.LockFailure(_req(4), 0))
        .send("append lock, old client mark", _append(_req(5), -1, _SECOND, append=(_LOCK,)))
        .expect("accepted: append locks are not checked", client.FeedData(_req(5), 1, 5))
        .send("append of another generation", _append(_req(6, generation=6), 1, _THIRD))
        .silence("dropped")
        .send("flush", client.FlushRequest(_req(6)))
        .expect("the high-water mark", client.FlushResponse(_req(6), 1))
        .send("data of 0", client.TransactionDataRequest(_req(7), 0))
        .expect("data", _data(_req(7), 0, _FIRST))
        .send("data of 99", client.TransactionDataRequest(_req(8), 99))
        .expect("error", client.TransactionDataResponse(_req(8), 99, None, 0, not_found))
        .send("data, partition of no server", client.TransactionDataRequest(elsewhere, 0))
        .expect("error", _no_data(elsewhere, 0, "partition not ready"))
        .send("high-water mark", client.HighWaterMarkRequest(_req(10)))
        .expect("value", client.HighWaterMarkResponse(_req(10), 1))
        .send("high-water mark, partition of no server", client.HighWaterMarkRequest(elsewhere))
        .silence("no answer on version 4")
        .send("mount, partition of no server", client.MountRequest(elsewhere, -1, 0))
        .expect("not ready", client.MountResponse(elsewhere, MountState.NOT_READY))
        .send(
            "mount of a client that is ahead", client.MountRequest(_req(12, partition=1), 1000, 0)
        )
        .expect("ahead", client.MountResponse(_req(12, partition=1), MountState.CLIENT_AHEAD))
        .send("storage connectivity", client.CheckStorageConnectivityRequest(_TOOL))
        .expect("all three", client.CheckStorageConnectivityResponse(_TOOL, connected))
        .send("partitions", client.ServerPartitionsAssignmentRequest(_TOOL))
        .expect("all three", client.ServerPartitionsAssignmentResponse(_TOOL, here))
        .send("health", client.ServerPartitionsHealthStatRequest(_TOOL))
        .expect(
            "healthy", client.ServerPartitionsHealthStatResponse(_TOOL, dict.fromkeys(here, True))
        )
        .send(
            "preferred partition out of range", client.AddPreferredPartitionRequest(_TOOL, (999,))
        )
        .expect("false", client.AddPreferredPartitionResponse(_TOOL, False))
        .keep_alive()
        .silence("no answer; the connection stays")
        .send("high-water mark", client.HighWaterMarkRequest(_req(13)))
        .expect("value", client.HighWaterMarkResponse(_req(13), 1))
        .send("feed request of a client that is ahead", client.FeedRequest(_req(1), 500))
        .closed("connection closed")
    )


def _data(req_id: ReqId, number: int, data: bytes) -> Any:
    return client.TransactionDataResponse(req_id, number, data, checksum(data))


def _no_data(req_id: ReqId, number: int, error: str) -> Any:
    return client.TransactionDataResponse(req_id, number, None, 0, error)


def _client_4_feed() -> dict[str, Any]:
    mount = _req(1, client_id=12)
    return (
        Dialogue("client-server V4: mount of a log with transactions", "client-server", 4)
        .hello()
        .send("mount at -1", client.MountRequest(mount, -1, 0))
        .expect("feed", client.FeedData(_req(2), 0, 5))
        .expect("feed", client.FeedData(_req(5), 1, 5))
        .expect("ready after the last transaction", client.MountResponse(mount, MountState.READY))
        .send("append", _append(_req(2, client_id=12), 1, _THIRD))
        .silence("no feed without a feed request")
        .send("feed request", client.FeedRequest(mount, 1))
        .expect("feed", client.FeedData(_req(2, client_id=12), 2, 5))
        .send("no preferred partitions", client.AddPreferredPartitionRequest(_TOOL, ()))
        .closed("connection closed")
    )


def _client_2() -> dict[str, Any]:
    mount, mark = _req(1, client_id=13), _req(2, client_id=13)
    return (
        Dialogue("client-server V2", "client-server", 2)
        .hello(0, 1, 2)
        .send("mount of a client that is ahead", client.MountRequest(mount, 1000, 0))
        .expect("false", client.MountResponse(mount, MountState.NOT_READY))
        .send("high-water mark", client.HighWaterMarkRequest(mark))
        .expect("value", client.HighWaterMarkResponse(mark, 2))
        .end()
    )


def _no_common_version() -> dict[str, Any]:
    dialogue = Dialogue("client-server: no common version", "client-server", 9)
    return dialogue.hello(9, 10).closed("connection closed")


def _unknown_versions() -> dict[str, Any]:
    mark = _req(1, client_id=14)
    return (
        Dialogue("client-server: one known and one unknown version", "client-server", 3)
        .hello(3, 9)
        .send("high-water mark on version 3", client.HighWaterMarkRequest(mark))
        .expect("value", client.HighWaterMarkResponse(mark, 2))
        .end()
    )


def _client_5() -> dict[str, Any]:
    elsewhere, log = ReqId(15, 0, _NOT_HERE, 1), _records()
    headers = tuple(RecordHeader(r.transaction_id, r.req_id, r.header) for r in log)
    batch, mount = _req(6, client_id=15, partition=1), _req(5, client_id=15, partition=1)
    locks = ((_LOCK,), (_LOCK,), ())
    appends = tuple(BatchedAppend(lock, (), (), 5, _FIRST, checksum(_FIRST)) for lock in locks)
    again = _req(9, client_id=15, partition=1)
    return (
        Dialogue("client-server V5", "client-server", 5)
        .hello()
        .send("high-water mark, partition of no server", client.HighWaterMarkRequest(elsewhere))
        .expect("answered on version 5", client.HighWaterMarkResponse(elsewhere, _NOT_OPEN))
        .send("range of records", client.RecordsRequest(_req(2, client_id=15), 0, 10, 1 << 20))
        .expect("all three", client.RecordsResponse(_req(2, client_id=15), None, 2, log))
        .send("range above the mark", client.RecordsRequest(_req(3, client_id=15), 3, 10, 1 << 20))
        .expect("empty", client.RecordsResponse(_req(3, client_id=15), None, 2, RecordBatch.of(())))
        .send("headers", client.HeadersRequest(_req(4, client_id=15), 1, 10))
        .expect("two", client.HeadersResponse(_req(4, client_id=15), None, 2, headers[1:]))
        .send("batch before a mount", client.AppendBatchRequest(batch, -1, appends))
        .expect(
            "not in the log",
            client.AppendBatchResponse(batch, _outcomes(OutcomeKind.ABSENT, -1, 3)),
        )
        .send("mount", client.MountRequest(mount, -1, 0))
        .expect("ready", client.MountResponse(mount, MountState.READY))
        .send("batch: its own locks do not conflict", client.AppendBatchRequest(batch, -1, appends))
        .expect(
            "committed", client.AppendBatchResponse(batch, _outcomes(OutcomeKind.COMMITTED, 0, 3))
        )
        .send("batch, old client mark", client.AppendBatchRequest(again, -1, appends))
        .expect(
            "refused by the lock; the one without locks is committed",
            client.AppendBatchResponse(
                again,
                (
                    BatchedOutcome(OutcomeKind.REFUSED, 1),
                    BatchedOutcome(OutcomeKind.REFUSED, 1),
                    BatchedOutcome(OutcomeKind.COMMITTED, 3),
                ),
            ),
        )
        .end()
    )


def _client_6() -> dict[str, Any]:
    def req(seq: int) -> ReqId:
        return _req(seq, client_id=17, partition=1)

    def append(seq: int, mark: int, **locks: tuple[int, ...]) -> Any:
        write, read = (locks.get(kind, ()) for kind in ("write", "read"))
        crc = checksum(_FIRST)
        return client.AnsweredAppendRequest(req(seq), mark, write, read, (), 5, _FIRST, crc)

    def answer(seq: int, mark: int, kind: OutcomeKind, number: int) -> Any:
        only = AppendAnswer(17, 1, 1, seq, kind, number)
        return client.AppendAnswers(req(seq), mark, (only,))

    other = _req(8, client_id=17, generation=6, partition=1)
    batch = tuple(BatchedAppend((_LOCK,), (), (), 5, _FIRST, checksum(_FIRST)) for _ in range(2))
    ahead = tuple(BatchedOutcome(OutcomeKind.AHEAD, 4) for _ in batch)
    return (
        Dialogue("client-server V6", "client-server", 6)
        .hello()
        .send("mount without a feed, ahead", client.MountRequest(req(1), 1000, 0, fed=False))
        .expect("ahead", client.MountResponse(req(1), MountState.CLIENT_AHEAD))
        .send("mount without a feed", client.MountRequest(req(2), -1, 0, fed=False))
        .expect("ready at once", client.MountResponse(req(2), MountState.READY))
        .send("append under a lock, mark of the log", append(3, LOG_MARK, write=(_LOCK,)))
        .expect("committed", answer(3, 4, OutcomeKind.COMMITTED, 4))
        .send("write lock, old client mark", append(4, 3, write=(_LOCK,)))
        .expect("refused", answer(4, 4, OutcomeKind.REFUSED, 4))
        .send("append of a client that is ahead", append(5, 1000))
        .expect("ahead", answer(5, 4, OutcomeKind.AHEAD, 4))
        .send("batch of a client that is ahead", client.AppendBatchRequest(req(6), 1000, batch))
        .expect("ahead", client.AppendBatchResponse(req(6), ahead))
        .send("append of another generation", replace(append(8, 4), req_id=other))
        .silence("dropped without an answer")
        .send("mount with a feed", client.MountRequest(req(9), 3, 0))
        .expect("feed", client.FeedData(req(3), 4, 5))
        .expect("ready", client.MountResponse(req(9), MountState.READY))
        .end()
    )


def _outcomes(kind: OutcomeKind, first: int, count: int) -> tuple[BatchedOutcome, ...]:
    ids = range(first, first + count) if kind is OutcomeKind.COMMITTED else [first] * count
    return tuple(BatchedOutcome(kind, number) for number in ids)


def _failed(session: int, seq: int, partition: int, text: str) -> Any:
    return storage.FailureResponse(session, seq, partition, RpcFailure(text))


def _storage_0() -> dict[str, Any]:
    return (
        Dialogue("storage V0", "storage", 0)
        .hello()
        .send("open, wrong key", storage.OpenRequest(-1, -1, -1, UUID(int=1), _PARTITIONS))
        .expect("failure", _failed(-1, -1, -1, f"{_STORAGE_ERROR}: key"))
        .send("open, wrong count", storage.OpenRequest(-1, -1, -1, _KEY, _PARTITIONS + 1))
        .expect("failure", _failed(-1, -1, -1, f"{_STORAGE_ERROR}: number of partitions"))
        .send("request without an open", storage.LastSessionInfoRequest(0, 1, 0, False))
        .expect("answered", storage.LastSessionInfoResponse(0, 1, 0, 0, -1, -1))
        .send("older session", storage.MaxTransactionIdRequest(-1, 2, 0, False))
        .expect("fenced", _failed(-1, 2, 0, f"{_FENCED}: session"))
        .send("open", storage.OpenRequest(-1, -1, -1, _KEY, _PARTITIONS))
        .expect("success", storage.SuccessResponse(-1, -1, -1))
        .send("unknown partition", storage.MaxTransactionIdRequest(1, 3, _NOT_HERE, False))
        .expect("failure", _failed(1, 3, _NOT_HERE, "java.lang.Exception: Partition:99"))
        .end()
    )


def _storage_2() -> dict[str, Any]:
    log = list(_records())
    two, last = RecordBatch.of(log[:2]), RecordBatch.of(log[2:])
    refused = f"{_STORAGE_ERROR}: session"
    return (
        Dialogue("storage V2", "storage", 2)
        .hello(0, 1, 2)
        .send("bounded list", storage.BoundedRecordListRequest(0, 1, 0, 0, 2, 1 << 20))
        .expect("two records", storage.RecordListResponse(0, 1, 0, two))
        .send("one byte", storage.BoundedRecordListRequest(0, 2, 0, 2, 10, 1))
        .expect("one record", storage.RecordListResponse(0, 2, 0, last))
        .send("committed list", storage.CommittedRecordListRequest(0, 3, 0, 0, 1, 10, 1 << 20))
        .expect("up to the last id", storage.RecordListResponse(0, 3, 0, two))
        .send("later session", storage.CommittedRecordListRequest(5, 4, 0, 0, 1, 10, 1 << 20))
        .expect("refused: not the persisted session", _failed(5, 4, 0, refused))
        .send("session of the server", storage.MaxTransactionIdRequest(0, 5, 0, False))
        .expect("not fenced by the reader", storage.MaxTransactionIdResponse(0, 5, 0, 2))
        .end()
    )


def _admin_0() -> dict[str, Any]:
    status = dict.fromkeys(range(_PARTITIONS), True)
    missing = RpcFailure("java.lang.Exception: Partition:77 is not assigned.")
    return (
        Dialogue("storage-admin V0", "storage-admin", 0)
        .hello()
        .send("open", admin.AdminOpenRequest(-1, _KEY, _PARTITIONS))
        .expect("success", admin.AdminSuccessResponse(-1))
        .send("assigned partitions", admin.AssignedPartitionStatusRequest(1))
        .expect("all three", admin.AssignedPartitionStatusResponse(1, status))
        .send("session", admin.LastSessionInfoRequest(2, 0))
        .expect("first session", admin.LastSessionInfoResponse(2, 0, 0, -1, -1))
        .send("records", admin.RecordListRequest(3, 0, 0, 10))
        .expect("all three", admin.RecordListResponse(3, 0, _records()))
        .send("records, not assigned", admin.RecordListRequest(4, 77, 0, 10))
        .expect("failure", admin.AdminFailureResponse(4, missing))
        .send("metrics", admin.MetricsRequest(5))
        .expect("JSON", admin.MetricsResponse(5, "{}"))
        .send("unknown partition", admin.PartitionAvailableRequest(6, (_NOT_HERE,), True))
        .closed("connection closed without an answer")
    )


def _admin_1() -> dict[str, Any]:
    on = dict.fromkeys(range(_PARTITIONS), True)
    unknown = RpcFailure("partition 99 is outside 0..2")
    read = admin.Switch.READ
    return (
        Dialogue("storage-admin V1", "storage-admin", 1)
        .hello()
        .send("reading off", admin.PartitionSwitchRequest(1, (1,), read, False))
        .expect("success", admin.AdminSuccessResponse(1))
        .send("status", admin.AssignedPartitionStatusRequest(2))
        .expect("1 is not available", admin.AssignedPartitionStatusResponse(2, on | {1: False}))
        .send("reading on", admin.PartitionSwitchRequest(3, (1,), read, True))
        .expect("success", admin.AdminSuccessResponse(3))
        .send("unknown partition", admin.PartitionSwitchRequest(4, (_NOT_HERE,), read, True))
        .expect("failure", admin.AdminFailureResponse(4, unknown))
        .end()
    )


def _data_before_it_exists() -> dict[str, Any]:
    def req(seq: int) -> ReqId:
        return _req(seq, client_id=16, partition=2)

    missing = f"{_NOT_FOUND}: partitionId=2, transactionId=3"
    name = "client-server V4: data requested before the transaction exists"
    return (
        Dialogue(name, "client-server", 4, partition=2, generation=1)
        .hello()
        .send("high-water mark", client.HighWaterMarkRequest(req(1)))
        .expect("value", client.HighWaterMarkResponse(req(1), 2))
        .send("mount", client.MountRequest(req(2), 2, 0))
        .expect("ready", client.MountResponse(req(2), MountState.READY))
        .send("data of 3", client.TransactionDataRequest(req(3), 3))
        .expect("error", _no_data(req(3), 3, missing))
        .send("feed request", client.FeedRequest(req(2), 2))
        .send("append", _append(req(4), 2, _FIRST))
        .expect("3 exists", client.FeedData(req(4), 3, 5))
        .send("data of 3", client.TransactionDataRequest(req(5), 3))
        .expect("found", _data(req(5), 3, _FIRST))
        .end()
    )


def _unassign_never_assigned() -> dict[str, Any]:
    return (
        Dialogue("storage-admin V0: unassign a partition that is not assigned", "storage-admin", 0)
        .hello()
        .send("unassign", admin.PartitionAssignmentRequest(1, (1,), False, False))
        .closed("connection closed without an answer")
    )
