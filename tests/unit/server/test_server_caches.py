"""Test that caches return the stored data or nothing, and stay within their bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.protocol import RecordHeader, ReqId
from waltz.protocol import client_server as cs
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.core.reads.feed_cache import (
    BLOCK_TRANSACTIONS,
    FRAME_BYTES,
    FeedCache,
    feed_frames,
    frames_of_headers,
    in_version,
)


def header(transaction_id: int, writer: int = 0) -> RecordHeader:
    return RecordHeader(transaction_id, ReqId(writer, 2, 3, transaction_id), transaction_id * 7)


def frames(first: int, count: int, writer: int = 0) -> bytes:
    return frames_of_headers([header(i, writer) for i in range(first, first + count)])


def in_blocks(cache: FeedCache) -> int:
    return len(cache._blocks)


def test_feed_frames_equal_those_of_the_codec() -> None:
    feed = [cs.FeedData(h.req_id, h.transaction_id, h.header) for h in map(header, range(9, 13))]
    assert frames(9, 4) == b"".join(cs.encode(m, 7) for m in feed)
    assert len(frames(9, 4)) == 4 * FRAME_BYTES
    assert frames_of_headers([]) == feed_frames(0, []) == b""


@pytest.mark.parametrize("version", range(8))
def test_cached_frames_convert_to_any_version(version: int) -> None:
    feed = [cs.FeedData(h.req_id, h.transaction_id, h.header) for h in map(header, range(3))]
    assert in_version(frames(0, 3), version) == b"".join(cs.encode(m, version) for m in feed)
    assert in_version(b"", version) == b""


_FIRST = st.integers(0, 6 * BLOCK_TRANSACTIONS)
_COUNT = st.integers(1, 2 * BLOCK_TRANSACTIONS + 3)
_OPERATIONS = st.lists(
    st.tuples(st.sampled_from(("put", "get")), _FIRST, _COUNT, st.integers(1, 3)), max_size=40
)


@given(_OPERATIONS, st.integers(0, 6 * BLOCK_TRANSACTIONS * FRAME_BYTES))
def test_feed_cache_returns_the_latest_frames_put(
    operations: list[tuple[str, int, int, int]], capacity: int
) -> None:
    cache, model = FeedCache(capacity), dict[int, bytes]()
    for what, first, count, writer in operations:
        if what == "put":
            put = frames(first, count, writer)
            cache.put(first, put)
            for i in range(count):
                model[first + i] = put[i * FRAME_BYTES : (i + 1) * FRAME_BYTES]
        else:
            found = cache.get(first, count)
            got = len(found) // FRAME_BYTES
            assert len(found) == got * FRAME_BYTES <= count * FRAME_BYTES
            assert found == b"".join(model[first + i] for i in range(got))
        assert in_blocks(cache) <= cache.capacity_blocks


@given(st.lists(st.integers(1, 150), min_size=1, max_size=20))
def test_feed_cache_with_room_keeps_every_transaction_of_a_log(batches: list[int]) -> None:
    total = sum(batches)
    cache, first = FeedCache((total + BLOCK_TRANSACTIONS) * FRAME_BYTES), 0
    for count in batches:
        cache.put(first, frames(first, count))
        first += count
    assert cache.get(0, total + 10) == frames(0, total)


def test_feed_cache_never_bridges_a_gap() -> None:
    cache = FeedCache(1 << 20)
    cache.put(0, frames(0, 10))
    cache.put(20, frames(20, 10))
    assert cache.get(0, 100) == frames(0, 10)
    assert cache.get(20, 10) == b""
    cache.put(5, frames(5, 20))
    assert cache.get(0, 100) == frames(0, 25)


def test_feed_cache_drops_the_least_recently_used_block() -> None:
    cache = FeedCache(3 * BLOCK_TRANSACTIONS * FRAME_BYTES)
    for block in range(3):
        cache.put(block * BLOCK_TRANSACTIONS, frames(block * BLOCK_TRANSACTIONS, 64))
    assert cache.get(0, 1)
    cache.put(3 * BLOCK_TRANSACTIONS, frames(3 * BLOCK_TRANSACTIONS, 64))
    assert cache.get(0, 1)
    assert not cache.get(BLOCK_TRANSACTIONS, 1)


def test_feed_cache_keeps_the_block_that_is_written() -> None:
    cache = FeedCache(2 * BLOCK_TRANSACTIONS * FRAME_BYTES)
    cache.put(0, frames(0, 10))
    cache.put(BLOCK_TRANSACTIONS, frames(BLOCK_TRANSACTIONS, 64))
    cache.put(10, frames(10, 10))
    cache.put(2 * BLOCK_TRANSACTIONS, frames(2 * BLOCK_TRANSACTIONS, 64))
    assert cache.get(0, 100) == frames(0, 20)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 900)), max_size=60),
    st.integers(0, 5000),
)
def test_data_cache_stays_bounded_and_correct(
    puts: list[tuple[int, int, int]], capacity: int
) -> None:
    cache, model = DataCache(capacity), dict[tuple[int, int], bytes]()
    for number, (partition, transaction_id, size) in enumerate(puts):
        data = bytes([number % 256]) * size
        cache.put(partition, transaction_id, data)
        if size <= capacity // 4 - 200:
            model[partition, transaction_id] = data
            assert cache.get(partition, transaction_id) == data, "the latest is there"
        assert 0 <= cache.used_bytes <= capacity
        for (p, t), expected in model.items():
            assert cache.get(p, t) in (None, expected)
    kept = [cache.get(p, t) for p, t in model]
    assert cache.used_bytes == sum(len(data) + 200 for data in kept if data is not None)


def test_data_cache_drops_the_oldest_entry_first() -> None:
    cache = DataCache(4 * 300)
    for transaction_id in range(100):
        cache.put(0, transaction_id, b"x" * 100)
        assert cache.used_bytes <= 4 * 300
    assert [t for t in range(100) if cache.get(0, t)] == [96, 97, 98, 99]


def test_data_cache_entry_put_again_becomes_the_newest() -> None:
    cache = DataCache(1200)
    for transaction_id in range(5):
        cache.put(0, transaction_id, b"")
    cache.put(0, 0, b"x" * 100)
    cache.put(0, 5, b"x" * 100)
    assert cache.get(0, 0) == b"x" * 100
    assert cache.get(0, 1) is None


def test_data_cache_ignores_entries_that_are_too_large() -> None:
    cache = DataCache(4000)
    cache.put(0, 1, b"x" * 100)
    cache.put(0, 2, b"y" * 900)
    assert cache.get(0, 1) == b"x" * 100
    assert cache.get(0, 2) is None
