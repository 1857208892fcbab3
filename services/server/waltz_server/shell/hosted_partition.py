"""Performs a partition's effects: the shell around `Partition`. Touches network and ZooKeeper.

Every input to the partition goes through here and is followed by performing what it asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, assert_never

from waltz.metadata.cluster import Cluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.store import StoreError
from waltz.protocol import storage as st
from waltz.runtime.metrics import Timer
from waltz.runtime.process import watched
from waltz_server.core.appends.append_batches import AppendBatch
from waltz_server.core.effects import (
    Again,
    Append,
    Ask,
    Drop,
    Note,
    PartitionEffect,
    Peer,
    Purpose,
    ReadMetadata,
    Send,
    Wake,
    Watch,
    WriteMetadata,
)
from waltz_server.core.partition import Partition
from waltz_server.shell.storage_links import StorageLinks

log = logging.getLogger(__name__)

_METADATA_SECONDS = 10.0


class HostedPartition:
    """One partition with its connections to the world."""

    def __init__(
        self,
        core: Partition,
        cluster: Cluster,
        links: StorageLinks,
        send: Callable[[Peer, bytes], None],
        drop: Callable[[Peer, str], None],
    ) -> None:
        self.core = core
        self._cluster = cluster
        self._links = links
        self._send = send
        self._drop = drop
        self._loop = asyncio.get_running_loop()
        self._timers: set[asyncio.TimerHandle] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turning = False
        self._settling = False
        self.latency = Timer()
        """How long appends take from their arrival until they are resolved."""
        self._arrivals: deque[tuple[int, float]] = deque()

    async def close(self) -> None:
        """End the partition on this server."""
        self.core.close()
        self.settle()
        self._links.watch(self, frozenset())
        for timer in self._timers:
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def append(self, peer: Peer, appends: list[Append]) -> None:
        """Hand over the appends of one chunk."""
        self.core.append(peer, appends)
        self._arrivals.append((self.core.counters.transactions, self._loop.time()))
        self.settle()

    def append_batch(self, batch: AppendBatch) -> None:
        """Hand over a batch."""
        self.core.append_batch(batch)
        self._arrivals.append((self.core.counters.transactions, self._loop.time()))
        self.settle()

    def settle(self) -> None:
        """Perform what the partition has asked for since the last call."""
        if self._settling:
            return
        self._settling = True
        try:
            while effects := self.core.drain_effects():
                for effect in effects:
                    self._perform(effect)
        finally:
            self._settling = False
        self._time_resolved()

    def storage_up(self, storage: str) -> None:
        """A storage's connection is open."""
        self.core.storage_up(storage)
        self.settle()

    def storage_down(self, storage: str) -> None:
        """A storage's connection is gone."""
        self.core.storage_down(storage)
        self.settle()

    def answered(self, storage: str, request: st.Request, response: Any, elapsed_ms: float) -> None:
        """A storage answered."""
        self.core.answered(storage, request, response, elapsed_ms)
        self.settle()

    def _perform(self, effect: PartitionEffect) -> None:
        match effect:
            case Send(peer, frames):
                self._send(peer, frames)
            case Ask(storage, request):
                self._links.ask(self, storage, request)
            case Again():
                if not self._turning:
                    self._turning = True
                    self._loop.call_soon(self._turn)
            case Drop(peer, reason):
                self._drop(peer, reason)
            case Wake(seconds, purpose):
                self._wake_later(seconds, purpose)
            case Note(level, text):
                log.log(level, "%s", text)
            case Watch(storages):
                self._links.watch(self, storages)
            case ReadMetadata():
                self._spawn(self._read_metadata(effect))
            case WriteMetadata():
                self._spawn(self._write_metadata(effect))
            case _:
                assert_never(effect)

    def _time_resolved(self) -> None:
        arrivals, latency = self._arrivals, self.latency
        resolved = self.core.counters.transactions - self.core.open_appends
        while arrivals and arrivals[0][0] <= resolved:
            count, begun = arrivals.popleft()
            latency.add(self._loop.time() - begun, max(0, count - latency.count))

    def _turn(self) -> None:
        self._turning = False
        self.core.turn()
        self.settle()

    def _wake_later(self, seconds: float, purpose: Purpose) -> None:
        def wake() -> None:
            self._timers.discard(timer)
            self.core.woken(purpose)
            self.settle()

        timer = self._loop.call_later(seconds, wake)
        self._timers.add(timer)

    def _spawn(self, work: Any) -> None:
        task = watched(self._loop.create_task(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_metadata(self, read: ReadMetadata) -> None:
        try:
            async with asyncio.timeout(_METADATA_SECONDS):
                found = await self._cluster.partition_metadata(self.core.id)
        except (StoreError, MalformedMetadata, TimeoutError) as error:
            self.core.metadata_failed(read, _reason(error))
        else:
            self.core.metadata_read(read, found.value, found.version)
        self.settle()

    async def _write_metadata(self, write: WriteMetadata) -> None:
        try:
            async with asyncio.timeout(_METADATA_SECONDS):
                version = await self._cluster.write_partition_metadata(
                    self.core.id, write.value, write.version
                )
        except (StoreError, TimeoutError) as error:
            self.core.metadata_failed(write, _reason(error))
        else:
            self.core.metadata_written(write, version)
        self.settle()


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"ZooKeeper did not answer within {_METADATA_SECONDS:g} s"
    return str(error)
