"""Simulate a server: the real partition core in a simulated environment."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from tests.sim.checker import Checker
from tests.sim.clock import Clock
from tests.sim.history import History
from tests.sim.metadata import Metadata
from tests.sim.network import Channel, Network
from tests.sim.range_checks import OpenReads
from tests.sim.server_links import ClientEnd, StorageLink
from tests.sim.storage_node import StorageNode
from waltz.metadata.core.formats import UNRESOLVED
from waltz.net.core.backoff import Backoff
from waltz.protocol import client_server as cs
from waltz.protocol import storage as st
from waltz.protocol.client_numbers import (
    ALWAYS_ANSWERED_SINCE,
    APPEND_BATCH_SINCE,
    APPEND_BATCH_TYPE,
    APPEND_TYPE,
)
from waltz.protocol.frames import HEAD_BYTES
from waltz_server.core.appends.append import Append
from waltz_server.core.appends.append_batches import AppendBatch, absent_answer
from waltz_server.core.appends.append_codec import (
    decode_append,
    decode_batch,
)
from waltz_server.core.effects import (
    ConnectStorages,
    DisconnectClient,
    ReadMetadata,
    ScheduleTurn,
    SendToClient,
    SendToStorage,
    StartTimer,
    WriteLog,
    WriteMetadata,
)
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.partition import Partition, PartitionSettings
from waltz_server.core.peer import Peer
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.core.reads.data_reads import READ_BYTES
from waltz_server.core.reads.range_reads import NOT_HERE, refusal

_RANGE_ANSWERS = (24, 26)
"""Types of the answers to reads of ranges."""


class ServerNode:
    """One process: at most one partition, ``partition``, and the clients connected to it."""

    def __init__(
        self,
        name: str,
        partition: int,
        world: tuple[Clock, Random, Network, Metadata, Checker],
        storages: Mapping[str, StorageNode],
        history: History,
        settings: PartitionSettings,
    ) -> None:
        self.name = name
        self._partition = partition
        self.up = False
        self.version = 5
        """The newest protocol version for clients that its program supports."""
        self.incarnation = 0
        """Grows when the process ends, and when it loses the partition."""
        self.starts = 0
        self.clock, self._random, self.network, self._metadata, self._checker = world
        self._storages = storages
        self._history = history
        self._settings = settings
        self._core: Partition | None = None
        self._links: dict[str, StorageLink] = {}
        self._clients: dict[Peer, ClientEnd] = {}
        self._turning = False
        self._mark = -1
        self._session_id = -1
        self._session_replicas: tuple[str, ...] = ()
        self._confirmed: int | None = None
        """The last generation in which a session has opened."""
        self.open_reads = OpenReads(name, self.clock, history.counters, self._known_mark)
        self._metadata.watch_owner(name, self._owner_changed)
        self._metadata.watch_replicas(self._replicas_changed)

    @property
    def core(self) -> Partition | None:
        """The partition, if this server acts as its owner."""
        return self._core

    def start(self) -> None:
        """Start a new process, without any partition."""
        if not self.up:
            self.up = True
            self.incarnation += 1
            self.starts += 1
            self.version = self._random.choice((4, 5, 5, 5))
            self._history.note(self.name, f"started, with version {self.version}")

    def crash(self) -> None:
        """End the process at once."""
        if self.up:
            self._history.fault(self.name, "server killed")
            self.up = False
            self.incarnation += 1
            self._core = None
            self._links.clear()
            self._clients.clear()
            self.open_reads.clear()
            self.network.cut_node(self.name)

    def accept(self, client: Any, newest: int) -> Channel | None:
        """Accept a client that supports versions up to ``newest``; None if it cannot connect."""
        if not self.up:
            return None
        end = ClientEnd(self, min(newest, self.version))
        end.channel = self.network.connect((client, end), (client.name, self.name))
        if end.channel is not None:
            self._clients[end.peer] = end
        return end.channel

    def serve(self, end: ClientEnd, bodies: list[bytes]) -> None:
        """Handle the messages of a client's chunk."""
        version = end.peer.version
        appends: list[Append] = []
        for body in bodies:
            if body[0] == APPEND_TYPE:
                appends.append(decode_append(body, version)[1])
                continue
            self._append(end, appends)
            appends = []
            if body[0] == APPEND_BATCH_TYPE and version >= APPEND_BATCH_SINCE:
                self._append_batch(end, body)
            else:
                self._dispatch(end, cs.decode(body, version))
        self._append(end, appends)
        self._settle()

    def forget(self, end: ClientEnd) -> None:
        """Handle the loss of a client's connection."""
        self._clients.pop(end.peer, None)
        self.open_reads.lost(end.peer)
        if self._core is not None:
            self._core.lost(end.peer)
            self._settle()

    def store_input(self, incarnation: int, what: str, *arguments: Any) -> None:
        """Give the partition's store an input, if the process that expected it still runs."""
        if incarnation == self.incarnation and self._core is not None:
            getattr(self._core.store, what)(*arguments)
            self._settle()

    def input(self, incarnation: int, what: str, *arguments: Any) -> None:
        """Give the partition an input, if the process that expected it still runs."""
        if incarnation == self.incarnation and self._core is not None:
            getattr(self._core, what)(*arguments)
            self._settle()

    def later(self, incarnation: int, what: str, *arguments: Any) -> None:
        """Give the partition's store an input soon."""
        self.clock.after(0.0, self.store_input, incarnation, what, *arguments)

    def count_read(self, request: st.Request, sent: st.Request) -> None:
        """Count reads of ranges that go to storages."""
        if isinstance(request, st.BoundedRecordListRequest) and request.max_bytes != READ_BYTES:
            # A read of single transactions has that bound.
            older = "" if sent is request else "n older"
            self._history.counters[f"server: a range read from a{older} storage"] += 1

    def _append(self, end: ClientEnd, appends: list[Append]) -> None:
        if self._core is not None and appends:
            self._core.append(end.peer, appends)

    def _append_batch(self, end: ClientEnd, body: bytes) -> None:
        req_id, appends = decode_batch(body)
        if self._core is None:
            self._reply(end, absent_answer(end.peer, req_id, len(appends)).frames)
        else:
            self._core.append_batch(AppendBatch(end.peer, req_id, appends))

    def _dispatch(self, end: ClientEnd, message: Any) -> None:
        if isinstance(message, cs.RecordsRequest | cs.HeadersRequest):
            self.open_reads.record_request(end.peer, message)
        if self._core is None:
            self._answer_without_partition(end, message)
            return
        match message:
            case cs.MountRequest():
                self._core.mount(end.peer, message)
            case cs.FeedRequest():
                self._core.feed(end.peer, message)
            case cs.FlushRequest():
                self._core.flush(end.peer, message)
            case cs.HighWaterMarkRequest():
                self._core.read_mark(end.peer, message)
            case cs.TransactionDataRequest():
                self._core.read_data(end.peer, message)
            case cs.RecordsRequest() | cs.HeadersRequest():
                self._core.read_range(end.peer, message)

    def _answer_without_partition(self, end: ClientEnd, message: Any) -> None:
        version = end.peer.version
        answer: Any
        match message:
            case cs.RecordsRequest() | cs.HeadersRequest():
                self._answer_client(end, refusal(end.peer, message, NOT_HERE, UNRESOLVED).frames)
                return
            case cs.MountRequest(req_id):
                answer = cs.MountResponse(req_id, cs.MountState.NOT_READY)
            case cs.TransactionDataRequest(req_id, transaction_id):
                answer = cs.TransactionDataResponse(req_id, transaction_id, None, error="not here")
            case cs.HighWaterMarkRequest(req_id) if version >= ALWAYS_ANSWERED_SINCE:
                answer = cs.HighWaterMarkResponse(req_id, UNRESOLVED)
            case _:
                return
        self._reply(end, cs.encode(answer, version))

    def _owner_changed(self, owner: str, generation: int) -> None:
        if not self.up:
            return
        if owner != self.name:
            self._close_core()
            return
        self._history.note(
            self.name, f"is notified that it owns the partition, generation {generation}"
        )
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
        self._history.note(self.name, f"is notified that {self._metadata.owner} owns the partition")
        self._core.close()
        self._settle()
        self.open_reads.ended()
        self._core = None
        self._confirmed = None
        self.incarnation += 1
        if self._random.random() < 0.5:
            for end in list(self._clients.values()):
                assert end.channel is not None
                end.channel.cut()

    def _settle(self) -> None:
        core = self._core
        if core is None:
            return
        self._check_mark(core)
        while core is not None and (effects := core.take_ready()):
            for effect in effects:
                self._perform(core, effect)

    def _check_mark(self, core: Partition) -> None:
        store = core.store
        mark = store.high_water_mark
        if mark is None:
            return
        session = store.session
        if session is not None and store.is_open and session.session_id != self._session_id:
            self._session_id = session.session_id
            self._session_replicas = session.replicas
            self._confirmed = core.generation
            self._checker.session_opened(self.name, self._session_id, mark)
        if mark > self._mark:
            self._mark = mark
            self._history.detail(
                self.name, "commits up to {} in session {}", mark, self._session_id
            )
            self._checker.server_committed(
                self.name, self._session_id, mark, self._session_replicas, self._metadata.value
            )

    def _perform(self, core: Partition, effect: Any) -> None:
        match effect:
            case SendToClient(peer, frames):
                end = self._clients.get(peer)
                if end is not None:
                    self._answer_client(end, frames)
            case DisconnectClient(peer, reason):
                self._history.note(self.name, f"disconnects a client: {reason}")
                end = self._clients.get(peer)
                if end is not None and end.channel is not None:
                    end.channel.cut()
            case ScheduleTurn():
                if not self._turning:
                    self._turning = True
                    self.clock.after(0.0, self._turn, self.incarnation)
            case WriteLog(_, text):
                self._history.note(self.name, text)
            case _:
                self._perform_store_effect(effect)

    def _perform_store_effect(self, effect: Any) -> None:
        incarnation = self.incarnation
        match effect:
            case SendToStorage(storage, request):
                self._links[storage].ask(request)
            case ConnectStorages(storages):
                for name in sorted(self._links.keys() - storages):
                    self._links.pop(name).close()
                for name in sorted(storages - self._links.keys()):
                    self._links[name] = StorageLink(self, self._storages[name], incarnation)
            case StartTimer(seconds, purpose):
                self.clock.after(seconds, self.input, incarnation, "timer_expired", purpose)
            case ReadMetadata():
                self._metadata.read(
                    lambda value, version: self.store_input(
                        incarnation, "metadata_read", effect, value, version
                    ),
                    lambda reason: self.store_input(incarnation, "metadata_failed", effect, reason),
                )
            case WriteMetadata(value, version):
                self._metadata.write(
                    value,
                    version,
                    lambda new: self.store_input(incarnation, "metadata_written", effect, new),
                    lambda reason: self.store_input(incarnation, "metadata_failed", effect, reason),
                )
            case _:
                raise AssertionError(effect)

    def _turn(self, incarnation: int) -> None:
        self._turning = False
        self.input(incarnation, "turn")

    def _known_mark(self) -> int | None:
        return self._core.high_water_mark if self._core is not None else None

    def _answer_client(self, end: ClientEnd, frames: bytes) -> None:
        if frames[HEAD_BYTES] in _RANGE_ANSWERS:
            answer = cs.decode(frames[HEAD_BYTES:], end.peer.version)
            assert isinstance(answer, cs.RecordsResponse | cs.HeadersResponse)
            core = self._core
            confirmed = core is not None and core.generation == self._confirmed
            self.open_reads.answered(end.peer, answer, confirmed=confirmed)
        self._reply(end, frames)

    def _reply(self, end: ClientEnd, frames: bytes) -> None:
        assert end.channel is not None
        end.channel.send(end, frames)


def settings(random: Random) -> PartitionSettings:
    """Return settings that make rare events frequent: small batches, many checkpoints."""
    return PartitionSettings(
        lock_table_size=random.choice((50, 500, 5000)),
        min_fetch=random.choice((3, 20, 100)),
        realtime_threshold=200,
        feed_cache_bytes=random.choice((1, 40_000)),
        recent_bytes=random.choice((1, 4_000, 1 << 20)),
        replication=ReplicationLimits(
            batch_records=random.choice((3, 10, 100)),
            batches_in_flight=random.choice((1, 2, 4)),
            tail_bytes=random.choice((1, 4000, 1 << 20)),
            copy_records=random.choice((5, 20, 100)),
            checkpoint_interval=random.choice((150, 400, 100_000)),
        ),
        retry=Backoff(0.02, 1.0),
    )
