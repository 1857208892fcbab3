"""The write-ahead log's format: operations, blocks, the ring, the header, and the end of a log."""

from __future__ import annotations

import struct
import uuid
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz_storage.core.wal.checksums import ALGORITHMS, DEFAULT, Checksum
from waltz_storage.core.wal.operations import (
    Address,
    Check,
    MalformedTransaction,
    Move,
    Operation,
    WriteData,
    Zero,
    decode_operations,
    encode_operations,
)
from waltz_storage.core.wal.ring import BLOCK_BYTES, Ring, TransactionId
from waltz_storage.core.wal.transaction_blocks import (
    HAS_TAIL,
    MAGIC,
    ROOM_BYTES,
    Transaction,
    Unreadable,
    blocks_of,
    encode_transaction,
    read_transaction,
)
from waltz_storage.core.wal.wal_header import (
    HEADER_BLOCKS,
    HeaderDamaged,
    WalHeader,
    decode_wal_header,
)
from waltz_storage.core.wal.wal_scan import LogEnd, WalDamaged, scan_transactions

KEY = uuid.UUID(int=7)
addresses = st.builds(Address, st.integers(0, (1 << 24) - 1), st.integers(0, (1 << 40) - 1))
lengths = st.integers(0, (1 << 32) - 1)
operations = st.one_of(
    st.builds(WriteData, addresses, st.binary(max_size=300)),
    st.builds(WriteData, addresses, st.integers(0, 9000).map(bytes)),
    st.builds(Move, addresses, addresses, lengths),
    st.builds(Zero, addresses, lengths),
    st.builds(Check, addresses, lengths, st.binary(min_size=4, max_size=8)),
)
transactions = st.lists(operations, max_size=8)
algorithms = st.sampled_from(list(ALGORITHMS.values()))


class Log:
    """A small log in memory; ``blocks`` has the blocks of its file."""

    def __init__(self, count: int, checksum: Checksum = DEFAULT) -> None:
        self.header = WalHeader.new(KEY, HEADER_BLOCKS + count, checksum)
        self.blocks = [bytes(BLOCK_BYTES)] * self.header.blocks
        self.following = self.header.checkpoint

    def append(self, content: list[Operation]) -> TransactionId:
        """Write one transaction at the end."""
        begun, ring = self.following, self.header.ring
        raw = encode_transaction(begun, content, self.header.checksum)
        count = len(raw) // BLOCK_BYTES
        assert count <= ring.free(self.header.checkpoint, begun)
        at = 0
        for block, length in ring.pieces(begun.block, count):
            for number in range(block, block + length):
                self.blocks[number] = raw[at : at + BLOCK_BYTES]
                at += BLOCK_BYTES
        self.following = ring.after(begun, count)
        return begun

    def checkpoint(self) -> None:
        """Give up all transactions."""
        self.header = self.header.advanced(self.following)

    def read(self) -> tuple[list[list[Operation]], LogEnd]:
        """Return the operations of all transactions, and the log's end."""
        *found, end = scan_transactions(self.header, self.blocks.__getitem__)
        assert isinstance(end, LogEnd)
        return [list(each.operations) for each in found if isinstance(each, Transaction)], end


def write_of(size: int) -> list[Operation]:
    return [WriteData(Address(1, 0), bytes(size))]


def test_checksums_of_the_common_text_have_the_published_check_values() -> None:
    check = {"CRC-32": 0xCBF43926, "CRC-32C": 0xE3069283, "CRC-64": 0x995DC9BBDF1939FA}
    assert {name: each.compute(b"123456789") for name, each in ALGORITHMS.items()} == check


@given(transactions)
def test_operations_encoded_and_decoded_are_equal(content: list[Operation]) -> None:
    assert list(decode_operations(encode_operations(content))) == content


@given(transactions, st.data())
def test_operations_that_are_cut_off_are_refused_or_shorter(
    content: list[Operation], data: st.DataObject
) -> None:
    raw = encode_operations(content)
    cut = data.draw(st.integers(0, max(0, len(raw) - 1)))
    try:
        found = list(decode_operations(raw[:cut]))
    except MalformedTransaction:
        return
    assert found == content[: len(found)]
    assert len(found) < len(content) or not content


@given(transactions, algorithms, st.integers(0, 5))
def test_transaction_encoded_and_read_is_equal(
    content: list[Operation], checksum: Checksum, sequence: int
) -> None:
    wanted = TransactionId(sequence, 17)
    raw = encode_transaction(wanted, content, checksum)
    count = len(raw) // BLOCK_BYTES
    assert count == blocks_of(content, checksum)
    blocks = [raw[at : at + BLOCK_BYTES] for at in range(0, len(raw), BLOCK_BYTES)]
    found = read_transaction(wanted, blocks.__getitem__, count, checksum)
    assert found == Transaction(wanted, content, count)


@pytest.mark.parametrize("missing", range(1, 10))
def test_tail_that_does_not_fit_a_block_gets_a_block_of_its_own(missing: int) -> None:
    content = write_of(ROOM_BYTES - 16 - 9 + missing)
    raw = encode_transaction(TransactionId(1, 2), content, DEFAULT)
    assert len(raw) == BLOCK_BYTES * (1 if missing == 1 else 2)


