"""Perform the effects of one partition on this server. Touches the network and ZooKeeper.

Connections of clients and the server call the inputs of the partition's core (`Partition`)
directly. After each input that may add effects, they call `perform_effects`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, assert_never

from waltz.metadata.cluster import Cluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.store import StoreError
from waltz.net import FrameConnection
from waltz.protocol import storage as st
from waltz.runtime.core.timer import Timer as LatencyTimer
from waltz.runtime.process import fail_stop_on_error
from waltz_server.core.effects import (
    ConnectStorages,
    DisconnectClient,
    Effect,
    ReadMetadata,
    ScheduleTurn,
    SendToClient,
    SendToStorage,
    StartTimer,
    Timer,
    WriteLog,
    WriteMetadata,
)
from waltz_server.core.partition import Partition
from waltz_server.core.peer import Peer
from waltz_server.shell.storage_links import StorageLink, StorageLinks

log = logging.getLogger(__name__)

_METADATA_SECONDS = 10.0
"""How long ZooKeeper may take for one operation on the metadata; then it counts as failed."""


class _Arrival(NamedTuple):
    """The appends of one connection that were received together.

    ``appends`` is their number. ``total`` is the number of appends that the partition has accepted
    so far, including these. ``time`` is their time of arrival, by the clock of the event loop.
    """

    appends: int
    total: int
    time: float


class HostedPartition:
    """A partition's core with its connections, timers and metadata operations.

    ``connections`` has the open connections of all clients of the server.
    """

    def __init__(
        self,
        core: Partition,
        cluster: Cluster,
        links: StorageLinks,
        connections: Mapping[Peer, FrameConnection],
    ) -> None:
        self.core = core
        self._cluster = cluster
        self._links = links
        self._connections = connections
        self._storages: Mapping[str, StorageLink] = {}
        """The links to the storages of the last `ConnectStorages`."""
        self._loop = asyncio.get_running_loop()
        self._timers: set[asyncio.TimerHandle] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn_scheduled = False
        """Whether `_turn` will be called soon: until then, further `ScheduleTurn` add no call."""
        self._performing = False
        """Whether `perform_effects` is running."""
        self.latency = LatencyTimer()
        """How long appends take from their arrival until they are resolved."""
        self._arrivals: deque[_Arrival] = deque()
        """The arrivals that have unresolved appends, in order."""
        self._accepted = 0
        """Number of appends in all arrivals so far."""

    async def close(self) -> None:
        """Release the partition: end its feeds, timers, operations and connections to storages."""
        self.core.close()
        self.perform_effects()
        self._links.connect(self, frozenset())
        for timer in self._timers:
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def perform_effects(self) -> None:
        """Perform the effects that the core has added since the last call."""
        if self._performing:
            # Performing an effect has called an input: so does `ConnectStorages` if a storage is
            # connected already. The loop that performs that effect then takes the new effects.
            return
        self._performing = True
        self._note_arrival()
        try:
            while effects := self.core.take_ready():
                for effect in effects:
                    self._perform(effect)
        finally:
            self._performing = False
        self._note_resolved()

    def storage_up(self, storage: str) -> None:
        """Tell the core that the connection to ``storage`` is open."""
        self.core.store.storage_up(storage)
        self.perform_effects()

    def storage_down(self, storage: str) -> None:
        """Tell the core that the connection to ``storage`` is lost."""
        self.core.store.storage_down(storage)
        self.perform_effects()

    def answered(self, storage: str, request: st.Request, response: Any, elapsed_ms: float) -> None:
        """Pass ``response`` to the core; None if the connection was lost."""
        self.core.store.answered(storage, request, response, elapsed_ms)
        self.perform_effects()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SendToClient(peer, frames, data):
                connection = self._connections.get(peer)
                if connection is not None:
                    connection.send(frames, data)
            case SendToStorage(storage, request):
                self._storages[storage].send_request(self, request)
            case ScheduleTurn():
                if not self._turn_scheduled:
                    self._turn_scheduled = True
                    self._loop.call_soon(self._turn)
            case DisconnectClient(peer, reason):
                self._disconnect(peer, reason)
            case StartTimer(seconds, timer):
                self._start_timer(seconds, timer)
            case WriteLog(level, text):
                log.log(level, "%s", text)
            case ConnectStorages(storages):
                self._storages = self._links.connect(self, storages)
            case ReadMetadata():
                self._spawn(self._read_metadata(effect))
            case WriteMetadata():
                self._spawn(self._write_metadata(effect))
            case _:
                assert_never(effect)

    def _disconnect(self, peer: Peer, reason: str) -> None:
        connection = self._connections.get(peer)
        if connection is not None:
            log.warning(
                "partition %d: closing the connection of client %s: %s",
                self.core.id,
                connection.peer,
                reason,
            )
            connection.close(reason)

    def _note_arrival(self) -> None:
        """Store the time of arrival of the appends that were accepted since the last call."""
        accepted = self.core.counters.accepted
        if accepted != self._accepted:
            self._arrivals.append(_Arrival(accepted - self._accepted, accepted, self._loop.time()))
            self._accepted = accepted

    def _note_resolved(self) -> None:
        """Add the latency of the arrivals whose appends are resolved.

        Only the number of resolved appends is known, so the oldest appends count as the resolved
        ones. Example: append A waits for a lock, and B, which arrived later, is resolved. Then A
        counts as resolved. B counts as resolved later, when A is resolved.
        """
        arrivals = self._arrivals
        resolved = self._accepted - self.core.open_appends
        while arrivals and arrivals[0].total <= resolved:
            appends, _, arrived = arrivals.popleft()
            self.latency.add(self._loop.time() - arrived, appends)

    def _turn(self) -> None:
        self._turn_scheduled = False
        self.core.turn()
        self.perform_effects()

    def _start_timer(self, seconds: float, timer: Timer) -> None:
        def expired() -> None:
            self._timers.discard(handle)
            self.core.timer_expired(timer)
            self.perform_effects()

        handle = self._loop.call_later(seconds, expired)
        self._timers.add(handle)

    def _spawn(self, work: Any) -> None:
        task = fail_stop_on_error(self._loop.create_task(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_metadata(self, read: ReadMetadata) -> None:
        try:
            async with asyncio.timeout(_METADATA_SECONDS):
                metadata = await self._cluster.partition_metadata(self.core.id)
        except (StoreError, MalformedMetadata, TimeoutError) as error:
            self.core.store.metadata_failed(read, _reason(error))
        else:
            self.core.store.metadata_read(read, metadata.value, metadata.version)
        self.perform_effects()

    async def _write_metadata(self, write: WriteMetadata) -> None:
        try:
            async with asyncio.timeout(_METADATA_SECONDS):
                version = await self._cluster.write_partition_metadata(
                    self.core.id, write.value, write.version
                )
        except (StoreError, TimeoutError) as error:
            self.core.store.metadata_failed(write, _reason(error))
        else:
            self.core.store.metadata_written(write, version)
        self.perform_effects()


def _reason(error: BaseException) -> str:
    """Return why an operation on the metadata failed, for a log line."""
    if isinstance(error, TimeoutError):
        return f"ZooKeeper did not answer within {_METADATA_SECONDS:g} s"
    return str(error)
