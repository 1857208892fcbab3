"""Every recorded frame decodes to the recorded fields, and those fields encode to that frame."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from waltz.protocol import (
    ADMIN,
    CLIENT_SERVER,
    STORAGE,
    FrameDecoder,
    Lock,
    MalformedMessage,
    ProtocolSpec,
    ProtocolViolation,
    Record,
    RecordBatch,
    RecordHeader,
    ReqId,
    UnsupportedByPeer,
    admin,
    checksum,
    client_server,
    storage,
)
from waltz.protocol.client_server import MountState
from waltz.protocol.failures import RpcFailure, StackFrame
from waltz.protocol.frames import HEAD_BYTES, decode_hello, encode_frame, encode_hello

Entry = Mapping[str, Any]

PROTOCOLS: dict[str, tuple[ProtocolSpec, ModuleType]] = {
    "client-server": (CLIENT_SERVER, client_server),
    "storage": (STORAGE, storage),
    "storage-admin": (ADMIN, admin),
}
REFERENCE = {CLIENT_SERVER: (0, 1, 2, 3, 4), STORAGE: (0,), ADMIN: (0,)}
"""The versions that Waltz 0.13.2 speaks."""
BY_MAGIC = {"L": "client-server", "S": "storage", "A": "storage-admin"}

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
"""What the vectors say beside the fields; `mount_state` and the data's absence stand for them."""


def req_id(fields: Entry) -> ReqId:
    return ReqId(fields["clientId"], fields["generation"], fields["partitionId"], fields["seqNum"])


def record(fields: Entry) -> Record:
    data = bytes.fromhex(fields["data_hex"])
    return Record(
        fields["transactionId"], req_id(fields["reqId"]), fields["header"], data, fields["checksum"]
    )


def header(fields: Entry) -> RecordHeader:
    return RecordHeader(fields["transactionId"], req_id(fields["reqId"]), fields["header"])


def failure(fields: Entry) -> RpcFailure:
    stack = tuple(
        StackFrame(f["className"], f["methodName"], f["fileName"], f["lineNumber"])
        for f in fields["stackTrace"]
    )
    return RpcFailure(fields["message"], stack)


CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "reqId": req_id,
    "data_hex": bytes.fromhex,
    "exception": failure,
    "key": uuid.UUID,
    "record": lambda r: RecordBatch.of([record(r)]),
    "records": lambda rs: RecordBatch.of(record(r) for r in rs),
    "recordHeader": header,
    "recordHeaders": lambda hs: tuple(header(h) for h in hs),
    "partitionState": MountState,
    "storageConnectivity": dict,
    "partitionHealth": dict,
    "partitionStatus": dict,
}


def as_ours(name: str, value: Any) -> Any:
    """Turn one recorded value into what our message holds."""
    if value is None:
        return None
    if name in CONVERTERS:
        return CONVERTERS[name](value)
    return tuple(value) if isinstance(value, list) else value


def our_message(entry: Entry) -> Any:
    """Build our message from the recorded fields."""
    name, fields = entry["message"], entry["fields"]
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
    if name == "AppendRequest" and entry["protocol"] == "client-server":
        values = {"read_locks": (), "append_locks": ()} | values
    return getattr(PROTOCOLS[entry["protocol"]][1], name)(**values)


def load(vectors: Path, name: str) -> Any:
    return json.loads((vectors / name).read_text())


def decoder(spec: ProtocolSpec, version: int) -> FrameDecoder:
    """Return a decoder whose handshake agreed on ``version``."""
    ready = FrameDecoder(spec)
    assert ready.feed(encode_hello((version,), "peer")) == []
    return ready


def messages_of(entries: list[Entry]) -> list[Entry]:
    return [e for e in entries if e["message"] not in ("Hello", "KeepAlive")]


def test_recorded_frames_decode_to_their_fields(vectors: Path) -> None:
    for entry in messages_of(load(vectors, "wire.json")):
        spec, messages = PROTOCOLS[entry["protocol"]]
        version, frame = entry["version"], bytes.fromhex(entry["hex"])
        [body] = decoder(spec, version).feed(frame)
        assert messages.decode(body, version) == our_message(entry), entry


def test_fields_encode_to_the_recorded_frames(vectors: Path) -> None:
    for entry in messages_of(load(vectors, "wire.json")):
        _, messages = PROTOCOLS[entry["protocol"]]
        encoded = messages.encode(our_message(entry), entry["version"])
        assert encoded.hex() == entry["hex"], entry


def test_client_ahead_is_sent_as_not_ready_to_an_old_client(vectors: Path) -> None:
    ahead = [
        entry
        for entry in load(vectors, "wire.json")
        if entry["fields"].get("sourcePartitionState") == MountState.CLIENT_AHEAD
    ]
    assert ahead
    for entry in ahead:
        answer = client_server.MountResponse(
            req_id(entry["fields"]["reqId"]), MountState.CLIENT_AHEAD
        )
        assert client_server.encode(answer, entry["version"]).hex() == entry["hex"]


