"""Make random values of all fields of messages, by the types of the fields."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from random import Random
from types import ModuleType
from typing import Any, get_type_hints

from tests.fuzz.mutation import extreme
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
    checksum,
    client_server,
    storage,
)
from waltz.protocol.admin import PartitionState, Switch
from waltz.protocol.batches import AppendAnswer, BatchedAppend, BatchedOutcome, OutcomeKind
from waltz.protocol.client_server import (
    AnsweredAppendRequest,
    AppendRequest,
    MountState,
    TransactionDataResponse,
)
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.failures import RpcFailure, StackFrame
from waltz.protocol.stored import STORED_OVERHEAD_BYTES, StoredBatch

PROTOCOLS: tuple[tuple[ProtocolSpec, Any], ...] = (
    (CLIENT_SERVER, client_server),
    (STORAGE, storage),
    (ADMIN, admin),
)

_TEXTS = ("", "a", "127.0.0.1:55280", "Grüße", "\0", "😀", "x" * 300, "\ud7ff")
_INT_FIELDS = {
    "partition", "num_partitions", "checksum", "max_records", "max_bytes", "max_headers", "wait_ms",
    "line_number", "header", "admin_port",
}  # fmt: skip

Make = Callable[[Random], Any]


def number(random: Random, bits: int) -> int:
    """Return a signed number: small, at the edge of its range, or any."""
    kind = random.random()
    if kind < 0.6:
        return random.randint(-1, 20)
    if kind < 0.9:
        unsigned = extreme(random, bits // 8)
        return unsigned - (1 << bits) if unsigned >> (bits - 1) else unsigned
    return random.randint(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def text(random: Random) -> str:
    """Return a text that UTF-8 can encode."""
    return random.choice(_TEXTS)


def data(random: Random) -> bytes:
    """Return a transaction's data."""
    return random.randbytes(random.choice((0, 1, 7, 40, 300)))


def int32(random: Random) -> int:
    return number(random, 32)


def int64(random: Random) -> int:
    return number(random, 64)


def ints(random: Random) -> tuple[int, ...]:
    return tuple(int32(random) for _ in range(random.choice((0, 1, 2, 9))))


def req_id(random: Random) -> ReqId:
    return ReqId(*(int32(random) for _ in range(4)))


def header(random: Random) -> RecordHeader:
    return RecordHeader(int64(random), req_id(random), int32(random))


def record(random: Random) -> Record:
    content = data(random)
    return Record(int64(random), req_id(random), int32(random), content, checksum(content))


def batch(random: Random) -> RecordBatch:
    return RecordBatch.of(record(random) for _ in range(random.choice((0, 1, 2, 5))))


def state(random: Random) -> PartitionState:
    session, low, local, last, size = (int64(random) for _ in range(5))
    readable, writable = (random.random() < 0.5 for _ in range(2))
    return PartitionState(int32(random), session, low, local, last, size, readable, writable)


def damaged_range(random: Random) -> DamagedRange:
    return DamagedRange(int32(random), int64(random), int64(random))


def batched_append(random: Random) -> BatchedAppend:
    content = data(random)
    locks = (ints(random), ints(random), ints(random))
    return BatchedAppend(*locks, int32(random), content, checksum(content))


def outcome(random: Random) -> BatchedOutcome:
    return BatchedOutcome(random.choice(list(OutcomeKind)), int64(random))


def answer(random: Random) -> AppendAnswer:
    ids = (int32(random), int32(random), int32(random), int32(random))
    return AppendAnswer(*ids, random.choice(list(OutcomeKind)), int64(random))


def failure(random: Random) -> RpcFailure:
    def frame() -> StackFrame:
        return StackFrame(text(random), text(random), maybe(random, text), int32(random))

    return RpcFailure(maybe(random, text), tuple(frame() for _ in range(random.choice((0, 1, 3)))))


