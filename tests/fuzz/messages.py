"""Fuzz frames, the handshake, messages and record batches of the three protocols."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from random import Random
from typing import Any

from tests.fuzz import values
from tests.fuzz.conversation import change, make_conversation
from tests.fuzz.mutation import mutate, pieces
from tests.fuzz.target import Broken, hold
from waltz.client.core import codec
from waltz.protocol import (
    CLIENT_SERVER,
    FrameDecoder,
    MalformedBatch,
    MalformedMessage,
    ProtocolSpec,
    ProtocolViolation,
    Record,
    RecordBatch,
    UnsupportedByPeer,
    client_server,
)
from waltz.protocol.client_numbers import (
    ANSWERED_APPEND_TYPE,
    APPEND_ANSWERS_SINCE,
    APPEND_BATCH_SINCE,
    APPEND_BATCH_TYPE,
    APPEND_TYPE,
    FEED_DATA_TYPE,
)
from waltz.protocol.frames import HEAD_BYTES, HELLO_MAGIC
from waltz.protocol.records import wrapped
from waltz_server.core.appends.append_codec import (
    decode_append,
    decode_batch,
)

_HEAD = struct.Struct(">bhi")
_COUNT = struct.Struct(">i")
_FRAME_LIMIT = 1 << 16
_STRANGERS = (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")


class Frames:
    """Conversations in chunks of any size: the first byte chooses the protocol, the next the cuts.

    Compared with the frames found by walking over the whole of it.
    """

    name = "frames"
    modules = ("waltz.protocol.frames", "waltz.protocol.fields")

    def make(self, random: Random) -> bytes:
        """Return a whole conversation."""
        choice = random.randrange(len(values.PROTOCOLS))
        spec, messages = values.PROTOCOLS[choice]
        prefix = bytes((choice, random.randrange(256)))
        if random.random() < 0.02:
            return prefix + random.choice(_STRANGERS)
        return prefix + make_conversation(random, spec, messages, requests=False)

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change the conversation, sometimes the protocol or the cuts."""
        if random.random() < 0.1 or len(data) < 2:
            return bytes((random.randrange(3), random.randrange(256))) + data[2:]
        spec, messages = values.PROTOCOLS[data[0] % 3]
        return data[:2] + change(random, spec, messages, data[2:], other[2:])

    def check(self, data: bytes) -> bool:
        """Feed it chunk by chunk."""
        spec, _ = values.PROTOCOLS[data[0] % 3]
        stream = data[2:]
        expected, ending = _walk(spec, stream)
        decoder = FrameDecoder(spec, _FRAME_LIMIT)
        bodies: list[bytes] = []
        try:
            for chunk in pieces(Random(data[1]), stream):
                bodies += decoder.feed(chunk)
        except ProtocolViolation as violation:
            hold(str(violation), "a violation is explained")
            hold(ending == "violation", "a violation depends on the chunks")
            hold(bodies == expected[: len(bodies)], "bodies depend on the chunks")
            return False
        hold(ending != "violation", "a violation was missed")
        hold(bodies == expected, "bodies depend on the chunks")
        hold(decoder.mid_frame == (ending == "cut"), "mid_frame is wrong")
        hold(len(decoder.keep_alive()) == HEAD_BYTES, "a keep-alive is not empty")
        return True


def _walk(spec: ProtocolSpec, stream: bytes) -> tuple[list[bytes], str]:
    """Return the bodies after the handshake, and how the stream ends: whole, cut, violation."""
    version: int | None = None
    bodies: list[bytes] = []
    position = 0
    while len(stream) - position >= HEAD_BYTES:
        magic, frame_version, length = _HEAD.unpack_from(stream, position)
        expected = (HELLO_MAGIC, 0) if version is None else (spec.magic, version)
        if (magic, frame_version) != expected or not 0 <= length <= _FRAME_LIMIT:
            return bodies, "violation"
        body = stream[position + HEAD_BYTES : position + HEAD_BYTES + length]
        if len(body) < length:
            return bodies, "cut"
        if version is not None and body:
            bodies.append(body)
        elif body:
            version = _common_version(spec, body)
            if version is None:
                return bodies, "violation"
        position += HEAD_BYTES + length
    return bodies, "cut" if position < len(stream) else "whole"


def _common_version(spec: ProtocolSpec, hello: bytes) -> int | None:
    if len(hello) < 4:
        return None
    (count,) = _COUNT.unpack_from(hello)
    text_at = 4 + 2 * count
    if count < 0 or text_at + 4 > len(hello):
        return None
    (text_length,) = _COUNT.unpack_from(hello, text_at)
    if text_at + 4 + max(text_length, 0) != len(hello):
        return None
    offered = struct.unpack_from(f">{count}h", hello, 4)
    return max(set(offered) & set(spec.versions), default=None)