def test_every_message_of_every_version_is_covered(vectors: Path) -> None:
    """The vectors have no message that the tables lack, and the other way round."""
    entries = messages_of(load(vectors, "wire.json"))
    for name, (spec, messages) in PROTOCOLS.items():
        for version in REFERENCE[spec]:
            recorded = {
                e["type"] for e in entries if e["protocol"] == name and e["version"] == version
            }
            known = set()
            for code in range(256):
                try:
                    messages.decode(bytes([code]), version)
                except MalformedMessage as error:
                    if "unknown message type" not in str(error):
                        known.add(code)
            assert known == recorded, (name, version)


def test_recorded_hellos_decode_in_both_directions(vectors: Path) -> None:
    hellos = [e for e in load(vectors, "wire.json") if e["message"] == "Hello"]
    assert hellos
    for entry in hellos:
        frame, fields = bytes.fromhex(entry["hex"]), entry["fields"]
        offered, text = tuple(fields["versions"]), fields["message"]
        assert decode_hello(frame[HEAD_BYTES:]) == (offered, text)
        assert encode_hello(offered, text) == frame


def test_encoded_hellos_are_the_recorded_ones(vectors: Path) -> None:
    recorded = {e["hex"] for e in load(vectors, "wire.json") if e["message"] == "Hello"}
    ours = {
        spec.limited_to(*REFERENCE[spec]).hello(side).hex()
        for spec, _ in PROTOCOLS.values()
        for side in (True, False)
    }
    assert ours == recorded


def test_recorded_keep_alives_are_ignored_and_reproduced(vectors: Path) -> None:
    keep_alives = [e for e in load(vectors, "wire.json") if e["message"] == "KeepAlive"]
    assert keep_alives
    for entry in keep_alives:
        frame = bytes.fromhex(entry["hex"])
        if entry["protocol"] == "hello":
            connection = FrameDecoder(CLIENT_SERVER)
        else:
            connection = decoder(PROTOCOLS[entry["protocol"]][0], entry["version"])
        assert connection.feed(frame) == []
        assert connection.keep_alive() == frame
        assert not connection.mid_frame


def test_recorded_bad_frames_are_refused_at_their_position(vectors: Path) -> None:
    for case in load(vectors, "wire-negative.json"):
        if "hex" not in case:
            continue
        spec, messages = PROTOCOLS[BY_MAGIC[case["magic"]]]
        version, frame = case["negotiatedVersion"], bytes.fromhex(case["hex"])
        connection = decoder(spec, version)
        if case["error"] is None:
            bodies = connection.feed(frame)
            decoded = [messages.decode(body, version) for body in bodies]
            if case["decodedType"] is None:
                assert decoded == [], case
                assert connection.mid_frame, case
            else:
                assert bodies[0][0] == case["decodedType"], case
                if "result" in case:
                    assert decoded[0].result == case["result"], case
        elif case["error"].startswith("CorruptedFrameException"):
            with pytest.raises(ProtocolViolation):
                connection.feed(frame)
        else:
            [body] = connection.feed(frame)
            with pytest.raises(MalformedMessage):
                messages.decode(body, version)


def test_malformed_head_is_refused_before_its_body(vectors: Path) -> None:
    for case in load(vectors, "wire-negative.json"):
        if (case.get("error") or "").startswith("CorruptedFrameException"):
            spec, _ = PROTOCOLS[BY_MAGIC[case["magic"]]]
            with pytest.raises(ProtocolViolation):
                decoder(spec, case["negotiatedVersion"]).feed(
                    bytes.fromhex(case["hex"])[:HEAD_BYTES]
                )


def test_encoder_refuses_locks_that_the_version_lacks(vectors: Path) -> None:
    cases = [case["case"] for case in load(vectors, "wire-negative.json") if "encodeError" in case]
    assert cases
    for case in cases:
        version = int(case.rsplit(" ", 1)[1])
        locks = {"read": (), "append": ()} | {case.split()[1]: (Lock("row", 1).hash(),)}
        request = client_server.AppendRequest(
            ReqId(1, 0, 0, 0), -1, (), locks["read"], locks["append"], 0, b"", 0
        )
        with pytest.raises(UnsupportedByPeer, match=r"\d: upgrade it"):
            client_server.encode(request, version)


def test_append_with_an_altered_checksum_is_refused(vectors: Path) -> None:
    """Every recorded append is refused when any bit of its data changes."""
    appends = [
        e
        for e in messages_of(load(vectors, "wire.json"))
        if e["protocol"] == "client-server" and e["fields"].get("data_hex") and e["type"] == 2
    ]
    for entry in appends:
        frame = bytes.fromhex(entry["hex"])
        damaged = bytearray(frame[HEAD_BYTES:])
        damaged[-5] ^= 1
        with pytest.raises(MalformedMessage, match="checksum"):
            client_server.decode(bytes(damaged), entry["version"])


def test_recorded_frames_are_head_and_body(vectors: Path) -> None:
    for entry in load(vectors, "wire.json"):
        frame = bytes.fromhex(entry["hex"])
        version = int.from_bytes(frame[1:3], "big")
        assert encode_frame(frame[0], version, frame[HEAD_BYTES:]) == frame


def test_recorded_data_checksums_match(vectors: Path) -> None:
    for entry in messages_of(load(vectors, "wire.json")):
        if "data_hex" in entry["fields"]:
            data = bytes.fromhex(entry["fields"]["data_hex"])
            assert checksum(data) == entry["fields"]["checksum"]
