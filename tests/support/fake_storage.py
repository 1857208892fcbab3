"""Run a fake storage on loopback that fails on demand."""

from __future__ import annotations

import uuid
from typing import Any

from tests.support.scripted_storages import ScriptedStorage
from waltz.net import PLAINTEXT, FrameConnection, FrameHandler, Listener
from waltz.protocol import STORAGE, ProtocolSpec
from waltz.protocol import storage as st
from waltz.protocol.failures import RpcFailure
from waltz_server.shell.storage_links import ExpectedCluster

IDENTITY = ExpectedCluster(uuid.UUID(int=7), 2)


class FakeStorage:
    """One node; every partition has a log of its own."""

    def __init__(self, spec: ProtocolSpec = STORAGE) -> None:
        self._spec = spec
        self.partitions: dict[int, ScriptedStorage] = {}
        self.connections: list[FrameConnection] = []
        self.accepted = 0
        self.requests: list[Any] = []
        self.silent = False
        """Whether requests are taken and never answered."""
        self.mute = False
        """Whether even the opening of a connection is left unanswered."""
        self.dropping = False
        """Whether the first request after the opening ends the connection."""
        self.port = 0
        self._listener: Listener | None = None

    @property
    def name(self) -> str:
        """What servers call it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._listener = Listener(self._spec, lambda: _Handler(self), PLAINTEXT)
        self._listener.start("127.0.0.1", self.port)
        self.port = self._listener.port

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._listener is not None:
            await self._listener.close()
            self._listener = None

    def cut(self) -> None:
        """Lose all connections."""
        for connection in list(self.connections):
            connection.abort("cut by the test")

    def answer(self, request: Any) -> Any:
        """Return the answer to a request, None for none."""
        self.requests.append(request)
        context = (request.session_id, request.seq_num, request.partition)
        if isinstance(request, st.OpenRequest):
            if self.mute:
                return None
            if (request.key, request.num_partitions) != (IDENTITY.key, IDENTITY.num_partitions):
                return st.FailureResponse(*context, RpcFailure("the cluster key does not match"))
            return st.SuccessResponse(*context)
        if self.dropping:
            self.cut()
        if self.silent or self.dropping:
            return None
        log = self.partitions.setdefault(request.partition, ScriptedStorage(self.name))
        return log.handle(request)


class _Handler(FrameHandler):
    def __init__(self, storage: FakeStorage) -> None:
        self._storage = storage
        self._connection: FrameConnection | None = None

    def ready(self, connection: FrameConnection) -> None:
        self._connection = connection
        self._storage.connections.append(connection)
        self._storage.accepted += 1

    def received(self, bodies: list[bytes]) -> None:
        assert self._connection is not None
        for body in bodies:
            if self._connection.closed:
                return
            version = self._connection.version
            answer = self._storage.answer(st.decode(body, version))
            if answer is not None:
                self._connection.send(st.encode(answer, version))

    def lost(self, reason: str) -> None:
        if self._connection in self._storage.connections:
            self._storage.connections.remove(self._connection)
