"""Cache recent transactions of one partition as complete feed frames, bounded in bytes. Pure.

A *frame* is one encoded FeedData message: the request id, id and header of one transaction. It is
the same for all clients, and for all protocol versions except for its version field. So a committed
batch is encoded once, and serving a feed only slices and joins frames. `feed_delivery` serves feeds
from the cache, and `range_reads` serves requests for headers.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from waltz.protocol import RecordHeader
from waltz.protocol.client_numbers import FEED_DATA_TYPE
from waltz.protocol.frames import CLIENT_SERVER

_BODY_BYTES = 1 + 16 + 8 + 4  # message type, request id, transaction id, header
_CACHED_VERSION = 7  # the newest version: then the frames for most clients need no conversion
_PREFIX = struct.pack(">bhib", CLIENT_SERVER.magic, _CACHED_VERSION, _BODY_BYTES, FEED_DATA_TYPE)
_ID = struct.Struct(">q")
FRAME_BYTES = len(_PREFIX) + _BODY_BYTES - 1  # the prefix includes the message type
_VERSION_OFFSET = 2  # the low byte of the version; the high byte is 0 in all versions
_REQ_ID_BYTES = 16
_ID_BYTES = 8
RECORD_HEADER_BYTES = 28
"""Size of an encoded RecordHeader, which has the fields of FeedData in another order."""

BLOCK_TRANSACTIONS = 64
"""Transactions in one block of the cache. Block ``n`` begins with transaction 64 × ``n``."""


def feed_frames(first_id: int, entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the frames of consecutive transactions; an entry is (request id, header), encoded."""
    pack = _ID.pack
    parts: list[bytes] = []
    for transaction_id, (req_id, header) in enumerate(entries, first_id):
        parts += (_PREFIX, req_id, pack(transaction_id), header)
    return b"".join(parts)


def frames_of_headers(headers: Sequence[RecordHeader]) -> bytes:
    """Return the frames of the transactions of consecutive record headers."""
    pairs = [(h.req_id.encode(), struct.pack(">i", h.header)) for h in headers]
    return feed_frames(headers[0].transaction_id, pairs) if headers else b""


def in_version(frames: bytes, version: int) -> bytes:
    """Return ``frames`` with ``version`` in their version fields."""
    if version == _CACHED_VERSION:
        return frames
    converted = bytearray(frames)
    converted[_VERSION_OFFSET::FRAME_BYTES] = bytes((version,)) * (len(frames) // FRAME_BYTES)
    return bytes(converted)


def headers_of_frames(frames: bytes) -> bytes:
    """Return ``frames`` converted to encoded RecordHeaders.

    Frames and RecordHeaders have fixed sizes. So one slice copies byte n of all headers at once,
    from the position that this byte has in each frame. This is faster than frame by frame.
    """
    headers = bytearray(len(frames) // FRAME_BYTES * RECORD_HEADER_BYTES)
    req_id = len(_PREFIX)
    transaction_id = req_id + _REQ_ID_BYTES
    # A frame's positions in the order of a RecordHeader's fields: id, request id, header.
    positions = (
        *range(transaction_id, transaction_id + _ID_BYTES),
        *range(req_id, transaction_id),
        *range(transaction_id + _ID_BYTES, FRAME_BYTES),
    )
    for n, position in enumerate(positions):
        headers[n::RECORD_HEADER_BYTES] = frames[position::FRAME_BYTES]
    return bytes(headers)


class FeedCache:
    """Blocks of `BLOCK_TRANSACTIONS`; the block used least recently is dropped first.

    A block has no gap: it holds transactions from its first id on.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_blocks = max(2, capacity_bytes // (BLOCK_TRANSACTIONS * FRAME_BYTES))
        self._blocks: OrderedDict[int, bytearray] = OrderedDict()

    def put(self, first_id: int, frames: bytes) -> None:
        """Keep the frames of consecutive transactions from ``first_id`` on.

        Frames that would leave a gap in their block are not kept.
        """
        position, end = 0, len(frames)
        while position < end:
            transaction = first_id + position // FRAME_BYTES
            number, index_in_block = divmod(transaction, BLOCK_TRANSACTIONS)
            size = min(end - position, (BLOCK_TRANSACTIONS - index_in_block) * FRAME_BYTES)
            block = self._blocks.get(number)
            if block is None and index_in_block == 0:  # A block begins with its first transaction.
                block = self._blocks[number] = bytearray()
                if len(self._blocks) > self.capacity_blocks:
                    self._blocks.popitem(last=False)
            elif block is not None:
                self._blocks.move_to_end(number)
            start = index_in_block * FRAME_BYTES
            if block is not None and len(block) >= start:
                block[start : start + size] = frames[position : position + size]
            position += size

    def first_uncached_in_block(self, transaction_id: int) -> int:
        """Return the first transaction in the block of ``transaction_id`` that is not cached.

        If the whole block is cached, this is the first transaction of the next block.
        """
        number = transaction_id // BLOCK_TRANSACTIONS
        block = self._blocks.get(number, b"")
        return number * BLOCK_TRANSACTIONS + len(block) // FRAME_BYTES

    def get(self, first_id: int, count: int) -> bytes:
        """Return the frames of at most ``count`` transactions from ``first_id`` on.

        The frames end before the first transaction that is not cached.
        """
        parts = []
        while count > 0:
            number, index_in_block = divmod(first_id, BLOCK_TRANSACTIONS)
            block = self._blocks.get(number)
            if block is None:
                break
            wanted = min(count, BLOCK_TRANSACTIONS - index_in_block)
            start = index_in_block * FRAME_BYTES
            part = bytes(block[start : start + wanted * FRAME_BYTES])
            if not part:
                break
            self._blocks.move_to_end(number)
            parts.append(part)
            got = len(part) // FRAME_BYTES
            first_id += got
            count -= got
            if got < wanted:
                break
        return b"".join(parts)
