"""The client's fast encoding makes the same bytes as the plain encoding of the protocol."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.client.core.codec import FeedRun, encode_message, parse
from waltz.protocol import MalformedMessage, ReqId, UnsupportedByPeer, checksum, client_server
from waltz.protocol.client_server import (
    AppendRequest,
    FeedData,
    FeedSuspended,
    TransactionDataRequest,
)

_INTS = st.integers(-(2**31), 2**31 - 1)
_LONGS = st.integers(-(2**63), 2**63 - 1)
_REQ_IDS = st.builds(ReqId, _INTS, _INTS, _INTS, _INTS)
_LOCKS = st.lists(_INTS, max_size=4).map(tuple)
_VERSIONS = st.sampled_from((0, 1, 2, 3, 4))


@given(
    _REQ_IDS, _LONGS, st.tuples(_LOCKS, _LOCKS, _LOCKS), _INTS, st.binary(max_size=50), _VERSIONS
)
def test_fast_append_encoding_equals_the_plain_encoding(
    req_id: ReqId,
    mark: int,
    locks: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    header: int,
    data: bytes,
    version: int,
) -> None:
    request = AppendRequest(req_id, mark, *locks, header, data, checksum(data))
    try:
        expected = client_server.encode(request, version)
    except UnsupportedByPeer:
        with pytest.raises(UnsupportedByPeer):
            encode_message(request, version)
    else:
        assert encode_message(request, version) == expected


@given(_REQ_IDS, _LONGS, _VERSIONS)
def test_fast_data_request_encoding_equals_the_plain_encoding(
    req_id: ReqId, wanted: int, version: int
) -> None:
    request = TransactionDataRequest(req_id, wanted)
    assert encode_message(request, version) == client_server.encode(request, version)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), _LONGS, _INTS), max_size=20), _VERSIONS)
def test_feed_runs_keep_the_order_of_messages(
    steps: list[tuple[int, bool, int, int]], version: int
) -> None:
    messages: list[FeedData | FeedSuspended] = []
    for partition, suspended, transaction_id, header in steps:
        req_id = ReqId(1, 2, partition, 3)
        messages.append(
            FeedSuspended(req_id) if suspended else FeedData(req_id, transaction_id, header)
        )
    bodies = [client_server.encode(message, version)[7:] for message in messages]
    found: list[FeedData | FeedSuspended] = []
    for item in parse(bodies, version):
        if isinstance(item, FeedRun):
            assert item.records
            assert {record[2] for record in item.records} == {item.partition}
            for client, generation, partition, seq, transaction_id, header in item.records:
                req_id = ReqId(client, generation, partition, seq)
                found.append(FeedData(req_id, transaction_id, header))
        else:
            assert isinstance(item, FeedSuspended)
            found.append(item)
    assert found == messages
    runs = [item for item in parse(bodies, version) if isinstance(item, FeedRun)]
    assert len(runs) <= len(messages)


def test_adjacent_feed_messages_of_a_partition_are_one_run() -> None:
    body = client_server.encode(FeedData(ReqId(1, 2, 3, 4), 5, 6), 4)[7:]
    [run] = parse([body] * 10, 4)
    assert isinstance(run, FeedRun)
    assert len(run.records) == 10


@pytest.mark.parametrize("length", [1, 28, 30])
def test_malformed_feed_message_is_refused(length: int) -> None:
    with pytest.raises(MalformedMessage):
        parse([b"\x04" + bytes(length - 1)], 4)
