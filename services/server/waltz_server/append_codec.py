"""Reads AppendRequests into what the server moves on, without taking the record apart. Pure.

The end of an AppendRequest is the end of a record (wire.md sections 2 and 4), so it is kept as
bytes from the client's connection to the storages' and into the cache.
"""

from __future__ import annotations

import struct
from zlib import crc32

from waltz.protocol import MalformedMessage
from waltz_server.effects import Append

APPEND_TYPE = 2

# request id, client high-water mark, number of write locks
_HEAD = struct.Struct(">iiiiqi")
_COUNT = struct.Struct(">i")
_REST_OVERHEAD_BYTES = 12  # header, data length, checksum
_READ_LOCKS_SINCE = 1
_APPEND_LOCKS_SINCE = 2

Locks = tuple[int, ...]


def decode_append(body: bytes, version: int) -> tuple[int, Append]:
    """Return the partition and the append of a message body; raises MalformedMessage."""
    try:
        client, generation, partition, _, mark, count = _HEAD.unpack_from(body, 1)
        write, at = _locks(body, 1 + _HEAD.size, count)
        read: Locks = ()
        append: Locks = ()
        if version >= _READ_LOCKS_SINCE:
            read, at = _locks(body, at + 4, _COUNT.unpack_from(body, at)[0])
        if version >= _APPEND_LOCKS_SINCE:
            append, at = _locks(body, at + 4, _COUNT.unpack_from(body, at)[0])
        (length,) = _COUNT.unpack_from(body, at + 4)
    except struct.error:
        raise MalformedMessage("append cut off") from None
    if length < 0 or at + _REST_OVERHEAD_BYTES + length != len(body):
        raise MalformedMessage(f"append with a data length of {length} does not fit its frame")
    if crc32(memoryview(body)[at + 8 : -4]) != int.from_bytes(body[-4:], "big"):
        raise MalformedMessage("data does not match its checksum")
    return partition, Append(client, generation, body[1:17], body[at:], mark, write, read, append)


def _locks(body: bytes, at: int, count: int) -> tuple[Locks, int]:
    if count <= 0:
        return (), at
    if at + 4 * count > len(body):
        raise MalformedMessage(f"impossible number of locks: {count}")
    return struct.unpack_from(f">{count}i", body, at), at + 4 * count
