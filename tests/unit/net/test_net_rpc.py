"""Requests get their answers, and pending ones end with the connection."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.failing_decoders import errors_of_event_loop, fails_for
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
from waltz.protocol import (
    ADMIN,
    CLIENT_SERVER,
    STORAGE,
    ProtocolSpec,
    UnsupportedByPeer,
    admin,
    storage,
)
from waltz.protocol.failures import RpcFailure
from waltz.protocol.frames import encode_frame
from waltz.testing import MemoryNetwork, run

CLUSTER = (uuid.UUID(int=1), 4)


class Node(FrameHandler):
    """A storage node that accepts the first request, and keeps all others for the test to answer.

    If it is ``silent``, it keeps the first request, too. If ``refusal`` is set, it refuses the
    first request with this text.
    """

    def __init__(self, messages: Any, *, silent: bool = False) -> None:
        self.messages = messages
        self.silent = silent
        self.losses: list[str] = []
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
                case storage.OpenRequest(session, seq, partition) if not self.silent:
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
        self.losses.append(reason)


@asynccontextmanager
async def node(
    spec: ProtocolSpec = STORAGE, messages: Any = storage
) -> AsyncIterator[tuple[Node, int]]:
    storage_node = Node(messages)
    listener = Listener(spec, lambda: storage_node, PLAINTEXT)
    listener.start("127.0.0.1", 0)
    try:
        yield storage_node, listener.port
    finally:
        await listener.close()


async def test_rpc_answers_in_any_order_reach_their_requests() -> None:
    async with node() as (storage_node, port):
        rpc = await RpcConnection.open_storage(("127.0.0.1", port), PLAINTEXT, CLUSTER)

        def ask(partition: int) -> Coroutine[Any, Any, Any]:
            return rpc.call(
                lambda seq: storage.MaxTransactionIdRequest(1, seq, partition),
                storage.MaxTransactionIdResponse,
            )

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
        call = asyncio.ensure_future(
            rpc.call(lambda seq: storage.RecordRequest(1, seq, 0, 5), storage.RecordResponse)
        )
        await eventually(lambda: storage_node.held)
        storage_node.send(storage.FailureResponse(1, 0, 0, RpcFailure("X: not here")))
        with pytest.raises(RemoteFailure, match="X: not here"):
            await call
        rpc.close()


async def test_rpc_unexpected_answer_is_an_error_that_names_it() -> None:
    async with node() as (storage_node, port):
        rpc = await RpcConnection.open_storage(("127.0.0.1", port), PLAINTEXT, CLUSTER)
        call = asyncio.ensure_future(
            rpc.call(lambda seq: storage.RecordRequest(1, seq, 0, 5), storage.RecordResponse)
        )
        await eventually(lambda: storage_node.held)
        storage_node.send(storage.SuccessResponse(1, 0, 0))
        expected = "the peer answered a RecordRequest with a SuccessResponse"
        with pytest.raises(ConnectionLost, match=expected):
            await call
        await eventually(lambda: storage_node.losses)
        assert rpc.closed


async def test_rpc_open_with_an_unexpected_answer_fails_and_closes_the_connection() -> None:
    async with node() as (storage_node, port):
        storage_node.silent = True
        opening = asyncio.ensure_future(
            RpcConnection.open_storage(("127.0.0.1", port), PLAINTEXT, CLUSTER)
        )
        await eventually(lambda: storage_node.held)
        storage_node.send(storage.MaxTransactionIdResponse(-1, -1, -1, 5))
        expected = "answered its first request with a MaxTransactionIdResponse"
        with pytest.raises(DialFailed, match=expected):
            await opening
        await eventually(lambda: storage_node.losses)


async def test_rpc_pending_calls_fail_with_the_connection() -> None:
    async with node() as (storage_node, port):
        reasons: list[str] = []
        rpc = await RpcConnection.open_storage(
            ("127.0.0.1", port), PLAINTEXT, CLUSTER, reasons.append
        )
        call = asyncio.ensure_future(
            rpc.call(lambda seq: storage.RecordRequest(1, seq, 0, 5), storage.RecordResponse)
        )
        await eventually(lambda: storage_node.held)
        assert storage_node.connection is not None
        storage_node.connection.abort("power cut")
        with pytest.raises(ConnectionLost):
            await call
        assert len(reasons) == 1
        with pytest.raises(ConnectionLost):
            await rpc.call(lambda seq: storage.RecordRequest(1, seq, 0, 5), storage.RecordResponse)


@pytest.mark.parametrize(("spec", "messages"), [(STORAGE, storage), (ADMIN, admin)])
async def test_rpc_decoder_error_closes_only_the_connection(
    spec: ProtocolSpec,
    messages: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    unexpected = errors_of_event_loop()
    async with node(spec, messages) as (storage_node, port):
        address = ("127.0.0.1", port)
        if spec is ADMIN:
            rpc = await RpcConnection.open_admin(address, PLAINTEXT, CLUSTER)
            call: asyncio.Future[Any] = asyncio.ensure_future(
                rpc.call(admin.MetricsRequest, admin.MetricsResponse)
            )
            answer: Any = admin.MetricsResponse(0, "{}")
        else:
            rpc = await RpcConnection.open_storage(address, PLAINTEXT, CLUSTER)
            call = asyncio.ensure_future(
                rpc.call(
                    lambda seq: storage.MaxTransactionIdRequest(1, seq, 0),
                    storage.MaxTransactionIdResponse,
                )
            )
            answer = storage.MaxTransactionIdResponse(1, 0, 0, 7)
        await eventually(lambda: storage_node.held)
        monkeypatch.setattr(messages, "decode", fails_for(messages.decode, type(answer)))
        storage_node.send(answer)
        with pytest.raises(ConnectionLost, match="decoding a message failed: IndexError"):
            await call
        assert rpc.closed
        assert unexpected == []
        assert "IndexError" in caplog.text


async def test_rpc_error_of_a_callback_reaches_the_event_loop() -> None:
    """It shows that an invariant is broken: a server must end."""

    def fail(_: object) -> None:
        raise IndexError("a bug of the server")

    unexpected = errors_of_event_loop()
    async with node() as (storage_node, port):
        rpc = await RpcConnection.open_storage(("127.0.0.1", port), PLAINTEXT, CLUSTER)
        rpc.send_request(storage.MaxTransactionIdRequest(1, rpc.next_seq(), 0), fail)
        await eventually(lambda: storage_node.held)
        storage_node.send(storage.MaxTransactionIdResponse(1, 0, 0, 7))
        await eventually(lambda: unexpected)
        assert isinstance(unexpected[0]["exception"], IndexError)
        rpc.close()


async def test_rpc_open_at_another_cluster_is_refused() -> None:
    """The refused connection is closed: a server tries again and again."""
    async with node() as (storage_node, port):
        storage_node.refusal = "StorageException: wrong key"
        with pytest.raises(RemoteFailure, match="wrong key"):
            await RpcConnection.open_storage(("127.0.0.1", port), PLAINTEXT, CLUSTER)
        await eventually(lambda: storage_node.losses)


def test_rpc_open_without_an_answer_fails_and_closes_the_connection() -> None:
    async def main() -> None:
        storage_node, network = silent_node()
        with pytest.raises(DialFailed, match="did not finish the storage handshake within 10 s"):
            await open_at(network)
        assert asyncio.get_running_loop().time() == pytest.approx(10, abs=1)
        await eventually(lambda: storage_node.losses)

    run(main())


def test_rpc_cancelled_open_closes_the_connection() -> None:
    async def main() -> None:
        storage_node, network = silent_node()
        opening = asyncio.ensure_future(open_at(network))
        await eventually(lambda: storage_node.held)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await eventually(lambda: storage_node.losses)

    run(main())


def silent_node() -> tuple[Node, MemoryNetwork]:
    """Return a node that does not answer the request to open, and its network."""
    storage_node, network = Node(storage, silent=True), MemoryNetwork()
    listener = network.host("storage").listener(STORAGE, lambda: storage_node, PLAINTEXT)
    listener.start(None, 7)
    return storage_node, network


async def open_at(network: MemoryNetwork) -> RpcConnection:
    host = network.host("server")
    return await RpcConnection.open_storage(("storage", 7), PLAINTEXT, CLUSTER, network=host)


async def test_rpc_answer_is_passed_on_once() -> None:
    """Neither a second answer nor the end of the connection ends the request again."""
    async with node() as (storage_node, port):
        rpc = await RpcConnection.open_storage(("127.0.0.1", port), PLAINTEXT, CLUSTER)
        answers: list[Any] = []
        rpc.send_request(storage.MaxTransactionIdRequest(1, rpc.next_seq(), 0), answers.append)
        await eventually(lambda: storage_node.held)
        for transaction_id in (10, 11):
            storage_node.send(storage.MaxTransactionIdResponse(1, 0, 0, transaction_id))
        await eventually(lambda: answers)
        rpc.close()
        await eventually(lambda: storage_node.losses)
        assert answers == [storage.MaxTransactionIdResponse(1, 0, 0, 10)]


async def test_rpc_unsupported_request_is_refused_and_never_answered() -> None:
    async with node(STORAGE.limited_to(0)) as (storage_node, port):
        rpc = await RpcConnection.open_storage(("127.0.0.1", port), PLAINTEXT, CLUSTER)
        answers: list[Any] = []
        with pytest.raises(UnsupportedByPeer):
            rpc.send_request(
                storage.BoundedRecordListRequest(1, rpc.next_seq(), 0, 5, 1, 100), answers.append
            )
        rpc.close()
        await eventually(lambda: storage_node.losses)
        assert answers == []


async def test_rpc_call_on_the_admin_port_is_answered() -> None:
    async with node(ADMIN, admin) as (storage_node, port):
        rpc = await RpcConnection.open_admin(("127.0.0.1", port), PLAINTEXT, CLUSTER)
        call = asyncio.ensure_future(rpc.call(admin.MetricsRequest, admin.MetricsResponse))
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
        async with asyncio.timeout(60):
            with pytest.raises(DialFailed):
                await RpcConnection.open_storage(
                    server.sockets[0].getsockname(), PLAINTEXT, CLUSTER
                )
    finally:
        server.close()
