"""A server in the simulation: the real partition core; the world around it is simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from tests.sim.checker import Checker
from tests.sim.clock import Clock
from tests.sim.metadata import Metadata
from tests.sim.network import Channel, Network
from tests.sim.storage_node import StorageNode
from tests.sim.story import Story
from waltz.protocol import FrameDecoder
from waltz.protocol import client_server as cs
from waltz.protocol.frames import CLIENT_SERVER
from waltz_server.append_codec import APPEND_TYPE, decode_append
from waltz_server.data_cache import DataCache
from waltz_server.effects import (
    Again,
    Append,
    Ask,
    Drop,
    Note,
    Peer,
    ReadMetadata,
    Send,
    Wake,
    Watch,
    WriteMetadata,
)
from waltz_server.limits import ReplicationLimits, RetryLimits
from waltz_server.partition import Partition, PartitionSettings
from waltz_server.store import StorePartition

DIAL_SECONDS = 0.05


class _StorageLink:
    """A server's connection to one storage."""

    def __init__(self, server: ServerNode, storage: StorageNode, life: int) -> None:
        self.storage = storage
        self._server = server
        self._life = life
        self._channel: Channel | None = None
        self._pending: dict[int, Any] = {}
        self._next_seq = 0
        self._closed = False
        self._dial()

    def ask(self, request: Any) -> None:
        if self._channel is None:
            self._server.later(self._life, "answered", self.storage.name, request, None, 0.0)
            return
        seq = self._next_seq
        self._next_seq += 1
        self._pending[seq] = request
        self._channel.send(self, replace(request, seq_num=seq))

    def close(self) -> None:
        self._closed = True
        if self._channel is not None:
            self._channel.drop(self)
            self._channel = None

    def received(self, channel: Channel, message: Any) -> None:
        request = self._pending.pop(message.seq_num)
        self._server.input(self._life, "answered", self.storage.name, request, message, 1.0)

    def lost(self, channel: Channel) -> None:
        self._channel = None
        pending, self._pending = self._pending, {}
        for request in pending.values():
            self._server.input(self._life, "answered", self.storage.name, request, None, 0.0)
        self._server.input(self._life, "storage_down", self.storage.name)
        self._server.clock.after(DIAL_SECONDS, self._dial)

    def _dial(self) -> None:
        if self._closed or self._life != self._server.life:
            return
        if self.storage.up:
            ends = (self, self.storage)
            nodes = (self._server.name, self.storage.name)
            self._channel = self._server.network.connect(ends, nodes)
        if self._channel is None:
            self._server.clock.after(DIAL_SECONDS, self._dial)
        else:
            self._server.later(self._life, "storage_up", self.storage.name)


class _ClientEnd:
    """A server's end of a client's connection."""

    def __init__(self, server: ServerNode, life: int) -> None:
        self.peer = Peer(4)
        self.channel: Channel | None = None
        self._server = server
        self._life = life
        self._decoder = FrameDecoder(CLIENT_SERVER)
        self._decoder.version = 4

    def received(self, channel: Channel, message: bytes) -> None:
        if self._life == self._server.life:
            self._server.serve(self, self._decoder.feed(message))

    def lost(self, channel: Channel) -> None:
        if self._life == self._server.life:
            self._server.forget(self)