class Messages:
    """Message bodies: the first byte chooses the protocol, the second the version."""

    name = "messages"
    modules = (
        "waltz.protocol.fields",
        "waltz.protocol.layout",
        "waltz.protocol.failures",
        "waltz.protocol.client_server",
        "waltz.protocol.storage",
        "waltz.protocol.admin",
        "waltz.client.core.codec",
        "waltz_server.core.appends.append_codec",
    )

    def make(self, random: Random) -> bytes:
        """Return any message of any protocol, at any version that has it."""
        choice = random.randrange(len(values.PROTOCOLS))
        spec, messages = values.PROTOCOLS[choice]
        made = values.message(random, messages)
        while True:
            version = random.choice(spec.versions)
            try:
                body: bytes = messages.encode(made, version)[HEAD_BYTES:]
            except UnsupportedByPeer:
                made = values.message(random, messages)
                continue
            return bytes((choice, spec.versions.index(version))) + body

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change a field, or bytes, or the version by which the bytes are decoded."""
        messages, version = _addressed(data)
        kind = random.random()
        if kind < 0.3:
            try:
                message = messages.decode(data[2:], version)
                changed = values.with_field_changed(random, message)
                return data[:2] + bytes(messages.encode(changed, version)[HEAD_BYTES:])
            except (MalformedMessage, UnsupportedByPeer):
                return data[:2] + mutate(random, data[2:], other[2:])
        if kind < 0.4:
            return bytes((random.randrange(3), random.randrange(7))) + data[2:]
        if kind < 0.45:
            return data[:2] + bytes((random.randrange(32),)) + data[3:]
        return data[:2] + mutate(random, data[2:], other[2:])

    def check(self, data: bytes) -> bool:
        """Decode, encode, decode; the fast codecs must agree."""
        messages, version = _addressed(data)
        body = data[2:]
        decoded = _outcome(lambda: messages.decode(body, version))
        if messages is client_server and body:
            _check_client_codec(body, version, decoded)
            answered = body[0] == ANSWERED_APPEND_TYPE and version >= APPEND_ANSWERS_SINCE
            if body[0] == APPEND_TYPE or answered:
                _check_append_codec(body, version, decoded)
            if body[0] == APPEND_BATCH_TYPE and version >= APPEND_BATCH_SINCE:
                _check_batch_codec(body, decoded)
        if isinstance(decoded, MalformedMessage):
            hold(str(decoded), "a refusal is explained")
            return False
        again = messages.encode(decoded, version)[HEAD_BYTES:]
        hold(messages.decode(again, version) == decoded, "decoding again gives another result")
        hold(messages.encode(decoded, version)[HEAD_BYTES:] == again, "encoding is not stable")
        if messages is client_server:
            _check_other_versions(decoded)
        return True


def _addressed(data: bytes) -> tuple[Any, int]:
    spec, messages = values.PROTOCOLS[data[0] % 3]
    return messages, spec.versions[data[1] % len(spec.versions)]


def _outcome(decode: Callable[[], Any]) -> Any:
    try:
        return decode()
    except MalformedMessage as malformed:
        return malformed


def _check_other_versions(message: Any) -> None:
    """Check that a message encodes for an older version only if it is valid there."""
    for version in CLIENT_SERVER.versions:
        try:
            body = client_server.encode(message, version)[HEAD_BYTES:]
        except UnsupportedByPeer:
            try:
                codec.encode_message(message, version)
            except UnsupportedByPeer:
                continue
            raise Broken(f"the client's codec encodes it for version {version}") from None
        try:
            client_server.decode(body, version)
        except MalformedMessage as malformed:
            raise Broken(f"encoded for version {version}, it is malformed: {malformed}") from None


def _check_client_codec(body: bytes, version: int, decoded: Any) -> None:
    parsed = _outcome(lambda: codec.parse([body], version))
    if isinstance(decoded, MalformedMessage):
        hold(isinstance(parsed, MalformedMessage), "the client's codec accepts a malformed message")
        return
    hold(not isinstance(parsed, MalformedMessage), "the client's codec refuses a valid message")
    if body[0] == FEED_DATA_TYPE:
        r = decoded.req_id
        fed = (r.client_id, r.generation, r.partition, r.seq, decoded.transaction_id)
        run = codec.FeedRun(r.partition, [(*fed, decoded.header)])
        hold(parsed == [run], "the client's codec reads a feed differently")
        two = codec.FeedRun(r.partition, run.records * 2)
        hold(
            codec.parse([body] * 2, version) == [two], "consecutive feed messages are not combined"
        )
    else:
        hold(parsed == [decoded], "the client's codec reads a message differently")
    frames = {f(decoded, version) for f in (codec.encode_message, client_server.encode)}
    hold(len(frames) == 1, "the client's codec writes a message differently")


def _check_append_codec(body: bytes, version: int, decoded: Any) -> None:
    parsed = _outcome(lambda: decode_append(body, version))
    refused = isinstance(decoded, MalformedMessage)
    hold(isinstance(parsed, MalformedMessage) == refused, "the server's append codec disagrees")
    if refused:
        return
    partition, append = parsed
    hold(partition == decoded.req_id.partition, "the server's append codec: partition")
    seen = (
        append.client_id,
        append.generation,
        append.req_id,
        append.client_mark,
        append.write_locks,
        append.read_locks,
        append.append_locks,
    )
    wanted = (
        decoded.req_id.client_id,
        decoded.req_id.generation,
        decoded.req_id.encode(),
        decoded.client_high_water_mark,
        decoded.write_locks,
        decoded.read_locks,
        decoded.append_locks,
    )
    hold(seen == wanted, "the server's append codec reads a field differently")
    wire = (0).to_bytes(8, "big") + append.req_id + append.record_tail
    made, end = RecordBatch.parse(wire, 0, 1, len(wire))
    (record,) = made
    hold(end == len(wire), "the server's append codec: the record does not end with the message")
    seen_record = (record.header, record.data, record.checksum)
    hold(
        seen_record == (decoded.header, decoded.data, decoded.checksum),
        "the server's append codec makes another record",
    )


def _check_batch_codec(body: bytes, decoded: Any) -> None:
    parsed = _outcome(lambda: decode_batch(body))
    refused = isinstance(decoded, MalformedMessage)
    hold(isinstance(parsed, MalformedMessage) == refused, "the server's batch codec disagrees")
    if refused:
        return
    req_id, appends = parsed
    hold(req_id == decoded.req_id, "the server's batch codec: request id")
    hold(len(appends) == len(decoded.appends), "the server's batch codec: number of appends")
    for number, (append, wanted) in enumerate(zip(appends, decoded.appends, strict=True)):
        own = replace(req_id, seq=wrapped(req_id.seq + number))
        hold(append.req_id == own.encode(), "the server's batch codec: an append's request id")
        seen = (append.write_locks, append.read_locks, append.append_locks, append.client_mark)
        locks = (wanted.write_locks, wanted.read_locks, wanted.append_locks)
        hold(seen == (*locks, decoded.client_high_water_mark), "the server's batch codec: locks")
        record = Record(0, own, wanted.header, wanted.data, wanted.checksum).encode()
        hold(record[24:] == append.record_tail, "the server's batch codec makes another record")


class Batches:
    """Records back to back, behind their claimed number."""

    name = "batches"
    modules = ("waltz.protocol.records",)

    def make(self, random: Random) -> bytes:
        """Return a few records."""
        made = values.batch(random)
        return _COUNT.pack(made.count) + made.wire + random.choice((b"", b"rest"))

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change bytes, or only the number."""
        if random.random() < 0.1 or len(data) < 4:
            return _COUNT.pack(values.int32(random)) + data[4:]
        return mutate(random, data, other)

    def check(self, data: bytes) -> bool:
        """Parse, take apart, put together."""
        count = int.from_bytes(data[:4], "big", signed=True)
        try:
            batch, end = RecordBatch.parse(data, 4, count, len(data))
        except MalformedBatch:
            return False
        hold(batch.wire == data[4:end], "a batch has other bytes than it was made of")
        records = list(batch)
        hold(len(records) == count == len(batch), "a batch has another number of records")
        hold(RecordBatch.of(records) == batch, "a batch differs from the batch of its records")
        parts = [(r.transaction_id, r.req_id.encode(), r.encode()[24:]) for r in records]
        hold(parts == list(batch.parts()), "the parts of a batch differ from its records")
        joined = b"".join(
            chain.from_iterable(
                (part[0].to_bytes(8, "big", signed=True), *part[1:]) for part in parts
            )
        )
        hold(joined == batch.wire, "the parts of a batch are not all of it")
        if count:
            hold(batch.first_id() == records[0].transaction_id, "the first id is another")
        return True


def message_targets() -> tuple[Frames, Messages, Batches]:
    """Return the targets of this module."""
    return Frames(), Messages(), Batches()