def stored(random: Random) -> StoredBatch:
    """Records in disk form, as storages send them unverified: the reader verifies them."""
    count = random.choice((0, 1, 7))
    return StoredBatch(count, random.randbytes(count * STORED_OVERHEAD_BYTES) + data(random))


def maybe(random: Random, make: Make) -> Any:
    return make(random) if random.random() < 0.7 else None


def _some(make: Make) -> Make:
    return lambda random: tuple(make(random) for _ in range(random.choice((0, 1, 3))))


def _map_of(key: Make) -> Make:
    def make(random: Random) -> Any:
        return {key(random): random.random() < 0.5 for _ in range(random.choice((0, 1, 4)))}

    return make


_BY_TYPE: dict[Any, Make] = {
    ReqId: req_id,
    bool: lambda random: random.random() < 0.5,
    bytes: data,
    str: text,
    str | None: lambda random: maybe(random, text),
    uuid.UUID: lambda random: uuid.UUID(bytes=random.randbytes(16)),
    MountState: lambda random: random.choice(list(MountState)),
    tuple[int, ...]: ints,
    Switch: lambda random: random.choice(list(Switch)),
    tuple[RecordHeader, ...]: _some(header),
    tuple[PartitionState, ...]: _some(state),
    tuple[DamagedRange, ...]: _some(damaged_range),
    tuple[BatchedAppend, ...]: _some(batched_append),
    tuple[BatchedOutcome, ...]: _some(outcome),
    tuple[AppendAnswer, ...]: _some(answer),
    RecordHeader | None: lambda random: maybe(random, header),
    RecordBatch: batch,
    StoredBatch: stored,
    RecordBatch | None: lambda random: maybe(random, lambda r: RecordBatch.of([record(r)])),
    RpcFailure: failure,
    Mapping[str, bool]: _map_of(text),
    Mapping[int, bool]: _map_of(int32),
}


@cache
def message_classes(messages: ModuleType) -> tuple[type, ...]:
    """Return the message classes of a protocol's module."""
    return tuple(m for m in messages.Message.__args__ if isinstance(m, type))


@cache
def _makers(kind: Any) -> dict[str, Make]:
    return {name: _maker(name, hint) for name, hint in get_type_hints(kind).items()}


def _maker(name: str, hint: Any) -> Make:
    if hint is int:
        return int32 if name in _INT_FIELDS else int64
    # ``data`` of a TransactionDataResponse may be None; `message_of` sees to that.
    return _BY_TYPE[bytes if hint == bytes | None else hint]


def message(random: Random, messages: ModuleType) -> Any:
    """Return any message of a protocol, with a right checksum where one is checked.

    Appends come more often: they are the longest, and read by several parsers.
    """
    kinds = message_classes(messages)
    if messages is client_server and random.random() < 0.2:
        kinds = (AppendRequest, AnsweredAppendRequest)
    return message_of(random, random.choice(kinds))


def message_of(random: Random, kind: Any) -> Any:
    """Return a message of one class."""
    values = {name: make(random) for name, make in _makers(kind).items()}
    if kind is TransactionDataResponse:
        found = random.random() < 0.5
        values |= {"error": None} if found else {"data": None, "checksum": 0}
    return _consistent(kind(**values))


def with_field_changed(random: Random, original: Any) -> Any:
    """Return a message with another value in one of its fields, and still a right checksum."""
    kind: Any = type(original)
    makers = _makers(kind)
    name = random.choice(list(makers))
    value = makers[name](random)
    if issubclass(kind, AppendRequest) and name == "data" and random.random() < 0.1:
        return replace(original, data=None)
    if isinstance(original, TransactionDataResponse) and name in ("data", "checksum", "error"):
        return message_of(random, TransactionDataResponse)
    return _consistent(replace(original, **{name: value}))


def _consistent(made: Any) -> Any:
    if isinstance(made, AppendRequest):
        return replace(made, checksum=checksum(made.data))
    return made
