"""Convert messages between the form of the vectors, field names and JSON values, and ours."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from waltz.protocol import (
    ADMIN,
    CLIENT_SERVER,
    STORAGE,
    ProtocolSpec,
    Record,
    RecordBatch,
    RecordHeader,
    ReqId,
    admin,
    client_server,
    storage,
)
from waltz.protocol.batches import AppendAnswer, BatchedAppend, BatchedOutcome, OutcomeKind
from waltz.protocol.client_server import MountState
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.failures import RpcFailure, StackFrame
from waltz.protocol.stored import StoredBatch

Entry = Mapping[str, Any]

PROTOCOLS: dict[str, tuple[ProtocolSpec, ModuleType]] = {
    "client-server": (CLIENT_SERVER, client_server),
    "storage": (STORAGE, storage),
    "storage-admin": (ADMIN, admin),
}

OURS = {
    "reqId": "req_id",
    "clientHighWaterMark": "client_high_water_mark",
    "seqNum": "seq_num",
    "partitionState": "state",
    "writeLockRequest": "write_locks",
    "readLockRequest": "read_locks",
    "appendLockRequest": "append_locks",
    "transactionId": "transaction_id",
    "errorMessage": "error",
    "partitionIds": "partitions",
    "storageConnectivity": "storages",
    "partitionHealth": "health",
    "partitionStatus": "available",
    "sessionId": "session_id",
    "partitionId": "partition",
    "numPartitions": "num_partitions",
    "lastSessionId": "last_session_id",
    "lowWaterMark": "low_water_mark",
    "localLowWaterMark": "local_low_water_mark",
    "usedByOfflineRecovery": "offline",
    "exception": "failure",
    "recordHeader": "header",
    "recordHeaders": "headers",
    "maxNumRecords": "max_records",
    "deleteStorageFiles": "delete_files",
    "metricsJson": "json",
    "data_hex": "data",
    "firstTransactionId": "first_id",
    "lastTransactionId": "last_id",
    "maxNumHeaders": "max_headers",
    "maxBytes": "max_bytes",
    "waitMs": "wait_ms",
    "highWaterMark": "high_water_mark",
    "numBytes": "num_bytes",
    "storedRecords": "records",
    "adminPort": "admin_port",
}
"""The vectors' field names that differ from the attribute names here."""

BY_MESSAGE = {
    ("PartitionAvailableRequest", "toggled"): "available",
    ("PartitionAssignmentRequest", "toggled"): "assigned",
    ("RecordHeaderListRequest", "transactionId"): "first_id",
    ("RecordListRequest", "transactionId"): "first_id",
}
"""Names that depend on the message."""

NOT_ON_THE_WIRE = {
    ("MountResponse", "sourcePartitionState"),
    ("MountResponse", "partitionReady"),
    ("TransactionDataResponse", "success"),
}
"""Values that the vectors have beside the fields; `MountState` and absent data stand for them."""


def req_id(fields: Entry) -> ReqId:
    """Return the request id with these fields."""
    return ReqId(fields["clientId"], fields["generation"], fields["partitionId"], fields["seqNum"])


def record(fields: Entry) -> Record:
    """Return the record with these fields."""
    data = bytes.fromhex(fields["data_hex"])
    return Record(
        fields["transactionId"], req_id(fields["reqId"]), fields["header"], data, fields["checksum"]
    )


def header(fields: Entry) -> RecordHeader:
    """Return the record header with these fields."""
    return RecordHeader(fields["transactionId"], req_id(fields["reqId"]), fields["header"])


def failure(fields: Entry) -> RpcFailure:
    """Return the failure with these fields."""
    stack = tuple(
        StackFrame(f["className"], f["methodName"], f["fileName"], f["lineNumber"])
        for f in fields["stackTrace"]
    )
    return RpcFailure(fields["message"], stack)


def _append(fields: Entry) -> BatchedAppend:
    write, read, append = (
        tuple(fields[f"{kind}LockRequest"]) for kind in ("write", "read", "append")
    )
    data = bytes.fromhex(fields["data_hex"])
    return BatchedAppend(write, read, append, fields["header"], data, fields["checksum"])


def _answer(fields: Entry) -> AppendAnswer:
    r = req_id(fields["reqId"])
    ids = (r.client_id, r.generation, r.partition, r.seq)
    return AppendAnswer(*ids, fields["outcome"], fields["transactionId"])


def _state(fields: Entry) -> admin.PartitionState:
    return admin.PartitionState(*fields.values())


CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "reqId": req_id,
    "data_hex": bytes.fromhex,
    "exception": failure,
    "key": uuid.UUID,
    "record": lambda r: RecordBatch.of([record(r)]),
    "records": lambda rs: RecordBatch.of(record(r) for r in rs),
    "storedRecords": lambda rs: StoredBatch(len(rs), b"".join(map(bytes.fromhex, rs))),
    "recordHeader": header,
    "recordHeaders": lambda hs: tuple(header(h) for h in hs),
    "partitionState": MountState,
    "storageConnectivity": dict,
    "partitionHealth": dict,
    "partitionStatus": dict,
    "appends": lambda values: tuple(_append(v) for v in values),
    "outcomes": lambda values: tuple(BatchedOutcome(OutcomeKind(kind), at) for kind, at in values),
    "answers": lambda values: tuple(_answer(v) for v in values),
    "switch": admin.Switch,
    "states": lambda values: tuple(_state(v) for v in values),
    "ranges": lambda values: tuple(DamagedRange(*v.values()) for v in values),
}


def as_ours(name: str, value: Any) -> Any:
    """Return one recorded value as our message holds it."""
    if value is None:
        return None
    if name in CONVERTERS:
        return CONVERTERS[name](value)
    return tuple(value) if isinstance(value, list) else value


def our_message(protocol: str, name: str, fields: Entry) -> Any:
    """Return our message with the recorded fields."""
    values: dict[str, Any] = {}
    for theirs, value in fields.items():
        if (name, theirs) not in NOT_ON_THE_WIRE:
            ours = BY_MESSAGE.get((name, theirs)) or OURS.get(theirs, theirs)
            values[ours] = as_ours(theirs, value)
    if name == "MountResponse" and "partitionReady" in fields:
        ready = fields["partitionReady"]
        values["state"] = MountState.READY if ready else MountState.NOT_READY
    if name == "TransactionDataResponse" and not fields["success"]:
        values["data"] = None
    if name == "AppendRequest" and protocol == "client-server":
        values = {"read_locks": (), "append_locks": ()} | values
    return getattr(PROTOCOLS[protocol][1], name)(**values)


def wire_entries(vectors: Path) -> list[Entry]:
    """Return the entries of wire.json, one for each version of each message.

    An entry of our own has all versions in which the message has this form; its frames differ in
    the version alone.
    """
    return [
        each for entry in json.loads((vectors / "wire.json").read_text()) for each in _of(entry)
    ]


def _of(entry: Entry) -> Iterator[Entry]:
    if "versions" not in entry:
        yield entry
        return
    for version in entry["versions"]:
        frame = entry["hex"][:2] + f"{version:04x}" + entry["hex"][6:]
        yield {**entry, "version": version, "hex": frame}


def messages_of(entries: list[Entry]) -> list[Entry]:
    """Return the entries that are messages: neither Hellos nor keep-alives."""
    return [e for e in entries if e["message"] not in ("Hello", "KeepAlive")]
