"""Decode appends and batches of appends; the bytes of the records stay encoded. Pure.

An AppendRequest, and each append in a batch, ends with the same bytes as a record (spec/wire.md
sections 2 and 4). These bytes are the *record tail*. The server passes a record tail on unchanged,
from the client's connection to the storages and into the cache. In the functions, ``body`` is the
body of a message, and ``at`` is a position in it.
"""

from __future__ import annotations

import struct

from waltz.protocol import MalformedMessage, ReqId
from waltz.protocol.batches import MAX_BATCH_APPENDS, check_locks
from waltz.protocol.checksums import crc32
from waltz.protocol.client_numbers import APPEND_LOCKS_SINCE, READ_LOCKS_SINCE
from waltz.protocol.records import wrapped
from waltz_server.core.appends.append import Append

# After the message type: client id, generation, partition, sequence number, client's mark. The
# first four of these fields are the request id.
_HEAD = struct.Struct(">iiiiq")
# Where the locks of a single append begin. In a batch, the number of appends is at this position.
_LOCKS_OFFSET = 1 + _HEAD.size
_REQ_ID = struct.Struct(">iiii")
_REQ_ID_PLACE = slice(1, 1 + _REQ_ID.size)
_INT = struct.Struct(">i")
# Offsets in a record tail, which is: header, data length, data, checksum.
_LENGTH_OFFSET = 4
_DATA_OFFSET = 8
_CHECKSUM_BYTES = 4
_TAIL_OVERHEAD_BYTES = _DATA_OFFSET + _CHECKSUM_BYTES
# An append with one write lock and no other, up to its data: the fields of _HEAD, number of write
# locks, the lock, number of read locks, number of append locks, header, data length.
_ONE_WRITE_LOCK = struct.Struct(">iiiiqiiiiii")
# The offsets of the data and of the record tail of such an append in the message body.
_ONE_LOCK_DATA_OFFSET = 1 + _ONE_WRITE_LOCK.size
_ONE_LOCK_TAIL_OFFSET = _ONE_LOCK_DATA_OFFSET - _DATA_OFFSET

Locks = tuple[int, ...]


def decode_append(body: bytes, version: int) -> tuple[int, Append]:
    """Return the partition and the append of a message body; raises MalformedMessage."""
    if version >= APPEND_LOCKS_SINCE and len(body) >= _ONE_LOCK_DATA_OFFSET:
        # Most appends have one write lock and no other, so this form is decoded in one step. The
        # three counts of locks show whether an append has this form. A count before another one
        # decides where that one is, so the values are right only if all three are as expected.
        client, generation, partition, _, mark, num_write, lock, num_read, num_append, _, length = (
            _ONE_WRITE_LOCK.unpack_from(body, 1)
        )
        if num_write == 1 and num_read == 0 and num_append == 0:
            tail = _checked_tail(body, _ONE_LOCK_TAIL_OFFSET, length)
            req_id = body[_REQ_ID_PLACE]
            return partition, Append(client, generation, req_id, tail, mark, (lock,))
    return _decode_any_locks(body, version)


def _decode_any_locks(body: bytes, version: int) -> tuple[int, Append]:
    """Decode an append with any number of locks; see `decode_append`."""
    read_locks: Locks = ()
    append_locks: Locks = ()
    try:
        client, generation, partition, _, mark = _HEAD.unpack_from(body, 1)
        write_locks, at = _decode_locks(body, _LOCKS_OFFSET)
        if version >= READ_LOCKS_SINCE:
            read_locks, at = _decode_locks(body, at)
        if version >= APPEND_LOCKS_SINCE:
            append_locks, at = _decode_locks(body, at)
        check_locks(len(write_locks) + len(read_locks) + len(append_locks))
        (length,) = _INT.unpack_from(body, at + _LENGTH_OFFSET)
    except struct.error:
        raise MalformedMessage("append cut off") from None
    tail = _checked_tail(body, at, length)
    req_id = body[_REQ_ID_PLACE]
    return partition, Append(
        client, generation, req_id, tail, mark, write_locks, read_locks, append_locks
    )


def _checked_tail(body: bytes, at: int, length: int) -> bytes:
    """Return the record tail that begins at ``at`` and ends with ``body``.

    ``length`` is its data length. Raises MalformedMessage if the length or the checksum is wrong.
    """
    if length < 0 or at + _TAIL_OVERHEAD_BYTES + length != len(body):
        raise MalformedMessage(f"append with a data length of {length} does not fit its frame")
    checksum = int.from_bytes(body[-_CHECKSUM_BYTES:], "big")
    if crc32(body[at + _DATA_OFFSET : -_CHECKSUM_BYTES]) != checksum:
        raise MalformedMessage("data does not match its checksum")
    return body[at:]


def decode_batch(body: bytes) -> tuple[ReqId, list[Append]]:
    """Return the request id and the appends of a batch; raises MalformedMessage."""
    try:
        client, generation, partition, first_seq, mark = _HEAD.unpack_from(body, 1)
        (num_appends,) = _INT.unpack_from(body, _LOCKS_OFFSET)
        at = _LOCKS_OFFSET + _INT.size
        if not 0 < num_appends <= MAX_BATCH_APPENDS:
            allowed = f"from 1 to {MAX_BATCH_APPENDS} are allowed"
            raise MalformedMessage(f"a batch of {num_appends} appends: {allowed}")
        appends = []
        num_locks = 0
        for seq in range(first_seq, first_seq + num_appends):
            write_locks, at = _decode_locks(body, at)
            read_locks, at = _decode_locks(body, at)
            append_locks, at = _decode_locks(body, at)
            num_locks += len(write_locks) + len(read_locks) + len(append_locks)
            end = _checked_end_of_tail(body, at)
            req_id = _REQ_ID.pack(client, generation, partition, wrapped(seq))
            tail = body[at:end]
            append = Append(
                client, generation, req_id, tail, mark, write_locks, read_locks, append_locks
            )
            append.batch = body[_REQ_ID_PLACE]
            appends.append(append)
            at = end
    except struct.error:
        raise MalformedMessage("batch cut off") from None
    check_locks(num_locks)
    if at != len(body):
        raise MalformedMessage(f"{len(body) - at} unexpected bytes after a batch")
    return ReqId(client, generation, partition, first_seq), appends


def _checked_end_of_tail(body: bytes, at: int) -> int:
    """Return the position after the record tail that begins at ``at``.

    Raises MalformedMessage if its length or checksum is wrong, struct.error if it has no length.
    """
    length: int = _INT.unpack_from(body, at + _LENGTH_OFFSET)[0]
    end = at + _TAIL_OVERHEAD_BYTES + length
    if length < 0 or end > len(body):
        raise MalformedMessage(f"append with a data length of {length} does not fit its batch")
    data_end = end - _CHECKSUM_BYTES
    if crc32(body[at + _DATA_OFFSET : data_end]) != int.from_bytes(body[data_end:end], "big"):
        raise MalformedMessage("data does not match its checksum")
    return end


def _decode_locks(body: bytes, at: int) -> tuple[Locks, int]:
    """Return the list of locks that begins at ``at``, and the position after that list.

    Raises struct.error if ``body`` ends before the length of the list, MalformedMessage if it ends
    within the list.
    """
    (count,) = _INT.unpack_from(body, at)
    at += _INT.size
    # As in `waltz.protocol.fields`, a negative count stands for null, which means no locks.
    if count <= 0:
        return (), at
    end = at + _INT.size * count
    if end > len(body):
        raise MalformedMessage(f"impossible number of locks: {count} do not fit the message")
    return struct.unpack_from(f">{count}i", body, at), end
