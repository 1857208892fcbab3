"""Query one server about its partitions (spec/wire.md section 8). Touches the network.

Servers answer these requests on the port for clients. No client id is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from waltz.metadata.core.membership_steps import Endpoint
from waltz.net import (
    TCP,
    ConnectionLost,
    DialFailed,
    FrameConnection,
    FrameHandler,
    Network,
    TlsConfig,
    decode_received,
    join_address,
)
from waltz.protocol import CLIENT_SERVER, UnsupportedByPeer
from waltz.protocol import client_server as messages
from waltz.protocol.client_numbers import RANGES_SINCE
from waltz.protocol.records import ReqId

AnswerT = TypeVar("AnswerT")

_NOT_A_CLIENT = -1
"""The client id in requests of tools, which do not register as clients."""


class ServerUnreachable(ConnectionError):
    """The connection, or a request on it, failed; the text names the server and says why.

    The cause is a `ConnectionLost` if the connection has ended.
    """


class RequestRefused(ServerUnreachable):
    """The server answered that this client has no right to make the request."""


class ServerQuery(FrameHandler):
    """A connection to one server for one call at a time; an async context manager.

    A response has the number of its request, so that a late response is not taken for the response
    to a later request. There is one exception: requests to a server of Waltz 0.13.2 about the
    server itself have the number 0, as the tools of that version send them. So a late response to
    such a request can be taken for the response to the next request of its type. `open` and every
    request raise ServerUnreachable if they fail.
    """

    def __init__(self, endpoint: Endpoint, timeout_seconds: float) -> None:
        self._name = join_address(*endpoint)
        self._timeout_seconds = timeout_seconds
        self._connection: FrameConnection | None = None
        self._request_number = 0
        self._answers: asyncio.Queue[messages.Message | ConnectionLost] = asyncio.Queue()
        """The received messages, then a ConnectionLost if the connection has ended."""

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        tls: TlsConfig,
        *,
        timeout_seconds: float = 10.0,
        network: Network = TCP,
    ) -> ServerQuery:
        """Connect to a server; the handshake and each request have ``timeout_seconds``."""
        query = cls(endpoint, timeout_seconds)
        try:
            async with asyncio.timeout(timeout_seconds):
                query._connection = await network.dial(*endpoint, CLIENT_SERVER, query, tls)
                await query._connection.handshake()
        except (DialFailed, ConnectionLost) as problem:
            # If the server was dialed at its outside address, the error must name this address. If
            # no connection was made, the text of ``problem`` has it already.
            note = "" if query._connection is None else query._connection.outside_note
            raise ServerUnreachable(f"server {query._name}{note}: {problem}") from problem
        except TimeoutError as problem:
            query.close()
            raise ServerUnreachable(
                f"server {query._name} did not complete the handshake within {timeout_seconds:g} s"
            ) from problem
        except asyncio.CancelledError:
            query.close()
            raise
        return query

    async def __aenter__(self) -> ServerQuery:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    async def partitions(self) -> tuple[int, ...]:
        """Return the partitions that the server has."""
        request = messages.ServerPartitionsAssignmentRequest(self._id_about_server())
        answer = await self._send_request(request, messages.ServerPartitionsAssignmentResponse)
        return answer.partitions

    async def storages(self) -> Mapping[str, bool]:
        """Return the storages that the server uses, each with whether the server can reach it."""
        request = messages.CheckStorageConnectivityRequest(self._id_about_server())
        answer = await self._send_request(request, messages.CheckStorageConnectivityResponse)
        return answer.storages

    async def health(self) -> Mapping[int, bool]:
        """Return the partitions of the server, each with whether the server reports it healthy."""
        request = messages.ServerPartitionsHealthStatRequest(self._id_about_server())
        answer = await self._send_request(request, messages.ServerPartitionsHealthStatResponse)
        return answer.health

    async def prefer(self, partitions: Iterable[int], *, wanted: bool) -> bool:
        """Set whether the server prefers ``partitions``; return whether the server accepts that.

        The server writes its preference to ZooKeeper; partitions move at the next rebalancing.
        """
        named = tuple(partitions)
        # By spec/wire.md section 4, the request id has the first partition, if any.
        req_id = self._id_about_server(*named[:1])
        if wanted:
            add = messages.AddPreferredPartitionRequest(req_id, named)
            return (await self._send_request(add, messages.AddPreferredPartitionResponse)).result
        remove = messages.RemovePreferredPartitionRequest(req_id, named)
        return (await self._send_request(remove, messages.RemovePreferredPartitionResponse)).result

    async def high_water_marks(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the id of the last committed transaction of each of the server's ``partitions``.

        The id is -1 for an empty log, and `UNRESOLVED` (`waltz.metadata.core.formats`) while the
        partition opens. A server of Waltz 0.13.2 that does not have a partition never answers. The
        requests are sent together, and their answers have the time of one.
        """
        # One after the other, the requests would need a round trip for each partition: far from the
        # cluster, many seconds (test_marks_of_all_partitions_are_requested_together).
        requests = [messages.HighWaterMarkRequest(self._next_id(each)) for each in partitions]
        answers = await self._send_requests(requests, messages.HighWaterMarkResponse)
        return {each.req_id.partition: each.transaction_id for each in answers}

    def _id_about_server(self, first_partition: int = 0) -> ReqId:
        """Return the id of a request about the server (spec/wire.md section 4).

        A server of Waltz 0.13.2 gets the number 0, as from its own tools.
        """
        assert self._connection is not None
        if self._connection.version < RANGES_SINCE:
            return ReqId(_NOT_A_CLIENT, generation=0, partition=first_partition, seq=0)
        return self._next_id(first_partition)

    def _next_id(self, partition: int) -> ReqId:
        """Return the id of a request with the next request number."""
        # A request number is a signed number of 32 bits; after the largest one follows 0.
        self._request_number = (self._request_number + 1) & 0x7FFF_FFFF
        return ReqId(_NOT_A_CLIENT, generation=0, partition=partition, seq=self._request_number)

    async def _send_request(self, request: messages.Message, answer_type: type[AnswerT]) -> AnswerT:
        """Send a request, and return its answer, a message of ``answer_type``."""
        (answer,) = await self._send_requests((request,), answer_type)
        return answer

    async def _send_requests(
        self, requests: Sequence[messages.Message], answer_type: type[AnswerT]
    ) -> list[AnswerT]:
        """Send requests, and return their answers, messages of ``answer_type``, in the same order.

        Received messages with other request ids are late answers, and are skipped.
        """
        assert self._connection is not None
        answers: dict[ReqId, AnswerT] = {}
        unanswered = {request.req_id for request in requests}
        try:
            for request in requests:
                self._connection.send(messages.encode(request, self._connection.version))
            async with asyncio.timeout(self._timeout_seconds):
                while unanswered:
                    received = await self._answers.get()
                    if isinstance(received, ConnectionLost):
                        self._answers.put_nowait(received)  # Later requests fail at once, too.
                        raise ServerUnreachable(f"server {self._name}: {received}") from received
                    req_id = received.req_id
                    if req_id not in unanswered:
                        continue
                    if isinstance(received, messages.RequestDenied):
                        raise RequestRefused(
                            f"server {self._name} refused the request: {received.error}"
                        )
                    if isinstance(received, answer_type):
                        answers[req_id] = received
                        unanswered.remove(req_id)
            return [answers[request.req_id] for request in requests]
        except UnsupportedByPeer as problem:
            raise ServerUnreachable(f"server {self._name}: {problem}") from problem
        except TimeoutError as problem:
            raise ServerUnreachable(
                f"server {self._name} did not answer within {self._timeout_seconds:g} s"
            ) from problem

    def received(self, bodies: list[bytes]) -> None:
        """Queue the received messages for the call that waits."""
        assert self._connection is not None
        for body in bodies:
            answer = decode_received(messages.decode, body, self._connection.version)
            self._answers.put_nowait(answer)

    def lost(self, reason: str) -> None:
        """Let the call that waits, and all later calls, fail."""
        self._answers.put_nowait(ConnectionLost(reason))