class ServerNode:
    """One process: at most one partition, ``partition``, and the clients connected to it."""

    def __init__(
        self,
        name: str,
        partition: int,
        world: tuple[Clock, Random, Network, Metadata, Checker],
        storages: Mapping[str, StorageNode],
        story: Story,
        settings: PartitionSettings,
    ) -> None:
        self.name = name
        self._partition = partition
        self.up = False
        self.life = 0
        self.starts = 0
        self.clock, self._random, self.network, self._metadata, self._checker = world
        self._storages = storages
        self._story = story
        self._settings = settings
        self._core: Partition | None = None
        self._links: dict[str, _StorageLink] = {}
        self._clients: dict[Peer, _ClientEnd] = {}
        self._turning = False
        self._mark = -1
        self._session_id = -1
        self._session_replicas: tuple[str, ...] = ()
        self._metadata.watch_owner(name, self._owner_changed)
        self._metadata.watch_replicas(self._replicas_changed)

    @property
    def core(self) -> Partition | None:
        """The partition, if this server believes to own it."""
        return self._core

    def start(self) -> None:
        """Begin a new life, without any partition."""
        if not self.up:
            self.up = True
            self.life += 1
            self.starts += 1
            self._story.tell(self.name, "started")

    def crash(self) -> None:
        """End at once."""
        if self.up:
            self._story.fault(self.name, "server killed")
            self.up = False
            self.life += 1
            self._core = None
            self._links.clear()
            self._clients.clear()
            self.network.cut_node(self.name)

    def accept(self, client: Any) -> Channel | None:
        """Let a client connect; None if it cannot."""
        if not self.up:
            return None
        end = _ClientEnd(self, self.life)
        end.channel = self.network.connect((client, end), (client.name, self.name))
        if end.channel is not None:
            self._clients[end.peer] = end
        return end.channel

    def serve(self, end: _ClientEnd, bodies: list[bytes]) -> None:
        """Do what a client's chunk says."""
        core = self._core
        appends: list[Append] = []
        for body in bodies:
            if body[0] == APPEND_TYPE:
                appends.append(decode_append(body, 4)[1])
                continue
            if core is not None and appends:
                core.append(end.peer, appends)
                appends = []
            self._dispatch(core, end, cs.decode(body, 4))
        if core is not None and appends:
            core.append(end.peer, appends)
        self._settle()

    def forget(self, end: _ClientEnd) -> None:
        """A client's connection is gone."""
        self._clients.pop(end.peer, None)
        if self._core is not None:
            self._core.lost(end.peer)
            self._settle()

    def input(self, life: int, what: str, *arguments: Any) -> None:
        """Give the partition an input, if the process that expected it still lives."""
        if life == self.life and self._core is not None:
            getattr(self._core, what)(*arguments)
            self._settle()

    def later(self, life: int, what: str, *arguments: Any) -> None:
        """Give the partition an input soon."""
        self.clock.after(0.0, self.input, life, what, *arguments)

    def _dispatch(self, core: Partition | None, end: _ClientEnd, message: Any) -> None:
        match message:
            case cs.MountRequest() if core is None:
                answer = cs.MountResponse(message.req_id, cs.MountState.NOT_READY)
                self._reply(end, cs.encode(answer, 4))
            case cs.MountRequest() if core is not None:
                core.mount(end.peer, message)
            case cs.FeedRequest() if core is not None:
                core.feed(end.peer, message)
            case cs.FlushRequest() if core is not None:
                core.flush(end.peer, message)
            case cs.HighWaterMarkRequest() if core is not None:
                core.read_mark(end.peer, message)
            case cs.TransactionDataRequest() if core is not None:
                core.read_data(end.peer, message)

    def _owner_changed(self, owner: str, generation: int) -> None:
        if not self.up:
            return
        if owner != self.name:
            self._close_core()
            return
        self._story.tell(self.name, f"hears that it owns the partition, generation {generation}")
        if self._core is None:
            self._core = Partition(self._partition, self._settings, DataCache(1 << 20))
            self._core.set_replicas(self._metadata.replicas)
        self._core.set_generation(generation)
        self._settle()

    def _replicas_changed(self, replicas: tuple[str, ...]) -> None:
        if self.up and self._core is not None:
            self._core.set_replicas(replicas)
            self._settle()

    def _close_core(self) -> None:
        if self._core is None:
            return
        self._story.tell(self.name, f"hears that {self._metadata.owner} owns the partition")
        self._core.close()
        self._settle()
        self._core = None
        self.life += 1
        for end in list(self._clients.values()):
            assert end.channel is not None
            end.channel.cut()
        self._clients.clear()

    def _settle(self) -> None:
        core = self._core
        if core is None:
            return
        self._check_mark(core.store)
        while core is not None and (effects := core.drain_effects()):
            for effect in effects:
                self._perform(core, effect)

    def _check_mark(self, store: StorePartition) -> None:
        mark = store.high_water_mark
        if mark is None:
            return
        if store.is_open and store.session_id != self._session_id:
            self._session_id = store.session_id
            self._session_replicas = store.replicas
            self._checker.session_opened(self.name, self._session_id, mark)
        if mark > self._mark:
            self._mark = mark
            self._story.detail(self.name, "commits up to {} in session {}", mark, self._session_id)
            self._checker.server_committed(
                self.name, self._session_id, mark, self._session_replicas, self._metadata.value
            )

    def _perform(self, core: Partition, effect: Any) -> None:
        match effect:
            case Send(peer, frames):
                end = self._clients.get(peer)
                if end is not None:
                    self._reply(end, frames)
            case Drop(peer, reason):
                self._story.tell(self.name, f"drops a client: {reason}")
                end = self._clients.get(peer)
                if end is not None and end.channel is not None:
                    end.channel.cut()
            case Again():
                if not self._turning:
                    self._turning = True
                    self.clock.after(0.0, self._turn, self.life)
            case Note(_, text):
                self._story.tell(self.name, text)
            case _:
                self._perform_store_effect(effect)

    def _perform_store_effect(self, effect: Any) -> None:
        life = self.life
        match effect:
            case Ask(storage, request):
                self._links[storage].ask(request)
            case Watch(storages):
                for name in sorted(self._links.keys() - storages):
                    self._links.pop(name).close()
                for name in sorted(storages - self._links.keys()):
                    self._links[name] = _StorageLink(self, self._storages[name], life)
            case Wake(seconds, purpose):
                self.clock.after(seconds, self.input, life, "woken", purpose)
            case ReadMetadata():
                self._metadata.read(
                    lambda value, version: self.input(
                        life, "metadata_read", effect, value, version
                    ),
                    lambda reason: self.input(life, "metadata_failed", effect, reason),
                )
            case WriteMetadata(value, version):
                self._metadata.write(
                    value,
                    version,
                    lambda new: self.input(life, "metadata_written", effect, new),
                    lambda reason: self.input(life, "metadata_failed", effect, reason),
                )
            case _:
                raise AssertionError(effect)

    def _turn(self, life: int) -> None:
        self._turning = False
        self.input(life, "turn")

    def _reply(self, end: _ClientEnd, frames: bytes) -> None:
        assert end.channel is not None
        end.channel.send(end, frames)


def settings(random: Random) -> PartitionSettings:
    """Return settings that make the rare common: small batches, many checkpoints."""
    return PartitionSettings(
        lock_table_size=random.choice((50, 500, 5000)),
        min_fetch=random.choice((3, 20, 100)),
        realtime_threshold=200,
        feed_cache_bytes=random.choice((1, 40_000)),
        replication=ReplicationLimits(
            batch_records=random.choice((3, 10, 100)),
            batches_in_flight=random.choice((1, 2, 4)),
            tail_bytes=random.choice((1, 4000, 1 << 20)),
            copy_records=random.choice((5, 20, 100)),
            checkpoint_interval=random.choice((150, 400, 100_000)),
        ),
        retry=RetryLimits(0.02, 1.0),
    )