def test_bytes_of_the_documented_format_are_read() -> None:
    entry = struct.pack("<QII", (5 << 40) + 1000, 0, 3) + b"abc"
    move = struct.pack("<QIIQ", 6 << 40, 1, 12, (5 << 40) + 8)
    zero = struct.pack("<QII", (5 << 40) + 4, 2, 9)
    check = struct.pack("<QIII", (9 << 40) + 64, 3, 4096, 4) + b"\x01\x02\x03\x04"
    entries = entry + move + zero + check
    tail = struct.pack("<II", 4, crc32(entries))
    wanted = TransactionId(3, 2)
    head = struct.pack("<IHHQ", MAGIC, len(entries + tail), HAS_TAIL, (3 << 32) + 2)
    block = (head + entries + tail).ljust(BLOCK_BYTES, b"\0")
    assert read_transaction(wanted, lambda _: block, 1, DEFAULT) == Transaction(
        wanted,
        [
            WriteData(Address(5, 1000), b"abc"),
            Move(Address(6, 0), Address(5, 8), 12),
            Zero(Address(5, 4), 9),
            Check(Address(9, 64), 4096, b"\x01\x02\x03\x04"),
        ],
        1,
    )


@given(st.data())
def test_transaction_with_a_changed_byte_is_invalid_or_equal(data: st.DataObject) -> None:
    """A byte after the transaction's end may change: it is no part of it."""
    content = data.draw(transactions)
    wanted = TransactionId(1, 2)
    raw = bytearray(encode_transaction(wanted, content, DEFAULT))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    blocks = [bytes(raw[n : n + BLOCK_BYTES]) for n in range(0, len(raw), BLOCK_BYTES)]
    found = read_transaction(wanted, blocks.__getitem__, len(blocks), DEFAULT)
    assert isinstance(found, Unreadable) or found.operations == content


@given(st.integers(2, 9), st.lists(st.integers(0, 9), max_size=40))
def test_ring_ids_grow_and_show_the_position(count: int, lengths: list[int]) -> None:
    ring = Ring(2, count)
    total, position = 0, ring.start
    for length in lengths:
        step = min(length, count)
        following = ring.after(position, step)
        assert ring.distance(position, following) == step
        assert (following > position) is (step > 0)
        assert TransactionId.of(following.value) == following
        extents = ring.pieces(position.block, step)
        assert sum(size for _, size in extents) == step
        total, position = total + step, following
    assert position == TransactionId(1 + total // count, 2 + total % count)


def test_each_transaction_is_read_back_while_the_log_wraps_many_times() -> None:
    log = Log(7)
    for number in range(400):
        size = number * 977 % (3 * ROOM_BYTES)
        log.append(write_of(size))
        found, end = log.read()
        assert found == [write_of(size)]
        assert end == LogEnd(log.following, torn=False)
        log.checkpoint()
    assert log.following.sequence > 80


@given(st.lists(st.integers(0, 2 * ROOM_BYTES), min_size=1, max_size=5), st.integers(0, 40))
def test_log_whose_last_write_is_torn_ends_before_it(sizes: list[int], turned: int) -> None:
    log = Log(24)
    for _ in range(turned):
        log.append(write_of(100))
        log.checkpoint()
    for size in sizes:
        log.append(write_of(size))
    whole, _ = log.read()
    last = log.append(write_of(2 * ROOM_BYTES))
    ring = log.header.ring
    for lost in range(3):
        log.blocks[ring.after(last, lost).block] = bytes(BLOCK_BYTES)
        found, end = log.read()
        assert found == whole
        assert end.following == last


def test_log_without_a_free_block_does_not_end_with_a_torn_transaction() -> None:
    log = Log(9)
    for _ in range(8):
        log.append(write_of(100))
    found, end = log.read()
    assert len(found) == 8
    assert end == LogEnd(log.following, torn=False)


def test_damage_in_any_block_before_the_last_transaction_is_reported() -> None:
    for damaged in range(5):
        log = Log(12)
        ids = [log.append(write_of(size)) for size in (10, 2 * ROOM_BYTES, 10, 10)]
        before = log.blocks[HEADER_BLOCKS + damaged]
        for raw in (bytes(BLOCK_BYTES), before[:20] + bytes((before[20] ^ 1,)) + before[21:]):
            log.blocks[HEADER_BLOCKS + damaged] = raw
            with pytest.raises(WalDamaged) as found:
                log.read()
            assert found.value.id == max(each for each in ids if each.block <= 2 + damaged)


@given(st.integers(1, 30), algorithms)
def test_header_is_read_from_the_block_that_is_newer(updates: int, checksum: Checksum) -> None:
    header = WalHeader.new(KEY, 64, checksum)
    blocks = [bytes(BLOCK_BYTES)] * HEADER_BLOCKS
    blocks[header.slot] = header.encode()
    for _ in range(updates):
        older = header
        header = header.advanced(header.ring.after(header.checkpoint, 5))
        blocks[header.slot] = header.encode()
        assert decode_wal_header(*blocks) == header
        torn = list(blocks)
        torn[header.slot] = header.encode()[:30].ljust(BLOCK_BYTES, b"\0")
        assert decode_wal_header(*torn) == older


def test_header_without_a_valid_block_is_refused() -> None:
    with pytest.raises(HeaderDamaged, match="no header of a write-ahead log"):
        decode_wal_header(bytes(BLOCK_BYTES), bytes(BLOCK_BYTES))
