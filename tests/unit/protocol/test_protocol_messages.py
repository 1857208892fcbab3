"""Messages of the three protocols: round trips, golden frames, and malformed bodies."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.protocol import (
    ADMIN,
    CLIENT_SERVER,
    STORAGE,
    MalformedMessage,
    ProtocolSpec,
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
from waltz.protocol.admin import PartitionState
from waltz.protocol.batches import (
    MAX_BATCH_APPENDS,
    MAX_LOCKS,
    AppendAnswer,
    BatchedAppend,
    BatchedOutcome,
    OutcomeKind,
)
from waltz.protocol.client_server import (
    AnsweredAppendRequest,
    AppendRequest,
    MountState,
    TransactionDataResponse,
)
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.failures import RpcFailure, StackFrame
from waltz.protocol.frames import HEAD_BYTES
from waltz.protocol.stored import StoredBatch

PROTOCOLS: tuple[tuple[ProtocolSpec, ModuleType], ...] = (
    (CLIENT_SERVER, client_server),
    (STORAGE, storage),
    (ADMIN, admin),
)
VERSIONS = {CLIENT_SERVER: range(8), STORAGE: range(4), ADMIN: range(4)}
"""All versions, offered or not."""
GOLDEN = Path(__file__).parent / "golden" / "wire.json"


def message_classes(messages: ModuleType) -> list[type]:
    return [m for m in messages.Message.__args__ if isinstance(m, type)]


_INTS = st.integers(-(2**31), 2**31 - 1)
_LONGS = st.integers(-(2**63), 2**63 - 1)
_INT_FIELDS = {
    "partition",
    "num_partitions",
    "checksum",
    "max_records",
    "max_bytes",
    "admin_port",
    "max_headers",
    "wait_ms",
    "line_number",
}
_REQ_IDS = st.builds(ReqId, _INTS, _INTS, _INTS, _INTS)
_HEADERS = st.builds(RecordHeader, _LONGS, _REQ_IDS, _INTS)
_RECORDS = st.builds(Record, _LONGS, _REQ_IDS, _INTS, st.binary(max_size=40), _INTS)
_BATCHES = st.lists(_RECORDS, max_size=4).map(RecordBatch.of)
_TEXTS = st.text(max_size=20)
_INT_LISTS = st.lists(_INTS, max_size=5).map(tuple)
_APPENDS = st.tuples(_INT_LISTS, _INT_LISTS, _INT_LISTS, _INTS, st.binary(max_size=40)).map(
    lambda parts: BatchedAppend(*parts, checksum(parts[-1]))
)
_OUTCOMES = st.builds(BatchedOutcome, st.sampled_from(OutcomeKind), _LONGS)
_ANSWERS = st.builds(
    AppendAnswer, _INTS, _INTS, _INTS, _INTS, st.sampled_from(list(map(int, OutcomeKind))), _LONGS
)
_STATES = st.builds(
    PartitionState,
    _INTS,
    *[_LONGS] * 5,
    readable=st.booleans(),
    writable=st.booleans(),
)

_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    ReqId: _REQ_IDS,
    bool: st.booleans(),
    bytes: st.binary(max_size=40),
    str: _TEXTS,
    str | None: st.none() | _TEXTS,
    uuid.UUID: st.uuids(),
    MountState: st.sampled_from(MountState),
    tuple[int, ...]: _INT_LISTS,
    tuple[RecordHeader, ...]: st.lists(_HEADERS, max_size=4).map(tuple),
    RecordHeader | None: st.none() | _HEADERS,
    RecordBatch: _BATCHES,
    RecordBatch | None: st.none() | _RECORDS.map(lambda record: RecordBatch.of([record])),
    StoredBatch: st.integers(0, 3).flatmap(
        lambda n: st.builds(StoredBatch, st.just(n), st.binary(min_size=40 * n, max_size=200))
    ),
    RpcFailure: st.builds(
        RpcFailure,
        st.none() | _TEXTS,
        st.lists(st.builds(StackFrame, _TEXTS, _TEXTS, st.none() | _TEXTS, _INTS), max_size=3).map(
            tuple
        ),
    ),
    admin.Switch: st.sampled_from(admin.Switch),
    tuple[BatchedAppend, ...]: st.lists(_APPENDS, min_size=1, max_size=3).map(tuple),
    tuple[BatchedOutcome, ...]: st.lists(_OUTCOMES, max_size=3).map(tuple),
    tuple[AppendAnswer, ...]: st.lists(_ANSWERS, max_size=3).map(tuple),
    tuple[PartitionState, ...]: st.lists(_STATES, max_size=3).map(tuple),
    tuple[DamagedRange, ...]: st.lists(
        st.builds(DamagedRange, _INTS, _LONGS, _LONGS), max_size=3
    ).map(tuple),
    Mapping[str, bool]: st.dictionaries(_TEXTS, st.booleans(), max_size=4),
    Mapping[int, bool]: st.dictionaries(_INTS, st.booleans(), max_size=4),
}


def _of_field(name: str, hint: Any) -> st.SearchStrategy[Any]:
    if hint is int:
        return _INTS if name in _INT_FIELDS or name == "header" else _LONGS
    return _BY_TYPE[hint]


def any_of(message: type) -> st.SearchStrategy[Any]:
    """Instances of a message class, by its field types."""
    if message is TransactionDataResponse:
        found = st.builds(message, _REQ_IDS, _LONGS, st.binary(max_size=40), _INTS)
        return found | st.builds(
            message, _REQ_IDS, _LONGS, st.none(), st.just(0), st.none() | _TEXTS
        )
    hints = get_type_hints(message)
    values = {f.name: _of_field(f.name, hints[f.name]) for f in fields(message)}
    if issubclass(message, AppendRequest):
        values.pop("checksum")
        return st.fixed_dictionaries(values).map(
            lambda v: message(**v, checksum=checksum(v["data"]))
        )
    return st.builds(message, **values)


def as_seen_at(message: Any, version: int) -> Any:
    """Return the message as decoded at ``version``.

    Old versions encode "ahead" as "not ready", and every mount as a fed one.
    """
    if isinstance(message, client_server.MountRequest) and version < 6:
        return replace(message, fed=True)
    if isinstance(message, client_server.MountResponse) and version < 3:
        ready = message.state is MountState.READY
        state = MountState.READY if ready else MountState.NOT_READY
        return client_server.MountResponse(message.req_id, state)
    return message


ANY_MESSAGE = st.one_of(
    [
        st.tuples(st.just((spec, messages)), any_of(message))
        for spec, messages in PROTOCOLS
        for message in message_classes(messages)
    ]
)


@settings(max_examples=400)
@given(ANY_MESSAGE)
def test_messages_round_trip_at_every_version(case: tuple[Any, Any]) -> None:
    (spec, messages), message = case
    encoded = 0
    for version in VERSIONS[spec]:
        try:
            frame = messages.encode(message, version)
        except UnsupportedByPeer:
            continue
        encoded += 1
        assert frame[0] == spec.magic
        assert int.from_bytes(frame[1:3], "big") == version
        assert int.from_bytes(frame[3:7], "big") == len(frame) - HEAD_BYTES
        assert messages.decode(frame[HEAD_BYTES:], version) == as_seen_at(message, version)
    assert encoded


@settings(max_examples=400)
@given(ANY_MESSAGE, st.data())
def test_mutated_bodies_raise_only_malformed_message(
    case: tuple[Any, Any], data: st.DataObject
) -> None:
    check_mutated_body(case, data)


@pytest.mark.slow
@settings(max_examples=1100)
@given(ANY_MESSAGE, st.data())
def test_more_mutated_bodies_raise_only_malformed_message(
    case: tuple[Any, Any], data: st.DataObject
) -> None:
    check_mutated_body(case, data)


def check_mutated_body(case: tuple[Any, Any], data: st.DataObject) -> None:
    """Change the body of a message at random; check how it decodes."""
    (spec, messages), message = case
    version = max(VERSIONS[spec])
    body = bytearray(messages.encode(message, version)[HEAD_BYTES:])
    for _ in range(data.draw(st.integers(1, 4))):
        match data.draw(st.sampled_from(("flip", "cut", "insert", "length"))):
            case "flip" if body:
                body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
            case "cut":
                del body[data.draw(st.integers(0, len(body))) :]
            case "insert":
                at = data.draw(st.integers(0, len(body)))
                body[at:at] = data.draw(st.binary(max_size=9))
            case "length" if len(body) >= 4:
                at = data.draw(st.integers(0, len(body) - 4))
                body[at : at + 4] = data.draw(_INTS).to_bytes(4, "big", signed=True)
    try:
        decoded = messages.decode(bytes(body), version)
    except MalformedMessage:
        return
    assert type(decoded) in message_classes(messages)


@settings(max_examples=1000)
@given(st.sampled_from(PROTOCOLS), st.binary(max_size=120), st.integers(0, 30))
def test_random_bodies_raise_only_malformed_message(
    protocol: tuple[ProtocolSpec, ModuleType], junk: bytes, code: int
) -> None:
    spec, messages = protocol
    for body in (junk, bytes((code,)) + junk):
        with suppress(MalformedMessage):
            messages.decode(body, max(VERSIONS[spec]))


def test_impossible_counts_are_refused_before_allocation() -> None:
    health = bytes([22]) + bytes(16) + (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(MalformedMessage, match="impossible count"):
        client_server.decode(health, 4)
    partitions = bytes([16]) + bytes(16) + (2**30).to_bytes(4, "big")
    with pytest.raises(MalformedMessage, match="impossible count"):
        client_server.decode(partitions, 4)
    records = bytes([6]) + bytes(20) + (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(MalformedMessage):
        storage.decode(records, 0)


def test_append_batch_with_a_malformed_field_is_refused() -> None:
    good = BatchedAppend((), (), (), 0, b"data", checksum(b"data"))
    body = client_server.encode(client_server.AppendBatchRequest(_ID, -1, (good,)), 5)[HEAD_BYTES:]
    for damaged, why in (
        (body[:-1] + bytes([body[-1] ^ 1]), "checksum"),
        (body[: -8 - 4] + (-1).to_bytes(4, "big", signed=True) + body[-4:], "without data"),
        (body[:25] + bytes(4), "a batch of 0"),
        (body[:25] + (2**20).to_bytes(4, "big") + body[29:], "impossible count"),
    ):
        with pytest.raises(MalformedMessage, match=why):
            client_server.decode(damaged, 5)


def test_append_batch_over_its_limits_is_refused() -> None:
    """A server processes one request without interruption, while all others wait."""
    one = BatchedAppend((), (), (), 0, b"", 0)
    half = (1,) * (MAX_LOCKS // 2)
    locked = [
        BatchedAppend(half, (2,), (), 0, b"", 0),
        BatchedAppend((2,), half, (), 0, b"", 0),
        BatchedAppend((), (2,), half, 0, b"", 0),
    ]
    for appends, why in (
        ((one,) * (MAX_BATCH_APPENDS + 1), "a batch of 10001"),
        *(((each, each), "locks in one request") for each in locked),
    ):
        request = client_server.AppendBatchRequest(_ID, -1, appends)
        with pytest.raises(MalformedMessage, match=why):
            client_server.decode(client_server.encode(request, 5)[HEAD_BYTES:], 5)
    for appends in ((one,) * MAX_BATCH_APPENDS, *((each,) for each in locked)):
        request = client_server.AppendBatchRequest(_ID, -1, appends)
        client_server.decode(client_server.encode(request, 5)[HEAD_BYTES:], 5)


def test_byte_field_with_an_invalid_value_is_refused() -> None:
    outcome = client_server.AppendBatchResponse(_ID, (BatchedOutcome(OutcomeKind.UNKNOWN),))
    body = bytearray(client_server.encode(outcome, 5)[HEAD_BYTES:])
    body[-9] = 5
    with pytest.raises(MalformedMessage, match="outcome"):
        client_server.decode(bytes(body), 5)
    answers = client_server.AppendAnswers(
        _ID, 3, (AppendAnswer(7, 3, 11, 501, OutcomeKind.ABSENT, -1),)
    )
    body = bytearray(client_server.encode(answers, 6)[HEAD_BYTES:])
    body[-9] = 5
    with pytest.raises(MalformedMessage, match="outcome"):
        client_server.decode(bytes(body), 6)
    switch = admin.PartitionSwitchRequest(1, (), admin.Switch.READ, True)
    body = bytearray(admin.encode(switch, 1)[HEAD_BYTES:])
    body[-2] = 3
    with pytest.raises(MalformedMessage, match="switch"):
        admin.decode(bytes(body), 1)


def test_text_with_half_a_surrogate_pair_is_sent_with_a_question_mark() -> None:
    """Python has such texts for file names that are no UTF-8; a failure answer may quote one."""
    failure = admin.AdminFailureResponse(1, RpcFailure("file \udcff"))
    body = admin.encode(failure, 0)[HEAD_BYTES:]
    assert admin.decode(body, 0) == admin.AdminFailureResponse(1, RpcFailure("file ?"))


def test_append_without_data_is_refused() -> None:
    request = AppendRequest(ReqId(1, 2, 3, 4), -1, (), (), (), 0, b"", 0)
    body = bytearray(client_server.encode(request, 4)[HEAD_BYTES:])
    body[-8:-4] = (-1).to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedMessage, match="without data"):
        client_server.decode(bytes(body), 4)


# Golden files keep the formats fixed without recordings of 0.13.2.

_ID = ReqId(7, 3, 11, 501)
_RECORD = Record(12, _ID, 99, b"one", checksum(b"one"))
_STORED = StoredBatch(
    1,
    bytes.fromhex("000000000000000c00000007000000030000000b000001f50000006300000003")
    + bytes.fromhex("7a6c86f16f6e65")
    + bytes(4),
)
_FAILURE = RpcFailure("E: no", (StackFrame("a.B", "c", None, -2),))
_KEY = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

EXAMPLES: dict[ProtocolSpec, tuple[Any, ...]] = {
    CLIENT_SERVER: (
        client_server.MountRequest(_ID, -1, 2, fed=False),
        client_server.MountResponse(_ID, MountState.NOT_READY),
        AppendRequest(_ID, 10, (1, -2), (), (), 5, b"data", checksum(b"data")),
        client_server.FeedRequest(_ID, 10),
        client_server.FeedData(_ID, 11, 5),
        client_server.FeedSuspended(_ID),
        client_server.TransactionDataRequest(_ID, 11),
        TransactionDataResponse(_ID, 11, b"data", checksum(b"data")),
        client_server.FlushRequest(_ID),
        client_server.FlushResponse(_ID, 12),
        client_server.LockFailure(_ID, 13),
        client_server.HighWaterMarkRequest(_ID),
        client_server.HighWaterMarkResponse(_ID, -(2**63)),
        client_server.CheckStorageConnectivityRequest(_ID),
        client_server.CheckStorageConnectivityResponse(_ID, {"a:1": True, "b:2": False}),
        client_server.ServerPartitionsAssignmentRequest(_ID),
        client_server.ServerPartitionsAssignmentResponse(_ID, (1, 2)),
        client_server.AddPreferredPartitionRequest(_ID, (3,)),
        client_server.AddPreferredPartitionResponse(_ID, True),
        client_server.RemovePreferredPartitionRequest(_ID, (3,)),
        client_server.RemovePreferredPartitionResponse(_ID, False),
        client_server.ServerPartitionsHealthStatRequest(_ID),
        client_server.ServerPartitionsHealthStatResponse(_ID, {4: True}),
        client_server.RecordsRequest(_ID, 12, 1000, 1 << 20, 500),
        client_server.RecordsResponse(_ID, None, 12, RecordBatch.of([_RECORD])),
        client_server.HeadersRequest(_ID, 12, 1000),
        client_server.HeadersResponse(_ID, "not here", -(2**63), ()),
        client_server.AppendBatchRequest(
            _ID, 11, (BatchedAppend((1, -2), (), (3,), 5, b"data", checksum(b"data")),)
        ),
        client_server.AppendBatchResponse(
            _ID,
            (
                BatchedOutcome(OutcomeKind.COMMITTED, 12),
                BatchedOutcome(OutcomeKind.REFUSED, 11),
                BatchedOutcome(OutcomeKind.UNKNOWN),
            ),
        ),
        client_server.RequestDenied(_ID, "no right"),
        AnsweredAppendRequest(_ID, 10, (1, -2), (3,), (), 5, b"data", checksum(b"data")),
        client_server.AppendAnswers(
            _ID,
            12,
            (
                AppendAnswer(7, 3, 11, 501, OutcomeKind.COMMITTED, 12),
                AppendAnswer(7, 3, 11, 503, OutcomeKind.REFUSED, 11),
                AppendAnswer(7, 3, 11, 504, OutcomeKind.AHEAD, 12),
            ),
        ),
        client_server.StoredRecordsResponse(_ID, 12, _STORED),
    ),
    STORAGE: (
        storage.OpenRequest(-1, -1, -1, _KEY, 4),
        storage.LastSessionInfoRequest(5, 1, 2),
        storage.LastSessionInfoResponse(5, 1, 2, 4, 100, 101),
        storage.SetLowWaterMarkRequest(5, 1, 2, 100),
        storage.TruncateRequest(5, 1, 2, 100, True),
        storage.AppendRequest(5, 1, 2, RecordBatch.of([_RECORD])),
        storage.SuccessResponse(5, 1, 2),
        storage.FailureResponse(5, 1, 2, _FAILURE),
        storage.RecordHeaderRequest(5, 1, 2, 12),
        storage.RecordHeaderResponse(5, 1, 2, RecordHeader(12, _ID, 99)),
        storage.RecordRequest(5, 1, 2, 12),
        storage.RecordResponse(5, 1, 2, RecordBatch.of([_RECORD])),
        storage.MaxTransactionIdRequest(5, 1, 2),
        storage.MaxTransactionIdResponse(5, 1, 2, -1),
        storage.RecordHeaderListRequest(5, 1, 2, 12, 20),
        storage.RecordHeaderListResponse(5, 1, 2, (RecordHeader(12, _ID, 99),)),
        storage.RecordListRequest(5, 1, 2, 12, 20),
        storage.RecordListResponse(5, 1, 2, RecordBatch.of([_RECORD])),
        storage.BoundedRecordListRequest(5, 1, 2, 12, 20, 1 << 20),
        storage.CommittedRecordListRequest(5, 1, 2, 12, 31, 20, 1 << 20),
        storage.StoredRecordListRequest(5, 1, 2, 12, 31, 20, 1 << 20),
        storage.StoredRecordListResponse(5, 1, 2, _STORED),
        storage.TruncateBelowMarkRequest(5, 1, 2, 35, 41),
    ),
    ADMIN: (
        admin.AdminSuccessResponse(9),
        admin.AdminFailureResponse(9, _FAILURE),
        admin.AdminOpenRequest(-1, _KEY, 4),
        admin.PartitionAvailableRequest(9, (1, 2), True),
        admin.PartitionAssignmentRequest(9, (1, 2), True, False),
        admin.RecordListRequest(9, 2, 12, 20),
        admin.RecordListResponse(9, 2, RecordBatch.of([_RECORD])),
        admin.LastSessionInfoRequest(9, 2),
        admin.LastSessionInfoResponse(9, 2, 4, 100, 101),
        admin.MetricsRequest(9),
        admin.MetricsResponse(9, "{}"),
        admin.AssignedPartitionStatusRequest(9),
        admin.AssignedPartitionStatusResponse(9, {1: True, 2: False}),
        admin.PartitionSwitchRequest(9, (1, 2), admin.Switch.WRITE, False),
        admin.PartitionStatesRequest(9),
        admin.PartitionStatesResponse(
            9, (PartitionState(1, 4, 100, 101, 250, 65_000, True, False),)
        ),
        admin.RangeChecksumRequest(9, 2, 0, 12),
        admin.RangeChecksumResponse(9, 2, 0, 12, 4711, -1),
        admin.DamagedRecordsRequest(9),
        admin.DamagedRecordsResponse(9, (DamagedRange(1, 12, 14), DamagedRange(2, 5, 5))),
        admin.RepairRecordsRequest(9, 2, -1, RecordBatch.of([_RECORD])),
        admin.PullRecordsRequest(9, 2, 7, "a.example", 55281, 0, 12),
        admin.PullRecordsResponse(9, 2, 11),
    ),
}


def golden_frames() -> Iterator[tuple[str, ModuleType, int, Any, bytes]]:
    """Yield every example at every version that has it."""
    for spec, messages in PROTOCOLS:
        for version in VERSIONS[spec]:
            for message in EXAMPLES[spec]:
                try:
                    frame = messages.encode(message, version)
                except UnsupportedByPeer:
                    continue
                name = f"{spec.name} {version} {type(message).__name__}"
                yield name, messages, version, message, frame


def test_examples_cover_every_message() -> None:
    for spec, messages in PROTOCOLS:
        assert [type(m) for m in EXAMPLES[spec]] == message_classes_in_order(messages)


def message_classes_in_order(messages: ModuleType) -> list[type]:
    """The message classes by their type bytes."""
    version = max(VERSIONS[next(spec for spec, m in PROTOCOLS if m is messages)])
    examples = {type(m): m for found in EXAMPLES.values() for m in found}
    return sorted(
        message_classes(messages),
        key=lambda cls: messages.encode(examples[cls], version)[HEAD_BYTES],
    )


def test_encoded_frames_equal_the_golden_frames() -> None:
    """With WRITE_GOLDEN set the file is written, for review as a diff."""
    encoded = {name: frame.hex() for name, _, _, _, frame in golden_frames()}
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(encoded, indent=1) + "\n")
    assert encoded == json.loads(GOLDEN.read_text()), (
        "a new message or version: "
        "WRITE_GOLDEN=1 pytest tests/unit/protocol/test_protocol_messages.py; "
        "the bytes of a released version must not change"
    )


def test_golden_frames_decode_to_their_examples() -> None:
    golden = json.loads(GOLDEN.read_text())
    for name, messages, version, message, _ in golden_frames():
        body = bytes.fromhex(golden[name])[HEAD_BYTES:]
        assert messages.decode(body, version) == as_seen_at(message, version)


@pytest.mark.parametrize("readable", [False, True])
@pytest.mark.parametrize("writable", [False, True])
def test_partition_with_one_switch_off_is_not_available(readable: bool, writable: bool) -> None:
    state = PartitionState(0, 1, 2, 2, 2, 100, readable, writable)
    assert state.available is (readable and writable)
