"""Decode and encode the frequent messages faster than `waltz.protocol.client_server` does. Pure.

The client receives thousands of FeedData messages per second. It sends thousands of appends, and of
requests for the data of a transaction. This module encodes and decodes these three without the
general tables of `client_server`; the bytes are the same. Adjacent FeedData messages become one
list of tuples. All other messages are passed to `client_server`. Source: spec/wire.md section 4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from waltz.protocol.client_numbers import (
    ANSWERED_APPEND_TYPE,
    APPEND_ANSWERS_SINCE,
    APPEND_LOCKS_SINCE,
    APPEND_TYPE,
    FEED_DATA_TYPE,
    READ_LOCKS_SINCE,
    TRANSACTION_DATA_REQUEST_TYPE,
)
from waltz.protocol.client_server import (
    AnsweredAppendRequest,
    AppendRequest,
    Message,
    TransactionDataRequest,
    decode,
    encode,
)
from waltz.protocol.fields import MalformedMessage
from waltz.protocol.frames import CLIENT_SERVER, HEAD_BYTES

FeedRecord = tuple[int, int, int, int, int, int]
"""A fed transaction: client id, generation, partition, sequence number, transaction id, header.

It is a plain tuple for speed."""


class FeedRun(NamedTuple):
    """Transactions of one partition whose FeedData messages were adjacent."""

    partition: int
    records: list[FeedRecord]


FEED_PARTITION = 2
"""The index of the partition in a `FeedRecord`."""

FEED_TRANSACTION_ID = 4
"""The index of the transaction id in a `FeedRecord`."""

_FEED_BODY = struct.Struct(">biiiiqi")
"""The message type, and the fields of a `FeedRecord`."""

_APPEND_HEAD = struct.Struct(">bhibiiiiq")
"""The head of a frame, the message type, the request id, and the append's mark.

The head of a frame has `HEAD_BYTES`: magic byte, version, and the number of bytes that follow."""

_DATA_REQUEST = struct.Struct(">bhibiiiiq")
"""The head of a frame, the message type, the request id, and the transaction id."""

_INT = struct.Struct(">i")
"""A number of 32 bits: the header, the length of the data, their checksum."""


def parse(bodies: Iterable[bytes], version: int) -> list[FeedRun | Message]:
    """Return the messages of ``bodies`` in order; ``version`` is that of the connection.

    Adjacent FeedData messages of one partition become one `FeedRun`. Raises MalformedMessage.
    """
    parsed: list[FeedRun | Message] = []
    run: FeedRun | None = None
    unpack = _FEED_BODY.unpack
    for body in bodies:
        if body[0] != FEED_DATA_TYPE:
            parsed.append(decode(body, version))
            run = None
            continue
        try:
            _, client, generation, partition, seq, transaction_id, header = unpack(body)
        except struct.error:
            raise MalformedMessage(f"FeedData of {len(body)} bytes") from None
        if run is None or partition != run.partition:
            run = FeedRun(partition, [])
            parsed.append(run)
        run.records.append((client, generation, partition, seq, transaction_id, header))
    return parsed


def encode_message(message: Message, version: int) -> bytes:
    """Return the whole frame of ``message``; raises UnsupportedByPeer."""
    if isinstance(message, AppendRequest):
        return _encode_append(message, version)
    if isinstance(message, TransactionDataRequest):
        req_id = message.req_id
        return _DATA_REQUEST.pack(
            CLIENT_SERVER.magic,
            version,
            _DATA_REQUEST.size - HEAD_BYTES,
            TRANSACTION_DATA_REQUEST_TYPE,
            req_id.client_id,
            req_id.generation,
            req_id.partition,
            req_id.seq,
            message.transaction_id,
        )
    return encode(message, version)


def _encode_append(message: AppendRequest, version: int) -> bytes:
    """Return the frame of an append, with the kinds of locks that ``version`` has."""
    message_type = APPEND_TYPE
    if isinstance(message, AnsweredAppendRequest):
        if version < APPEND_ANSWERS_SINCE:
            return encode(message, version)  # raises UnsupportedByPeer
        message_type = ANSWERED_APPEND_TYPE
    if (message.append_locks and version < APPEND_LOCKS_SINCE) or (
        message.read_locks and version < READ_LOCKS_SINCE
    ):
        return encode(message, version)  # raises UnsupportedByPeer
    lock_lists = [_ints(message.write_locks)]
    if version >= READ_LOCKS_SINCE:
        lock_lists.append(_ints(message.read_locks))
    if version >= APPEND_LOCKS_SINCE:
        lock_lists.append(_ints(message.append_locks))
    before_data = b"".join((*lock_lists, _INT.pack(message.header), _INT.pack(len(message.data))))
    req_id = message.req_id
    head = _APPEND_HEAD.pack(
        CLIENT_SERVER.magic,
        version,
        _APPEND_HEAD.size - HEAD_BYTES + len(before_data) + len(message.data) + _INT.size,
        message_type,
        req_id.client_id,
        req_id.generation,
        req_id.partition,
        req_id.seq,
        message.client_high_water_mark,
    )
    return b"".join((head, before_data, message.data, _INT.pack(message.checksum)))


def _ints(values: tuple[int, ...]) -> bytes:
    """Return the encoded list: the number of ``values``, then the values, each in 32 bits."""
    if not values:
        return b"\0\0\0\0"
    return struct.pack(f">i{len(values)}i", len(values), *values)
