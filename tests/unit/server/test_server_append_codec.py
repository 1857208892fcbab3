"""Test that the server's append codec agrees with the reference codec on all messages."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.protocol import MalformedMessage, Record, ReqId, checksum
from waltz.protocol import client_server as cs
from waltz.protocol.batches import MAX_LOCKS, BatchedAppend
from waltz.protocol.client_numbers import APPEND_BATCH_TYPE, APPEND_TYPE
from waltz.protocol.frames import HEAD_BYTES
from waltz_server.core.appends.append import Append
from waltz_server.core.appends.append_codec import (
    decode_append,
    decode_batch,
)

_INTS = st.integers(-(2**31), 2**31 - 1)
_LOCKS = st.lists(_INTS, max_size=4).map(tuple)
_VERSIONS = st.integers(0, 5)
_REQUESTS = st.builds(
    lambda req_id, mark, write, read, lock_only, header, data: cs.AppendRequest(
        req_id, mark, write, read, lock_only, header, data, checksum(data)
    ),
    st.builds(ReqId, _INTS, _INTS, _INTS, _INTS),
    st.integers(-(2**63), 2**63 - 1),
    _LOCKS,
    _LOCKS,
    _LOCKS,
    _INTS,
    st.binary(max_size=50),
)


def body_of(request: cs.AppendRequest, version: int) -> bytes:
    if version < 2:
        request = replace(request, append_locks=())
    if version < 1:
        request = replace(request, read_locks=())
    return cs.encode(request, version)[HEAD_BYTES:]


def long_way(body: bytes, version: int) -> tuple[int, Append] | None:
    """The result of the general decoder for ``body``, None if it refuses ``body``."""
    try:
        m = cs.decode(body, version)
    except MalformedMessage:
        return None
    assert isinstance(m, cs.AppendRequest)
    tail = Record(0, m.req_id, m.header, m.data, m.checksum).encode()[24:]
    locks = (m.write_locks, m.read_locks, m.append_locks)
    return m.req_id.partition, Append(
        m.req_id.client_id,
        m.req_id.generation,
        m.req_id.encode(),
        tail,
        m.client_high_water_mark,
        *locks,
    )


def short_way(body: bytes, version: int) -> tuple[int, Append] | None:
    try:
        return decode_append(body, version)
    except MalformedMessage:
        return None


def shown(found: tuple[int, Append] | None) -> object:
    if found is None:
        return None
    partition, a = found
    head = (a.client_id, a.generation, a.req_id, a.record_tail, a.client_mark)
    return partition, *head, a.write_locks, a.read_locks, a.append_locks


def test_append_type_constant_equals_the_encoded_type() -> None:
    body = body_of(cs.AppendRequest(ReqId(1, 1, 0, 0), 0, (), (), (), 0, b"", 0), 4)
    assert body[0] == APPEND_TYPE


@given(_REQUESTS, _VERSIONS)
def test_any_append_decodes_as_by_the_reference_codec(
    request: cs.AppendRequest, version: int
) -> None:
    body = body_of(request, version)
    found = short_way(body, version)
    assert found is not None
    assert shown(found) == shown(long_way(body, version))


@given(_REQUESTS, _VERSIONS, st.data())
@settings(max_examples=300)
def test_damaged_append_is_refused_as_by_the_reference_codec(
    request: cs.AppendRequest, version: int, data: st.DataObject
) -> None:
    raw = damaged(body_of(request, version), data)
    assert shown(short_way(raw, version)) == shown(long_way(raw, version))


def damaged(original: bytes, data: st.DataObject) -> bytes:
    """Return a damaged body of the same type."""
    body = bytearray(original)
    match data.draw(st.sampled_from(("cut", "more", "byte", "int"))):
        case "cut":
            del body[data.draw(st.integers(1, len(body) - 1)) :]
        case "more":
            body += data.draw(st.binary(min_size=1, max_size=8))
        case "byte":
            at = data.draw(st.integers(1, len(body) - 1))
            body[at] = data.draw(st.integers(0, 255))
        case "int":
            at = data.draw(st.integers(1, len(body) - 4))
            body[at : at + 4] = struct.pack(
                ">i", data.draw(st.sampled_from((-(2**31), -2, -1, 0, 1, 7, 2**31 - 1)))
            )
    return bytes(body)


@given(_REQUESTS, _VERSIONS, _VERSIONS)
def test_append_of_another_version_decodes_as_by_the_reference_codec(
    request: cs.AppendRequest, written: int, read: int
) -> None:
    body = body_of(request, written)
    assert shown(short_way(body, read)) == shown(long_way(body, read))


_BATCHED = st.builds(
    lambda write, read, lock_only, header, data: BatchedAppend(
        write, read, lock_only, header, data, checksum(data)
    ),
    _LOCKS,
    _LOCKS,
    _LOCKS,
    _INTS,
    st.binary(max_size=30),
)
_BATCHES = st.builds(
    cs.AppendBatchRequest,
    st.builds(ReqId, _INTS, _INTS, _INTS, st.integers(-(2**31), 2**31 - 10)),
    st.integers(-(2**63), 2**63 - 1),
    st.lists(_BATCHED, min_size=1, max_size=5).map(tuple),
)


def batch_the_long_way(body: bytes) -> list[object] | None:
    """The result of the general decoder for a batch, None if it refuses the batch."""
    try:
        m = cs.decode(body, 5)
    except MalformedMessage:
        return None
    assert isinstance(m, cs.AppendBatchRequest)
    if m.req_id.seq + len(m.appends) > 2**31:
        return None
    singles = [
        cs.AppendRequest(
            replace(m.req_id, seq=m.req_id.seq + i),
            m.client_high_water_mark,
            *(a.write_locks, a.read_locks, a.append_locks),
            *(a.header, a.data, a.checksum),
        )
        for i, a in enumerate(m.appends)
    ]
    return [shown(long_way(body_of(single, 5), 5)) for single in singles]


def batch_the_short_way(body: bytes) -> list[object] | None:
    try:
        req_id, appends = decode_batch(body)
    except MalformedMessage:
        return None
    return [shown((req_id.partition, each)) for each in appends]


def body_of_batch(request: cs.AppendBatchRequest) -> bytes:
    body = cs.encode(request, 5)[HEAD_BYTES:]
    assert body[0] == APPEND_BATCH_TYPE
    return body


@given(_BATCHES)
def test_any_batch_decodes_as_by_the_reference_codec(request: cs.AppendBatchRequest) -> None:
    body = body_of_batch(request)
    assert decode_batch(body)[0] == request.req_id
    assert batch_the_short_way(body) == batch_the_long_way(body)


@given(_BATCHES, st.data())
@settings(max_examples=300)
def test_damaged_batch_is_refused_as_by_the_reference_codec(
    request: cs.AppendBatchRequest, data: st.DataObject
) -> None:
    raw = damaged(body_of_batch(request), data)
    assert batch_the_short_way(raw) == batch_the_long_way(raw)


def test_sequence_numbers_of_a_batch_wrap_around() -> None:
    empty = BatchedAppend((), (), (), 0, b"", 0)
    body = body_of_batch(cs.AppendBatchRequest(ReqId(1, 1, 0, 2**31 - 1), 0, (empty, empty)))
    seqs = [ReqId.decode(append.req_id).seq for append in decode_batch(body)[1]]
    assert seqs == [2**31 - 1, -(2**31)]


def test_too_many_locks_are_refused() -> None:
    many = BatchedAppend((1,) * MAX_LOCKS, (), (), 0, b"", 0)
    one = BatchedAppend((1,), (), (), 0, b"", 0)
    decode_batch(body_of_batch(cs.AppendBatchRequest(ReqId(1, 1, 0, 0), 0, (many,))))
    with pytest.raises(MalformedMessage, match="locks in one request"):
        decode_batch(body_of_batch(cs.AppendBatchRequest(ReqId(1, 1, 0, 0), 0, (many, one))))
    single = cs.AppendRequest(ReqId(1, 1, 0, 0), 0, (1,) * MAX_LOCKS, (), (2,), 0, b"", 0)
    with pytest.raises(MalformedMessage, match="locks in one request"):
        decode_append(body_of(single, 4), 4)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda b: b[:10], "cut off"),
        (lambda b: b + b"x", "does not fit"),
        (lambda b: b[:-5] + b"?" + b[-4:], "checksum"),
        (lambda b: b[:25] + b"\x7f\xff\xff\xff" + b[29:], "impossible number of locks"),
    ],
)
def test_malformed_append_is_refused_with_its_reason(damage: object, reason: str) -> None:
    request = cs.AppendRequest(ReqId(1, 1, 0, 0), 0, (1, 2), (), (), 0, b"data", checksum(b"data"))
    assert callable(damage)
    with pytest.raises(MalformedMessage, match=reason):
        decode_append(damage(body_of(request, 4)), 4)
