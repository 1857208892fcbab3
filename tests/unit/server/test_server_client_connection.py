"""Test connections of clients over sockets: requests, answers, and separate failures."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from tests.support.eventually import eventually
from tests.support.fake_storage import FakeStorage
from tests.support.server_host import (
    HERE,
    PARTITIONS,
    Client,
    Host,
    connect,
    mount,
    new_append,
    req_id,
    serving,
)
from waltz.protocol import CLIENT_SERVER, checksum
from waltz.protocol import client_server as cs


@pytest.fixture
async def storage() -> AsyncIterator[FakeStorage]:
    storage = FakeStorage()
    storage.start()
    yield storage
    await storage.stop()


@pytest.fixture
async def host(storage: FakeStorage) -> AsyncIterator[Host]:
    async with serving(storage) as host:
        yield host


@pytest.fixture
async def client(host: Host) -> AsyncIterator[Client]:
    client = await connect(host, 4)
    yield client
    assert client.connection is not None
    client.connection.close()


@pytest.mark.parametrize("version", range(6))
async def test_append_feed_and_read_work_in_every_version(host: Host, version: int) -> None:
    client = await connect(host, version)
    await mount(client)
    client.send_messages(cs.FeedRequest(req_id(), -1))
    client.send_messages(new_append("first", 1), new_append("second", 2))
    assert await client.take(2) == [
        cs.FeedData(req_id(1), 0, 5),
        cs.FeedData(req_id(2), 1, 5),
    ]
    client.send_messages(
        cs.TransactionDataRequest(req_id(3), 1), cs.HighWaterMarkRequest(req_id(4))
    )
    assert await client.take(2) == [
        cs.TransactionDataResponse(req_id(3), 1, b"second", checksum(b"second")),
        cs.HighWaterMarkResponse(req_id(4), 1),
    ]
    client.connection.close()  # type: ignore[union-attr]


async def test_appends_and_a_flush_in_one_chunk_keep_their_order(
    client: Client, storage: FakeStorage
) -> None:
    await mount(client)
    await mount(client, 1)
    client.send_messages(
        new_append("a", 1),
        new_append("b", 2, partition=1),
        cs.FlushRequest(req_id(3)),
        new_append("c", 4),
        cs.FlushRequest(req_id(5, partition=1)),
    )
    answers = await client.take(2)
    assert {m.req_id.seq: m.transaction_id >= 0 for m in answers} == {3: True, 5: True}
    await eventually(lambda: storage.partitions[0].texts == ["a", "c"])
    assert storage.partitions[1].texts == ["b"]


async def test_append_with_a_taken_lock_gets_lock_failure(client: Client) -> None:
    await mount(client)
    client.send_messages(new_append("a", 1, locks=(7,)), cs.FlushRequest(req_id(2)))
    await client.take()
    client.send_messages(new_append("b", 3, locks=(7,)))
    assert await client.take() == [cs.LockFailure(req_id(3), 0)]


async def test_requests_to_a_partition_not_on_this_server_are_refused(client: Client) -> None:
    there = 2
    client.send_messages(
        new_append("lost", 1, there),
        cs.FeedRequest(req_id(2, there), -1),
        cs.FlushRequest(req_id(3, there)),
        cs.HighWaterMarkRequest(req_id(4, there)),
        cs.MountRequest(req_id(5, there), -1, 0),
        cs.TransactionDataRequest(req_id(6, there), 0),
    )
    assert await client.take(2) == [
        cs.MountResponse(req_id(5, there), cs.MountState.NOT_READY),
        cs.TransactionDataResponse(req_id(6, there), 0, None, error="partition not ready"),
    ]
    assert client.messages == []


async def test_requests_about_the_server_are_answered(client: Client, storage: FakeStorage) -> None:
    await mount(client)
    await mount(client, 1)
    client.send_messages(
        cs.ServerPartitionsAssignmentRequest(req_id(1)),
        cs.ServerPartitionsHealthStatRequest(req_id(2)),
        cs.CheckStorageConnectivityRequest(req_id(3)),
    )
    assert await client.take(3) == [
        cs.ServerPartitionsAssignmentResponse(req_id(1), HERE),
        cs.ServerPartitionsHealthStatResponse(req_id(2), dict.fromkeys(HERE, True)),
        cs.CheckStorageConnectivityResponse(req_id(3), {storage.name: True, "127.0.0.1:1": False}),
    ]


async def test_preferred_partitions_are_changed_by_request(client: Client, host: Host) -> None:
    add, remove = cs.AddPreferredPartitionRequest, cs.RemovePreferredPartitionRequest
    added, removed = cs.AddPreferredPartitionResponse, cs.RemovePreferredPartitionResponse
    client.send_messages(add(req_id(1), (0, 2)))
    assert await client.take() == [added(req_id(1), True)]
    client.send_messages(remove(req_id(2), (0,)))
    assert await client.take() == [removed(req_id(2), True)]
    assert host.preferred == {2}
    client.send_messages(add(req_id(3), (0, PARTITIONS)), remove(req_id(4), (-1,)))
    assert await client.take(2) == [added(req_id(3), False), removed(req_id(4), False)]
    assert host.preferred == {2}
    host.policy_error = "two servers prefer 0"
    client.send_messages(add(req_id(5), (0,)))
    assert await client.take() == [added(req_id(5), True)]
    client.send_messages(add(req_id(6), ()))
    await eventually(lambda: client.lost_because is not None)


async def test_closed_connection_releases_its_client_id(host: Host, client: Client) -> None:
    client.send_messages(cs.MountRequest(req_id(), -1, 9))
    await client.take()
    client.connection.close()  # type: ignore[union-attr]
    await eventually(lambda: not host.connections)
    other = await connect(host)
    await mount(other)
    other.connection.close()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x63", id="unknown type"),
        pytest.param(b"\x02\x00\x00", id="half an append"),
        pytest.param(cs.encode(cs.FeedSuspended(req_id()), 4)[7:], id="a message for clients"),
        pytest.param(cs.encode(new_append("x"), 4)[7:-1] + b"?", id="a wrong checksum"),
    ],
)
async def test_malformed_message_closes_only_its_own_connection(
    host: Host, client: Client, body: bytes
) -> None:
    bad = await connect(host)
    assert bad.connection is not None
    bad.connection.send(cs.frame(body, 4))
    await eventually(lambda: bad.lost_because is not None)
    await eventually(lambda: len(host.connections) == 1)
    await mount(client)


@pytest.mark.parametrize("decoder", ["cs.decode", "decode_append"])
async def test_decoder_error_closes_only_its_own_connection(
    host: Host,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    decoder: str,
) -> None:
    other = await connect(host, 4)
    await mount(other)
    await mount(client, number=2)

    def fail(*_: object) -> None:
        raise IndexError("beyond the end")

    # In a server, an exception that reaches the event loop ends the process.
    unexpected: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unexpected.append(context))

    with monkeypatch.context() as broken:
        broken.setattr(f"waltz_server.shell.client_connection.{decoder}", fail)
        client.send_messages(new_append("a", 1), cs.HighWaterMarkRequest(req_id(2)))
        await eventually(lambda: client.lost_because is not None)
    assert unexpected == []
    assert "IndexError" in caplog.text
    await mount(other, 1)
    assert other.connection is not None
    other.connection.close()


async def test_feed_request_beyond_the_log_closes_the_connection(client: Client) -> None:
    await mount(client)
    client.send_messages(cs.FeedRequest(req_id(), 7))
    await eventually(lambda: client.lost_because is not None)


async def test_client_that_does_not_read_does_not_delay_others(host: Host, client: Client) -> None:
    await mount(client)
    text = "x" * 100_000
    client.send_messages(*(new_append(text, seq) for seq in range(50)), cs.FlushRequest(req_id(99)))
    await client.take()
    slow = socket.create_connection(("127.0.0.1", host.listener.port))
    slow.setblocking(False)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(slow, CLIENT_SERVER.limited_to(4).hello(True))
    wanted = [cs.TransactionDataRequest(req_id(n, client=2), n % 50) for n in range(500)]
    await loop.sock_sendall(slow, b"".join(cs.encode(m, 4) for m in wanted))
    await eventually(lambda: any(c.congested for c in host.connections.values()))
    client.send_messages(new_append("quick", 100), cs.FlushRequest(req_id(101)))
    assert await client.take() == [cs.FlushResponse(req_id(101), 50)]
    slow.close()


async def test_latency_is_measured_from_arrival_to_commit(host: Host, client: Client) -> None:
    await mount(client)
    client.send_messages(*(new_append("x", seq) for seq in range(10)), cs.FlushRequest(req_id(99)))
    await client.take()
    latency = host.hosted[0].latency
    assert latency.count == 10
    shown = latency.ordered()
    assert 0 < shown[0] <= shown[-1] < 10
