"""Simulate the connections of a server: to storages, and from clients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.sim.handshake import decoder_of
from tests.sim.network import Channel
from tests.sim.storage_node import StorageNode
from waltz.protocol import storage as st
from waltz_server.core.peer import Peer
from waltz_server.core.replication.storage_versions import RecordSizes

if TYPE_CHECKING:
    from tests.sim.server_node import ServerNode

DIAL_SECONDS = 0.05


class StorageLink:
    """A server's connection to one storage."""

    def __init__(self, server: ServerNode, storage: StorageNode, incarnation: int) -> None:
        self.storage = storage
        self._server = server
        self._incarnation = incarnation
        self._channel: Channel | None = None
        self._pending: dict[int, Any] = {}
        self._next_seq = 0
        self._closed = False
        self._version = 1
        self._sizes = RecordSizes()
        self._dial()

    def ask(self, request: Any) -> None:
        if self._channel is None:
            self._server.later(self._incarnation, "answered", self.storage.name, request, None, 0.0)
            return
        seq = self._next_seq
        self._next_seq += 1
        self._pending[seq] = request
        sent = self._sizes.convert_for(request, self._version)
        self._server.count_read(request, sent)
        self._channel.send(self, replace(sent, seq_num=seq))

    def close(self) -> None:
        self._closed = True
        if self._channel is not None:
            self._channel.drop(self)
            self._channel = None

    def received(self, channel: Channel, message: Any) -> None:
        request = self._pending.pop(message.seq_num)
        if isinstance(message, st.RecordListResponse):
            self._sizes.learn(message.partition, message.records)
        self._server.store_input(
            self._incarnation, "answered", self.storage.name, request, message, 1.0
        )

    def lost(self, channel: Channel) -> None:
        self._channel = None
        pending, self._pending = self._pending, {}
        for request in pending.values():
            self._server.store_input(
                self._incarnation, "answered", self.storage.name, request, None, 0.0
            )
        self._server.store_input(self._incarnation, "storage_down", self.storage.name)
        self._server.clock.after(DIAL_SECONDS, self._dial)

    def _dial(self) -> None:
        if self._closed or self._incarnation != self._server.incarnation:
            return
        if self.storage.up:
            ends = (self, self.storage)
            nodes = (self._server.name, self.storage.name)
            self._channel = self._server.network.connect(ends, nodes)
        if self._channel is None:
            self._server.clock.after(DIAL_SECONDS, self._dial)
        else:
            self._version = self.storage.version
            self._server.later(self._incarnation, "storage_up", self.storage.name)


class ClientEnd:
    """A server's end of a client's connection."""

    def __init__(self, server: ServerNode, version: int) -> None:
        self.peer = Peer(version)
        self.channel: Channel | None = None
        self._server = server
        self._starts = server.starts
        self._decoder = decoder_of(version)

    def received(self, channel: Channel, message: bytes) -> None:
        if self._server.up and self._starts == self._server.starts:
            self._server.serve(self, self._decoder.feed(message))

    def lost(self, channel: Channel) -> None:
        if self._server.up and self._starts == self._server.starts:
            self._server.forget(self)
