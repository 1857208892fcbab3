"""Test that requests to a server take no late answer, and fail after the connection is lost."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.failing_decoders import errors_of_event_loop, fails_for
from waltz.admin import ServerQuery, ServerUnreachable
from waltz.admin.server_query import RequestRefused
from waltz.net import PLAINTEXT, ConnectionLost, FrameConnection, FrameHandler, Listener
from waltz.protocol import CLIENT_SERVER
from waltz.protocol import client_server as messages
from waltz.protocol.records import ReqId


class LateServer(FrameHandler):
    """Delays its answer to the first request until the second request has arrived."""

    def __init__(self) -> None:
        self.requests: list[messages.HighWaterMarkRequest] = []
        self._connection: FrameConnection | None = None

    def ready(self, connection: FrameConnection) -> None:
        self._connection = connection

    def received(self, bodies: list[bytes]) -> None:
        assert self._connection is not None
        for body in bodies:
            request = messages.decode(body, self._connection.version)
            assert isinstance(request, messages.HighWaterMarkRequest)
            self.requests.append(request)
        if len(self.requests) > 1:
            for request in self.requests:
                answer = messages.HighWaterMarkResponse(
                    request.req_id, 10 * request.req_id.partition
                )
                self._connection.send(messages.encode(answer, self._connection.version))

    def lost(self, reason: str) -> None:
        pass


async def test_late_answer_is_not_matched_to_next_request() -> None:
    server = LateServer()
    listener = Listener(CLIENT_SERVER, lambda: server, PLAINTEXT)
    listener.start("127.0.0.1", 0)
    try:
        async with await ServerQuery.open(("127.0.0.1", listener.port), PLAINTEXT) as query:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await query.high_water_marks([1])
            assert await query.high_water_marks([2]) == {2: 20}
    finally:
        await listener.close()


async def test_marks_of_all_partitions_are_requested_together() -> None:
    server = LateServer()
    listener = Listener(CLIENT_SERVER, lambda: server, PLAINTEXT)
    listener.start("127.0.0.1", 0)
    try:
        async with await ServerQuery.open(("127.0.0.1", listener.port), PLAINTEXT) as query:
            # The server answers the first request when it has the second one.
            assert await query.high_water_marks([3, 1]) == {3: 30, 1: 10}
            assert await query.high_water_marks([]) == {}
    finally:
        await listener.close()


async def test_server_with_ipv6_address_is_named_as_in_zookeeper() -> None:
    # `waltz doctor` looks for the address of the server descriptor in this text.
    with pytest.raises(ServerUnreachable, match=r"^server \[::1\]:1: "):
        await ServerQuery.open(("::1", 1), PLAINTEXT)


class ClosingServer(LateServer):
    """Closes the connection at the first request."""

    def received(self, bodies: list[bytes]) -> None:
        assert self._connection is not None
        self._connection.close()


async def test_every_request_after_the_connection_is_lost_fails_at_once() -> None:
    listener = Listener(CLIENT_SERVER, ClosingServer, PLAINTEXT)
    listener.start("127.0.0.1", 0)
    try:
        async with (
            asyncio.timeout(60),
            await ServerQuery.open(
                ("127.0.0.1", listener.port), PLAINTEXT, timeout_seconds=100
            ) as query,
        ):
            for _ in range(3):
                with pytest.raises(ServerUnreachable, match="closed by the peer") as failure:
                    await query.high_water_marks([0])
                # By the cause, `Monitor` knows that it must open another connection.
                assert isinstance(failure.value.__cause__, ConnectionLost)
    finally:
        await listener.close()


class DenyingServer(LateServer):
    """Denies every request."""

    def received(self, bodies: list[bytes]) -> None:
        assert self._connection is not None
        for body in bodies:
            request = messages.decode(body, self._connection.version)
            denial = messages.RequestDenied(request.req_id, "no right to read")
            self._connection.send(messages.encode(denial, self._connection.version))


async def query_denying_server_fails(
    reason: str, error: type[ServerUnreachable] = ServerUnreachable
) -> None:
    """Ask a DenyingServer for a mark; the query must fail with ``error`` and ``reason``."""
    listener = Listener(CLIENT_SERVER, DenyingServer, PLAINTEXT)
    listener.start("127.0.0.1", 0)
    try:
        async with await ServerQuery.open(("127.0.0.1", listener.port), PLAINTEXT) as query:
            with pytest.raises(error, match=reason):
                await query.high_water_marks([0])
    finally:
        await listener.close()


async def test_denied_request_fails_with_the_reason() -> None:
    await query_denying_server_fails("refused the request: no right to read", RequestRefused)


async def test_decoder_error_fails_the_request_and_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unexpected = errors_of_event_loop()
    monkeypatch.setattr(messages, "decode", fails_for(messages.decode, messages.RequestDenied))
    await query_denying_server_fails("decoding a message failed: IndexError")
    assert unexpected == []
    assert "IndexError" in caplog.text


class RecordingServer(LateServer):
    """Answers requests about itself and records their ids."""

    def __init__(self) -> None:
        super().__init__()
        self.req_ids: list[ReqId] = []

    def received(self, bodies: list[bytes]) -> None:
        assert self._connection is not None
        version = self._connection.version
        for body in bodies:
            request = messages.decode(body, version)
            self.req_ids.append(request.req_id)
            self._connection.send(messages.encode(_answer_to(request), version))


def _answer_to(request: messages.Message) -> messages.Message:
    match request:
        case messages.CheckStorageConnectivityRequest(req_id):
            return messages.CheckStorageConnectivityResponse(req_id, {})
        case messages.ServerPartitionsHealthStatRequest(req_id):
            return messages.ServerPartitionsHealthStatResponse(req_id, {})
        case messages.AddPreferredPartitionRequest(req_id):
            return messages.AddPreferredPartitionResponse(req_id, True)
        case messages.RemovePreferredPartitionRequest(req_id):
            return messages.RemovePreferredPartitionResponse(req_id, True)
        case _:
            return messages.ServerPartitionsAssignmentResponse(request.req_id, ())


@pytest.mark.parametrize(
    ("versions", "numbers"), [((0, 1, 2, 3, 4), [0, 0, 0, 0, 0]), ((4, 5), [1, 2, 3, 4, 5])]
)
async def test_requests_about_the_server_have_the_ids_of_the_tools_of_0_13_2_at_its_servers(
    versions: tuple[int, ...], numbers: list[int]
) -> None:
    server = RecordingServer()
    listener = Listener(CLIENT_SERVER.limited_to(*versions), lambda: server, PLAINTEXT)
    listener.start("127.0.0.1", 0)
    try:
        async with await ServerQuery.open(("127.0.0.1", listener.port), PLAINTEXT) as query:
            assert await query.partitions() == ()
            assert await query.storages() == {}
            assert await query.health() == {}
            assert await query.prefer((7, 8), wanted=True)
            assert await query.prefer((9,), wanted=False)
    finally:
        await listener.close()
    partitions = [0, 0, 0, 7, 9]
    assert server.req_ids == [ReqId(-1, 0, *ids) for ids in zip(partitions, numbers, strict=True)]
