"""Recent transactions of one partition as ready-made feed frames, bounded in bytes. Pure.

A FeedData message is the same for every client and every protocol version but for the version
field, so a committed batch is turned into frames once and then only sliced and joined.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from waltz.protocol import RecordHeader
from waltz.protocol.client_numbers import FEED_DATA_TYPE
from waltz.protocol.frames import CLIENT_SERVER

_BODY_BYTES = 1 + 16 + 8 + 4
_CACHED_VERSION = 5
_PREFIX = struct.pack(">bhib", CLIENT_SERVER.magic, _CACHED_VERSION, _BODY_BYTES, FEED_DATA_TYPE)
_ID = struct.Struct(">q")
FRAME_BYTES = len(_PREFIX) + _BODY_BYTES - 1
_VERSION_OFFSET = 2
_REQ_ID_BYTES = 16
_ID_BYTES = 8
HEADER_BYTES = 28
"""Of a RecordHeader: the fields of a FeedData in another order."""

BLOCK_TRANSACTIONS = 64


def feed_frames(first_id: int, entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the frames of consecutive transactions: (request id, header) pairs, both encoded."""
    pack = _ID.pack
    return b"".join(
        [
            part
            for i, (req_id, header) in enumerate(entries, first_id)
            for part in (_PREFIX, req_id, pack(i), header)
        ]
    )


def frames_of_headers(headers: Sequence[RecordHeader]) -> bytes:
    """Return the frames of consecutive record headers."""
    pairs = [(h.req_id.encode(), struct.pack(">i", h.header)) for h in headers]
    return feed_frames(headers[0].transaction_id, pairs) if headers else b""


def in_version(frames: bytes, version: int) -> bytes:
    """Return cached frames in the protocol version of a connection."""
    if version == _CACHED_VERSION:
        return frames
    other = bytearray(frames)
    other[_VERSION_OFFSET::FRAME_BYTES] = bytes((version,)) * (len(frames) // FRAME_BYTES)
    return bytes(other)


def headers_of_frames(frames: bytes) -> bytes:
    """Return cached frames as consecutive RecordHeaders: bytes are moved column by column."""
    headers = bytearray(len(frames) // FRAME_BYTES * HEADER_BYTES)
    req_id = len(_PREFIX)
    transaction_id = req_id + _REQ_ID_BYTES
    moved = (
        *range(transaction_id, transaction_id + _ID_BYTES),
        *range(req_id, transaction_id),
        *range(transaction_id + _ID_BYTES, FRAME_BYTES),
    )
    for column, source in enumerate(moved):
        headers[column::HEADER_BYTES] = frames[source::FRAME_BYTES]
    return bytes(headers)


class FeedCache:
    """Blocks of 64 transactions; the block used least recently is dropped first."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_blocks = max(2, capacity_bytes // (BLOCK_TRANSACTIONS * FRAME_BYTES))
        self._blocks: OrderedDict[int, bytearray] = OrderedDict()

    def put(self, first_id: int, frames: bytes) -> None:
        """Remember frames of consecutive transactions.

        A block always holds a run that begins with its first id: frames that would leave a gap
        in it are not kept.
        """
        position, end = 0, len(frames)
        while position < end:
            transaction = first_id + position // FRAME_BYTES
            number, within = divmod(transaction, BLOCK_TRANSACTIONS)
            take = min(end - position, (BLOCK_TRANSACTIONS - within) * FRAME_BYTES)
            block = self._blocks.get(number)
            if block is None and within == 0:
                block = self._blocks[number] = bytearray()
                if len(self._blocks) > self.capacity_blocks:
                    self._blocks.popitem(last=False)
            if block is not None and len(block) >= within * FRAME_BYTES:
                start = within * FRAME_BYTES
                block[start : start + take] = frames[position : position + take]
            position += take

    def get(self, first_id: int, count: int) -> bytes:
        """Return the frames of up to ``count`` transactions from ``first_id`` on, b"" on a miss."""
        parts = []
        while count > 0:
            number, within = divmod(first_id, BLOCK_TRANSACTIONS)
            block = self._blocks.get(number)
            if block is None:
                break
            take = min(count, BLOCK_TRANSACTIONS - within)
            part = bytes(block[within * FRAME_BYTES : (within + take) * FRAME_BYTES])
            if not part:
                break
            self._blocks.move_to_end(number)
            parts.append(part)
            got = len(part) // FRAME_BYTES
            first_id += got
            count -= got
            if got < take:
                break
        return b"".join(parts)
