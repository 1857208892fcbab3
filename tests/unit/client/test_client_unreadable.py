"""Test what a client does with data that its serializer cannot read."""

from __future__ import annotations

import pytest

from tests.support.client_cluster import ClientCluster, connected
from tests.support.virtual_time import on_virtual_time
from waltz import DataUnreadable, JsonSerializer
from waltz.client.core.deserializing import Unreadable

JSON = JsonSerializer()
DATA = (b"1", b"no", b"2", b"\xff", b"3")
"""The data of a log: no JSON are those of transactions 1 and 3."""
BOTH_KINDS_OF_SERVERS = pytest.mark.parametrize("versions", [None, (0,)])
"""Servers with ranges; servers of 0.13.2, from which a stream reads each transaction by itself."""


async def streamed(
    versions: tuple[int, ...] | None, policy: Unreadable
) -> tuple[list[tuple[int, object]], DataUnreadable | None]:
    """Return the ids and values that a stream of `DATA` yields, and the error that ends it."""
    found: list[tuple[int, object]] = []
    async with ClientCluster(versions=versions) as cluster:
        async with cluster.connect() as writer:
            for data in DATA:
                await writer.append(0, data)
        async with cluster.connect(serializer=JSON, unreadable=policy) as client:
            try:
                async for each in client.stream(0, until=len(DATA) - 1, data=True):
                    found.append((each.id, each.data))
            except DataUnreadable as error:
                return found, error
    return found, None


@BOTH_KINDS_OF_SERVERS
@on_virtual_time
async def test_stream_of_unreadable_data_raises_an_error_with_their_place(
    versions: tuple[int, ...] | None,
) -> None:
    found, error = await streamed(versions, "raise")
    assert found == [(0, 1)]
    assert error is not None
    assert (error.partition, error.transaction_id, error.data) == (0, 1, b"no")
    assert "the 2 bytes of transaction 1 of partition 0 (JSONDecodeError: " in str(error)


@BOTH_KINDS_OF_SERVERS
@on_virtual_time
async def test_stream_skips_unreadable_data(versions: tuple[int, ...] | None) -> None:
    assert await streamed(versions, "skip") == ([(0, 1), (2, 2), (4, 3)], None)


@BOTH_KINDS_OF_SERVERS
@on_virtual_time
async def test_stream_hands_over_unreadable_data(versions: tuple[int, ...] | None) -> None:
    raw = [(0, 1), (1, b"no"), (2, 2), (3, b"\xff"), (4, 3)]
    assert await streamed(versions, "raw") == (raw, None)


@on_virtual_time
async def test_stream_that_skips_everything_ends() -> None:
    async with connected(versions=(0,)) as (cluster, writer):
        for _ in range(3):
            await writer.append(0, b"no")
        async with cluster.connect(serializer=JSON, unreadable="skip") as client:
            assert [each async for each in client.stream(0, until=2, data=True)] == []


@on_virtual_time
@pytest.mark.parametrize("policy", ["raise", "skip"])
async def test_read_of_unreadable_data_is_an_error(policy: Unreadable) -> None:
    async with connected() as (cluster, writer):
        await writer.append(0, b"no")
        async with cluster.connect(serializer=JSON, unreadable=policy) as client:
            text = r"transaction 0 of partition 0 \(JSONDecodeError: "
            with pytest.raises(DataUnreadable, match=text) as caught:
                await client.read(0, 0)
            assert isinstance(caught.value.__cause__, ValueError)


@on_virtual_time
async def test_read_of_unreadable_data_hands_over_bytes() -> None:
    async with connected() as (cluster, writer):
        await writer.append(0, b"no")
        async with cluster.connect(serializer=JSON, unreadable="raw") as client:
            assert await client.read(0, 0) == b"no"
