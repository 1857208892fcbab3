"""Build the data that one side of a connection sends: a Hello, then plausible messages.

A conversation is the bytes of its frames. It can be changed frame by frame, or as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields, replace
from random import Random
from typing import Any

from tests.fuzz import values
from tests.fuzz.mutation import extreme, mutate
from waltz.protocol import (
    CLIENT_SERVER,
    FrameDecoder,
    MalformedMessage,
    ProtocolSpec,
    ProtocolViolation,
    RecordBatch,
    ReqId,
    UnsupportedByPeer,
    client_server,
)
from waltz.protocol.frames import HEAD_BYTES, HELLO_MAGIC, encode_frame, encode_hello
from waltz.protocol.storage import StoredRecordListResponse

_PREFERENCES = (
    client_server.AddPreferredPartitionRequest,
    client_server.RemovePreferredPartitionRequest,
)
_HEAD = struct.Struct(">bhi")
_PARTITIONS = 3
_MOST_MESSAGES = 12


def make_conversation(
    random: Random, spec: ProtocolSpec, messages: Any, *, requests: bool
) -> bytes:
    """Return a conversation; with ``requests``, mostly messages that the dialing side may send."""
    offered = tuple(sorted({*random.sample(spec.versions, 1), max(spec.versions)}))
    version = max(offered) if random.random() < 0.7 else random.choice(spec.versions)
    frames = [encode_hello((version,) if version != max(offered) else offered, spec.dialer_hello)]
    kinds = values.message_classes(messages)
    if requests and random.random() < 0.9:
        kinds = tuple(kind for kind in kinds if is_request(kind))
    session, client = random.randrange(1, 50), random.randrange(1, 5)
    for seq in range(random.randrange(_MOST_MESSAGES)):
        made = values.message_of(random, random.choice(kinds))
        if random.random() < 0.85:
            made = _sensible(random, made, session, client, seq)
        try:
            frames.append(messages.encode(made, version))
        except UnsupportedByPeer:
            continue
    return b"".join(frames)


def is_request(kind: type) -> bool:
    """Return whether the dialing side may send messages of this class."""
    return kind.__name__.endswith("Request")


def change(random: Random, spec: ProtocolSpec, messages: Any, stream: bytes, other: bytes) -> bytes:
    """Return a changed conversation."""
    if random.random() < 0.4:
        return mutate(random, stream, other)
    frames = split(stream)
    if not frames:
        return other
    at = random.randrange(len(frames))
    match random.choice(("drop", "repeat", "swap", "insert", "body", "body", "head", "field")):
        case "drop":
            del frames[at]
        case "repeat":
            frames[at:at] = [frames[at]] * random.choice((1, 1, 20))
        case "swap":
            there = random.randrange(len(frames))
            frames[at], frames[there] = frames[there], frames[at]
        case "insert":
            frames[at:at] = random.sample(split(other), min(2, len(split(other))))
        case "body":
            frames[at] = _with_body(frames[at], mutate(random, frames[at][HEAD_BYTES:], other))
        case "head":
            frames[at] = mutate(random, frames[at][:HEAD_BYTES], b"H\0\0LSA") + frames[at][7:]
        case _:
            frames[at] = _field_changed(random, messages, frames[at])
    return b"".join(frames)


def split(stream: bytes) -> list[bytes]:
    """Return the frames of a conversation; an incomplete frame is the last one."""
    frames, position = [], 0
    while position < len(stream):
        end = len(stream)
        if position + HEAD_BYTES <= len(stream):
            length = _HEAD.unpack_from(stream, position)[2]
            if 0 <= length <= end - position - HEAD_BYTES:
                end = position + HEAD_BYTES + length
        frames.append(stream[position:end])
        position = end
    return frames


def expected_violation(spec: ProtocolSpec, messages: Any, stream: bytes) -> str | None:
    """Return why a listener must close a connection that sends this, None if it need not.

    An incomplete frame at the end counts: the listener must log it.
    """
    decoder = FrameDecoder(spec)
    try:
        for body in decoder.feed(stream):
            assert decoder.version is not None
            message = messages.decode(body, decoder.version)
            if spec is CLIENT_SERVER and not is_request(type(message)):
                return "an answer as a request"
            if isinstance(message, _PREFERENCES) and not message.partitions:
                return "a preference without partitions"
    except (ProtocolViolation, MalformedMessage) as error:
        return str(error)
    return "cut off" if decoder.mid_frame else None


def _with_body(frame: bytes, body: bytes) -> bytes:
    if len(frame) < HEAD_BYTES:
        return frame + body
    magic, version, _ = _HEAD.unpack_from(frame)
    return encode_frame(magic, version, body)


def _field_changed(random: Random, messages: Any, frame: bytes) -> bytes:
    """Change one field and encode again; a Hello gets other versions."""
    if len(frame) < HEAD_BYTES:
        return frame
    magic, version, _ = _HEAD.unpack_from(frame)
    if magic == HELLO_MAGIC:
        offered = tuple(extreme(random, 2) - (1 << 15) for _ in range(random.randrange(4)))
        return encode_hello((*offered, *random.choice(((), (0,), (4,)))), values.text(random))
    try:
        message = messages.decode(frame[HEAD_BYTES:], version)
        encoded: bytes = messages.encode(values.with_field_changed(random, message), version)
    except (MalformedMessage, UnsupportedByPeer):
        return frame
    return encoded


def _sensible(random: Random, made: Any, session: int, client: int, seq: int) -> Any:
    """Give a message the ids of its conversation, and marks that a short log may have."""
    partition = random.randrange(_PARTITIONS)
    small: dict[str, Callable[[], Any]] = {
        "req_id": lambda: ReqId(client, random.randrange(3), 0, seq),
        "session_id": lambda: session,
        "seq_num": lambda: seq,
        "partition": lambda: partition,
        "partitions": lambda: tuple(random.sample(range(_PARTITIONS), random.randrange(1, 4))),
        "transaction_id": lambda: random.randrange(-1, 30),
        "client_high_water_mark": lambda: random.randrange(-1, 10),
        "low_water_mark": lambda: random.randrange(-1, 60),
        "first_id": lambda: random.randrange(30),
        "max_records": lambda: random.randrange(40),
        "records": lambda: _consecutive(random, random.randrange(-1, 12)),
    }
    if isinstance(made, StoredRecordListResponse | client_server.StoredRecordsResponse):
        del small["records"]
    known = {f.name: small[f.name]() for f in fields(made) if f.name in small}
    return replace(made, **known)


def _consecutive(random: Random, first_id: int) -> RecordBatch:
    count = random.randrange(4)
    return RecordBatch.of(
        replace(values.record(random), transaction_id=first_id + n) for n in range(count)
    )
