"""Requests get their answers, and pending ones end with the connection."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.eventually import eventually
from waltz.net import (
    PLAINTEXT,
    ConnectionLost,
    DialFailed,
    FrameConnection,
    FrameHandler,
    Listener,
    RemoteFailure,
    RpcConnection,
)
from waltz.protocol import ADMIN, CLIENT_SERVER, STORAGE, ProtocolSpec, admin, storage
from waltz.protocol.failures import RpcFailure
from waltz.protocol.frames import encode_frame

CLUSTER = (uuid.UUID(int=1), 4)


class Node(FrameHandler):
    """A storage node that opens, and keeps all other requests for the test to answer."""

    def __init__(self, messages: Any) -> None:
        self.messages = messages
        self.connection: FrameConnection | None = None
        self.held: list[Any] = []
        self.refusal: str | None = None

    def ready(self, connection: FrameConnection) -> None:
        self.connection = connection

    def received(self, bodies: list[bytes]) -> None:
        assert self.connection is not None
        for body in bodies:
            request = self.messages.decode(body, self.connection.version)
            match request:
                case storage.OpenRequest(session, seq, partition):
                    self.send(
                        storage.FailureResponse(session, seq, partition, RpcFailure(self.refusal))
                        if self.refusal
                        else storage.SuccessResponse(session, seq, partition)
                    )
                case admin.AdminOpenRequest(seq):
                    self.send(admin.AdminSuccessResponse(seq))
                case _:
                    self.held.append(request)

    def send(self, answer: Any) -> None:
        assert self.connection is not None
        self.connection.send(self.messages.encode(answer, self.connection.version))

    def lost(self, reason: str) -> None:
        pass


@asynccontextmanager
async def node(
    spec: ProtocolSpec = STORAGE, messages: Any = storage
) -> AsyncIterator[tuple[Node, int]]:
    one = Node(messages)
    listener = Listener(spec, lambda: one, PLAINTEXT)
    listener.start("127.0.0.1", 0)
    try:
        yield one, listener.port
    finally:
        await listener.close()


async def test_rpc_answers_in_any_order_reach_their_requests() -> None:
    async with node() as (storage_node, port):
        rpc = await RpcConnection.open_storage(("127.0.0.1", port), PLAINTEXT, CLUSTER)

        def ask(partition: int) -> Coroutine[Any, Any, Any]:
            return rpc.call(lambda seq: storage.MaxTransactionIdRequest(1, seq, partition))

        calls = [asyncio.ensure_future(ask(partition)) for partition in range(3)]
        await eventually(lambda: len(storage_node.held) == 3)
        for request in reversed(storage_node.held):
            storage_node.send(
                storage.MaxTransactionIdResponse(
                    1, request.seq_num, request.partition, request.partition * 10
                )
            )
        assert [(await call).transaction_id for call in calls] == [0, 10, 20]
        assert [request.seq_num for request in storage_node.held] == [0, 1, 2]
        rpc.close()


async def test_rpc_failure_is_raised_with_its_text() -> None:
    async with node() as (storage_node, port):
        rpc = await RpcConnection.open_storage(("127.0.0.1", port), PLAINTEXT, CLUSTER)
        call = asyncio.ensure_future(rpc.call(lambda seq: storage.RecordRequest(1, seq, 0, 5)))
        await eventually(lambda: storage_node.held)
        storage_node.send(storage.FailureResponse(1, 0, 0, RpcFailure("X: not here")))
        with pytest.raises(RemoteFailure, match="X: not here"):
            await call
        rpc.close()


async def test_rpc_pending_calls_fail_with_the_connection() -> None:
    async with node() as (storage_node, port):
        reasons: list[str] = []
        rpc = await RpcConnection.open_storage(
            ("127.0.0.1", port), PLAINTEXT, CLUSTER, reasons.append
        )
        call = asyncio.ensure_future(rpc.call(lambda seq: storage.RecordRequest(1, seq, 0, 5)))
        await eventually(lambda: storage_node.held)
        assert storage_node.connection is not None
        storage_node.connection.abort("power cut")
        with pytest.raises(ConnectionLost):
            await call
        assert len(reasons) == 1
        with pytest.raises(ConnectionLost):
            await rpc.call(lambda seq: storage.RecordRequest(1, seq, 0, 5))


async def test_rpc_open_at_another_cluster_is_refused() -> None:
    async with node() as (storage_node, port):
        storage_node.refusal = "StorageException: wrong key"
        with pytest.raises(RemoteFailure, match="wrong key"):
            await RpcConnection.open_storage(("127.0.0.1", port), PLAINTEXT, CLUSTER)


async def test_rpc_call_on_the_admin_port_is_answered() -> None:
    async with node(ADMIN, admin) as (storage_node, port):
        rpc = await RpcConnection.open_admin(("127.0.0.1", port), PLAINTEXT, CLUSTER)
        call = asyncio.ensure_future(rpc.call(admin.MetricsRequest))
        await eventually(lambda: storage_node.held)
        storage_node.send(admin.MetricsResponse(0, "{}"))
        assert (await call).json == "{}"
        rpc.close()


async def test_rpc_open_at_a_port_of_another_protocol_fails() -> None:
    async with node(CLIENT_SERVER, None) as (_, port):
        with pytest.raises(DialFailed, match="closed the connection"):
            await RpcConnection.open_storage(("127.0.0.1", port), PLAINTEXT, CLUSTER)


async def test_rpc_open_of_a_connection_lost_with_its_hello_fails_at_once() -> None:
    """The Hello and the frame that ends the connection arrive in one chunk."""

    async def send_hello_and_garbage(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STORAGE.hello(dialer=False) + encode_frame(STORAGE.magic, 0, b"\xff"))
        await writer.drain()

    server = await asyncio.start_server(send_hello_and_garbage, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(5):
            with pytest.raises(DialFailed):
                await RpcConnection.open_storage(
                    server.sockets[0].getsockname(), PLAINTEXT, CLUSTER
                )
    finally:
        server.close()
