"""Send requests to storage and admin ports, and match the answers by sequence number.

Servers call `RpcConnection.send_request` with a callback; tools await `RpcConnection.call`. Touches
the network.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeVar

from waltz.net.connection import ConnectionLost, FrameConnection
from waltz.net.core.addresses import join_address
from waltz.net.decoding import raise_malformed
from waltz.net.dialer import DialFailed
from waltz.net.frame_handler import FrameHandler
from waltz.net.network import TCP, Network
from waltz.net.tls import TlsConfig
from waltz.protocol import ADMIN, STORAGE, ProtocolSpec
from waltz.protocol import admin as admin_messages
from waltz.protocol import storage as storage_messages

_OPEN_SEQ = -1
"""The sequence number of the first request on a connection."""

_HANDSHAKE_SECONDS = 10.0
"""How long a storage node may take to send its Hello and to answer the first request."""

AnswerT = TypeVar("AnswerT")

OnAnswer = Callable[[Any], None]
"""Called once: with the answer (which may be a failure), or with a `ConnectionLost`."""


class RemoteFailure(Exception):
    """The storage node answered with a failure. The text is from the answer."""

    def __init__(self, text: str | None) -> None:
        super().__init__(text or "no reason given")


@dataclass(frozen=True, slots=True)
class _PortKind:
    """The differences between the storage port and the admin port of a storage node.

    ``messages`` is the module that encodes and decodes the messages. ``failure`` is the class of
    the error answer, ``success`` the class of the answer to the first request. ``open_request``
    returns the first request for the cluster's key and number of partitions.
    """

    spec: ProtocolSpec
    messages: ModuleType
    failure: type[storage_messages.FailureResponse] | type[admin_messages.AdminFailureResponse]
    success: type[storage_messages.SuccessResponse] | type[admin_messages.AdminSuccessResponse]
    open_request: Callable[[uuid.UUID, int], Any]


_STORAGE_PORT = _PortKind(
    STORAGE,
    storage_messages,
    storage_messages.FailureResponse,
    storage_messages.SuccessResponse,
    # -1: the request belongs to no session and to no partition.
    open_request=lambda key, num_partitions: storage_messages.OpenRequest(
        session_id=-1, seq_num=_OPEN_SEQ, partition=-1, key=key, num_partitions=num_partitions
    ),
)
_ADMIN_PORT = _PortKind(
    ADMIN,
    admin_messages,
    admin_messages.AdminFailureResponse,
    admin_messages.AdminSuccessResponse,
    open_request=lambda key, num_partitions: admin_messages.AdminOpenRequest(
        _OPEN_SEQ, key, num_partitions
    ),
)


class RpcConnection(FrameHandler):
    """One connection to a storage node. Several requests may wait for answers at the same time.

    Open one with `open_storage` or `open_admin`. ``on_lost`` is called with the reason when the
    connection ends.
    """

    def __init__(self, port: _PortKind, on_lost: Callable[[str], None] | None = None) -> None:
        self._port = port
        self._on_lost = on_lost
        self._connection: FrameConnection | None = None
        self._pending: dict[int, OnAnswer] = {}
        """The callbacks of the requests that wait for answers, by sequence number."""
        self._next_seq = 0
        self.closed = False
        """Whether the connection has ended; `lost` sets this."""

    @classmethod
    async def open_storage(
        cls,
        address: tuple[str, int],
        tls: TlsConfig,
        cluster: tuple[uuid.UUID, int],
        on_lost: Callable[[str], None] | None = None,
        spec: ProtocolSpec = STORAGE,
        network: Network = TCP,
    ) -> RpcConnection:
        """Open a connection to a storage port, offering the versions of ``spec``.

        ``cluster`` is the cluster's key and number of partitions. ``on_lost`` is called with the
        reason when the connection ends. Raises DialFailed, or RemoteFailure if the node belongs to
        another cluster.
        """
        rpc = cls(replace(_STORAGE_PORT, spec=spec), on_lost)
        await rpc._connect(address, tls, cluster, network)
        return rpc

    @classmethod
    async def open_admin(
        cls,
        address: tuple[str, int],
        tls: TlsConfig,
        cluster: tuple[uuid.UUID, int],
        network: Network = TCP,
    ) -> RpcConnection:
        """Open a connection to an admin port.

        ``cluster`` is the cluster's key and number of partitions. Raises DialFailed, or
        RemoteFailure if the node belongs to another cluster.
        """
        rpc = cls(_ADMIN_PORT)
        await rpc._connect(address, tls, cluster, network)
        return rpc

    async def _connect(
        self,
        address: tuple[str, int],
        tls: TlsConfig,
        cluster: tuple[uuid.UUID, int],
        network: Network,
    ) -> None:
        """Connect, and wait until the node has accepted the cluster's key and partition count.

        Raises DialFailed, or RemoteFailure if the node belongs to another cluster.
        """
        self._connection = await network.dial(*address, self._port.spec, self, tls)
        name = f"{join_address(*address)}{self._connection.outside_note}"
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                await self._connection.handshake()
                opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                # Not `_send`: the connection may have ended immediately after the peer's Hello, and
                # then `_send` would never get an answer. `send_request` answers at once with
                # ConnectionLost (test_rpc_open_of_a_connection_lost_with_its_hello_fails_at_once).
                self.send_request(self._port.open_request(*cluster), _resolver(opened))
                answer = await opened
        except TimeoutError:
            self.close()
            raise DialFailed(
                f"{name} accepted the connection but did not finish the "
                f"{self._port.spec.name} handshake within {_HANDSHAKE_SECONDS:g} s"
            ) from None
        except ConnectionLost as error:
            raise DialFailed(f"{name} closed the connection: {error}") from error
        except asyncio.CancelledError:
            self.close()
            raise
        if isinstance(answer, self._port.failure):
            self.close()
            raise RemoteFailure(answer.failure.message)
        if not isinstance(answer, self._port.success):
            self.close()
            raise DialFailed(f"{name} answered its first request with a {type(answer).__name__}")

    @property
    def version(self) -> int:
        """The agreed protocol version. The connection must have been opened."""
        assert self._connection is not None
        return self._connection.version

    def next_seq(self) -> int:
        """Take a new sequence number, for one request."""
        seq = self._next_seq
        self._next_seq += 1
        return seq

    def send_request(self, request: Any, on_answer: OnAnswer) -> None:
        """Send ``request``, whose sequence number is from `next_seq`, and later call ``on_answer``.

        ``on_answer`` is called exactly once, and never during this call. If the peer's version
        lacks the request, this raises UnsupportedByPeer, and ``on_answer`` is not called.
        """
        if self.closed:
            asyncio.get_running_loop().call_soon(on_answer, ConnectionLost("connection closed"))
            return
        self._send(request, on_answer)

    async def call(self, make: Callable[[int], Any], expected: type[AnswerT]) -> AnswerT:
        """Send the request that ``make`` returns for a sequence number, and return the answer.

        Raises RemoteFailure, UnsupportedByPeer if the peer's version lacks the request, or
        ConnectionLost, after which the request may or may not have been executed. A peer that does
        not answer with an ``expected`` message violates the protocol: the connection is closed.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request = make(self.next_seq())
        self.send_request(request, _resolver(future))
        answer = await future
        if isinstance(answer, self._port.failure):
            raise RemoteFailure(answer.failure.message)
        if not isinstance(answer, expected):
            self.close()
            raise ConnectionLost(
                f"the peer answered a {type(request).__name__} with a {type(answer).__name__}"
            )
        return answer

    def close(self) -> None:
        """Send the queued requests and close. Pending requests end with ConnectionLost."""
        if self._connection is not None:
            self._connection.close()

    def abort(self, reason: str) -> None:
        """Close like `close`, but without sending the queued requests."""
        if self._connection is not None:
            self._connection.abort(reason)

    def received(self, bodies: list[bytes]) -> None:
        """Pass each answer to its request's callback. An answer without a request is ignored."""
        assert self._connection is not None
        version = self._connection.version
        decode = self._port.messages.decode
        for body in bodies:
            try:
                answer = decode(body, version)
            except Exception as error:
                raise_malformed(error)
            # Outside the `try`: an error in a callback is not a malformed message. It is a defect,
            # and must end a server.
            on_answer = self._pending.pop(answer.seq_num, None)
            if on_answer is not None:
                on_answer(answer)

    def lost(self, reason: str) -> None:
        """End all pending requests with ConnectionLost."""
        self.closed = True
        error = ConnectionLost(reason)
        pending, self._pending = self._pending, {}
        for on_answer in pending.values():
            on_answer(error)
        if self._on_lost is not None:
            self._on_lost(reason)

    def _send(self, request: Any, on_answer: OnAnswer) -> None:
        """Send a request on a connection that has not ended."""
        assert self._connection is not None
        # Encode before the request becomes pending: if the peer's version lacks the request,
        # encoding raises, and a pending request would never be answered.
        parts = self._port.messages.encode_parts(request, self._connection.version)
        # If two requests had the same number, one of them would get the answer to the other.
        assert request.seq_num not in self._pending, "sequence numbers of a connection are unique"
        self._pending[request.seq_num] = on_answer
        self._connection.send(*parts)


def _resolver(future: asyncio.Future[Any]) -> OnAnswer:
    """Return a callback that completes ``future`` with the answer, or with a ConnectionLost."""

    def resolve(answer: Any) -> None:
        if future.done():
            return
        if isinstance(answer, ConnectionLost):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    return resolve
