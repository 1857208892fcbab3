"""Requests and answers matched by sequence number: the dialing side of the storage and admin ports.

The server's links to storages use callbacks, tools await `call`. Touches the network.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from waltz.net.connection import ConnectionLost, FrameConnection, FrameHandler
from waltz.net.dialer import DialFailed
from waltz.net.network import TCP, Network
from waltz.net.tls import TlsConfig
from waltz.protocol import ADMIN, STORAGE, ProtocolSpec
from waltz.protocol import admin as admin_messages
from waltz.protocol import storage as storage_messages

_OPEN_SEQ = -1
_HANDSHAKE_SECONDS = 10.0

OnAnswer = Callable[[Any], None]
"""Called once with the answer, or with a `ConnectionLost`."""


class RemoteFailure(Exception):
    """The storage node answered with a failure; the text is that of the answer."""

    def __init__(self, text: str | None) -> None:
        super().__init__(text or "no reason given")


@dataclass(frozen=True, slots=True)
class _Port:
    """The differences between the storage port and the admin port."""

    spec: ProtocolSpec
    messages: ModuleType
    failure: type[storage_messages.FailureResponse] | type[admin_messages.AdminFailureResponse]
    open_request: Callable[[uuid.UUID, int], Any]


_STORAGE_PORT = _Port(
    STORAGE,
    storage_messages,
    storage_messages.FailureResponse,
    lambda key, n: storage_messages.OpenRequest(-1, _OPEN_SEQ, -1, key, n),
)
_ADMIN_PORT = _Port(
    ADMIN,
    admin_messages,
    admin_messages.AdminFailureResponse,
    lambda key, n: admin_messages.AdminOpenRequest(_OPEN_SEQ, key, n),
)


class RpcConnection(FrameHandler):
    """One connection to a storage node. Requests may overlap."""

    def __init__(self, port: _Port, on_lost: Callable[[str], None] | None = None) -> None:
        self._port = port
        self._on_lost = on_lost
        self._connection: FrameConnection | None = None
        self._pending: dict[int, OnAnswer] = {}
        self._next_seq = 0
        self.closed = False

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
        """Open a connection to a storage port; see `_open`. ``spec`` has the offered versions."""
        port = replace(_STORAGE_PORT, spec=spec)
        return await cls._open(cls(port, on_lost), address, tls, cluster, network)

    @classmethod
    async def open_admin(
        cls,
        address: tuple[str, int],
        tls: TlsConfig,
        cluster: tuple[uuid.UUID, int],
        network: Network = TCP,
    ) -> RpcConnection:
        """Open a connection to an admin port; see `_open`."""
        return await cls._open(cls(_ADMIN_PORT), address, tls, cluster, network)

    @staticmethod
    async def _open(
        rpc: RpcConnection,
        address: tuple[str, int],
        tls: TlsConfig,
        cluster: tuple[uuid.UUID, int],
        network: Network,
    ) -> RpcConnection:
        """Dial, shake hands, and send the cluster's key and number of partitions.

        Raises DialFailed, or RemoteFailure if the node belongs to another cluster and refuses.
        """
        rpc._connection = await network.dial(*address, rpc._port.spec, rpc, tls)
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                await rpc._connection.handshake()
                opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                # The chunk with the Hello may also have ended the connection: `send_request` then
                # fails at once, where a plain send would wait for an answer that cannot come
                # (test_rpc_open_of_a_connection_lost_with_its_hello_fails_at_once).
                rpc.send_request(rpc._port.open_request(*cluster), _resolver(opened))
                answer = await opened
        except TimeoutError:
            rpc.close()
            host, port = address
            raise DialFailed(
                f"{host}:{port} accepted the connection but did not finish the "
                f"{rpc._port.spec.name} handshake within {_HANDSHAKE_SECONDS:g} s"
            ) from None
        except ConnectionLost as error:
            raise DialFailed(f"{address[0]}:{address[1]} closed the connection: {error}") from error
        except asyncio.CancelledError:
            rpc.close()
            raise
        if isinstance(answer, rpc._port.failure):
            rpc.close()
            raise RemoteFailure(answer.failure.message)
        return rpc

    @property
    def version(self) -> int:
        """The agreed protocol version; only of an open connection."""
        assert self._connection is not None
        return self._connection.version

    def next_seq(self) -> int:
        """Return a sequence number for the next request."""
        seq = self._next_seq
        self._next_seq += 1
        return seq

    def send_request(self, request: Any, on_answer: OnAnswer) -> None:
        """Send ``request`` (with a number from `next_seq`); ``on_answer`` is called later, once."""
        if self.closed:
            asyncio.get_running_loop().call_soon(on_answer, ConnectionLost("connection closed"))
            return
        self._send(request, on_answer)

    async def call(self, make: Callable[[int], Any]) -> Any:
        """Send ``make(sequence number)`` and return the answer.

        Raises RemoteFailure; ConnectionLost, after which the request may or may not have been
        executed; UnsupportedByPeer if the peer's version has no such request.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.send_request(make(self.next_seq()), _resolver(future))
        answer = await future
        if isinstance(answer, self._port.failure):
            raise RemoteFailure(answer.failure.message)
        return answer

    def close(self) -> None:
        """Close; pending requests end with ConnectionLost."""
        if self._connection is not None:
            self._connection.close()

    def abort(self, reason: str) -> None:
        """Close without sending the queued frames; otherwise like `close`."""
        if self._connection is not None:
            self._connection.abort(reason)

    def received(self, bodies: list[bytes]) -> None:
        """Call back with every answer. An answer to no pending request is ignored."""
        assert self._connection is not None
        version = self._connection.version
        for body in bodies:
            answer = self._port.messages.decode(body, version)
            on_answer = self._pending.pop(answer.seq_num, None)
            if on_answer is not None:
                on_answer(answer)

    def lost(self, reason: str) -> None:
        """End all pending requests."""
        self.closed = True
        error = ConnectionLost(reason)
        pending, self._pending = self._pending, {}
        for on_answer in pending.values():
            on_answer(error)
        if self._on_lost is not None:
            self._on_lost(reason)

    def _send(self, request: Any, on_answer: OnAnswer) -> None:
        assert self._connection is not None
        # Encoding comes first: a request that the peer's version lacks must not become pending.
        parts = self._port.messages.encode_parts(request, self._connection.version)
        # A second request of one number would receive the answer to the first.
        assert request.seq_num not in self._pending, "sequence numbers of a connection are unique"
        self._pending[request.seq_num] = on_answer
        self._connection.send(*parts)


def _resolver(future: asyncio.Future[Any]) -> OnAnswer:
    def resolve(answer: Any) -> None:
        if future.done():
            return
        if isinstance(answer, ConnectionLost):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    return resolve
