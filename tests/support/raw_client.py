"""Define a client that sends single messages to a server of an `InProcessCluster`.

It records every message that it receives, so that a test sees the server's answers themselves.
"""

from __future__ import annotations

from typing import Any

from tests.support.eventually import eventually
from waltz.net import PLAINTEXT, FrameConnection, FrameHandler
from waltz.protocol import CLIENT_SERVER, ReqId, checksum
from waltz.protocol import client_server as cs
from waltz.protocol.batches import BatchedAppend
from waltz.testing import InProcessCluster
from waltz.testing.nodes import SERVER_PORT


class RawClient(FrameHandler):
    """A client's end of one connection."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.lost_because: str | None = None
        self._connection: FrameConnection | None = None

    @property
    def connection(self) -> FrameConnection:
        assert self._connection is not None
        return self._connection

    @classmethod
    async def connect(cls, cluster: InProcessCluster, *versions: int, server: int = 0) -> RawClient:
        """Connect to a server; offer all protocol versions, or only ``versions``."""
        client = cls()
        spec = CLIENT_SERVER.limited_to(*versions) if versions else CLIENT_SERVER
        host = cluster.network.host("client")
        address = (cluster.servers[server].host, SERVER_PORT)
        client._connection = await host.dial(*address, spec, client, PLAINTEXT)
        await client._connection.handshake()
        return client

    def received(self, bodies: list[bytes]) -> None:
        self.messages += [cs.decode(body, self.connection.version) for body in bodies]

    def lost(self, reason: str) -> None:
        self.lost_because = reason

    def send(self, *messages: cs.Message) -> None:
        """Send some messages in one chunk."""
        version = self.connection.version
        self.connection.send(b"".join(cs.encode(m, version) for m in messages))

    async def take(self, count: int = 1) -> list[Any]:
        """Take the next messages."""
        await eventually(lambda: len(self.messages) >= count)
        taken, self.messages = self.messages[:count], self.messages[count:]
        return taken

    async def mount(self, partition: int = 0, number: int = 1) -> None:
        """Mount a partition as the client ``number``."""
        self.send(cs.MountRequest(req_id(0, partition, number), -1, 0))
        (answer,) = await self.take()
        assert answer == cs.MountResponse(req_id(0, partition, number), cs.MountState.READY)


def req_id(seq: int = 0, partition: int = 0, client: int = 1) -> ReqId:
    """Return a request id of the first generation of a partition."""
    return ReqId(client, 1, partition, seq)


def new_append(
    text: str, seq: int = 0, partition: int = 0, client: int = 1, locks: tuple[int, ...] = ()
) -> cs.AppendRequest:
    """Return a single append with the header 5."""
    data = text.encode()
    rid = req_id(seq, partition, client)
    return cs.AppendRequest(rid, -1, locks, (), (), 5, data, checksum(data))


def batched(text: str) -> BatchedAppend:
    """Return an append as it is in a batch."""
    data = text.encode()
    return BatchedAppend((), (), (), 5, data, checksum(data))
