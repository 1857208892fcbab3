"""Sample the cluster for all browsers together, and only while one waits. Touches the network.

A *sample* has what ZooKeeper, servers and storages report at one moment. A *view* is what the page
shows of a sample. A browser requests the view after the one that it has. The first such request
starts a sample, but not before ``interval`` has passed since the last sample began. All requests
that wait get the same view. Without a request there is no sample, so the console costs nothing
while no browser shows it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from waltz.admin import query_servers
from waltz.admin.core.health import MIN_DISK_FREE, Severity, Statement
from waltz.admin.core.sample import Sample
from waltz.admin.diagnosis import unusable_cluster
from waltz.admin.monitoring import Monitor
from waltz.client.outside import network_for
from waltz.console.core.history import MOST_SECONDS_OF_RATE, History
from waltz.console.core.view import ClusterView, Names, as_value, failed_view, view_cluster
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.outside_addresses import Access
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.store import StoreError
from waltz.metadata.transport import tls_of_cluster
from waltz.metadata.zookeeper_access import BadCredentials, ZooKeeperAccess
from waltz.net import TCP, Network, TlsConfig, TlsConfigError

log = logging.getLogger(__name__)

_SESSION_TIMEOUT_MS = 30_000
"""The timeout of the session with ZooKeeper."""
_REACH_SECONDS = 15.0
"""The least time between two queries of which storages the servers reach.

The query is not a part of each sample, because servers open connections for the answer.
"""

Clock = Callable[[], float]
"""Returns a time in seconds."""


class SampleFailed(Exception):
    """The cluster could not be sampled; the text says why.

    ``statement`` says what to do. It is None if ZooKeeper does not answer.
    """

    def __init__(self, text: str, statement: Statement | None = None) -> None:
        super().__init__(text)
        self.statement = statement


@dataclass(frozen=True, slots=True)
class ConsoleTarget:
    """The cluster that the console shows, and how to connect to it.

    Each server and storage has ``timeout_seconds`` for its answer. ZooKeeper has more time, because
    to connect to it takes several answers. ``interval`` is the least time in seconds between two
    samples. Without ``tls``, the servers' declaration in ZooKeeper says whether ports use TLS.
    ``min_disk_free`` is the percentage of a storage's disk that must be free. ``access`` says
    whether the registered ("inside") or the outside addresses of the processes are dialed.
    """

    zookeeper: str
    root: str
    tls: TlsConfig | None
    zookeeper_access: ZooKeeperAccess
    interval: float
    timeout_seconds: float
    min_disk_free: float = MIN_DISK_FREE
    access: Access = "inside"


class Source:
    """Samples one cluster. The first sample opens the connection to ZooKeeper.

    At longer intervals, a `Source` also queries which storages each server reaches (``reached``).
    """

    def __init__(self, target: ConsoleTarget) -> None:
        self.target = target
        self.name = ""
        """The name of the cluster, empty before the first sample."""
        self.reached: dict[int, dict[str, bool]] = {}
        """For each server that reported it: the storages, and whether the server reaches them."""
        self._opened = AsyncExitStack()
        """Closes the connections that `_open` has opened."""
        self._monitor: Monitor | None = None
        """Takes the samples; None until `_open` has succeeded."""
        self._tls = target.tls or TlsConfig()
        """The TLS settings of the ports. `_open` replaces them by those that the target has, or
        that the servers declare in ZooKeeper."""
        self._network: Network = TCP
        """Dials the ports. `_open` replaces it by the network that `ConsoleTarget.access` needs."""
        self._query: asyncio.Task[None] | None = None
        """The last query of which storages the servers reach."""
        self._query_began: float | None = None
        """When the last query began, in seconds of the event loop; None before the first."""

    async def sample(self) -> Sample:
        """Return a sample. Raises SampleFailed."""
        # The connection to ZooKeeper may take twice the timeout and 1 s (`_open`). The queries of
        # the processes end by themselves within twice the timeout (`Monitor.sample`). So a sample
        # that exceeds this limit has waited for ZooKeeper for at least the timeout and 2 s.
        limit = self.target.timeout_seconds * 3 + 2
        try:
            async with asyncio.timeout(limit):
                monitor = self._monitor or await self._open()
                sample = await monitor.sample()
        except TimeoutError:
            raise SampleFailed(
                f"ZooKeeper at {self.target.zookeeper} did not answer within {limit:g} s"
            ) from None
        except (BadCredentials, TlsConfigError) as error:
            remedy = "Correct the file; the console then tries again"
            statement = Statement(Severity.CRITICAL, f"{error}.", remedy)
            raise SampleFailed(str(error), statement) from error
        except (StoreError, NoCluster, MalformedMetadata) as error:
            raise SampleFailed(str(error), unusable_cluster(error)) from error
        self._query_reached(sample)
        return sample

    async def close(self) -> None:
        """Close all connections."""
        try:
            if self._query is not None:
                await _end(self._query, "query which storages the servers reach")
        finally:
            await self._opened.aclose()

    async def _open(self) -> Monitor:
        """Connect to ZooKeeper and return a monitor. If this fails, close what was opened."""
        target = self.target
        async with AsyncExitStack() as opened:
            store = await KazooStore.connect(
                target.zookeeper,
                _SESSION_TIMEOUT_MS,
                target.zookeeper_access,
                connect_timeout_s=target.timeout_seconds * 2 + 1,
            )
            opened.push_async_callback(store.close)
            cluster = Cluster(store, target.root)
            self.name = (await cluster.params()).name
            self._tls = await tls_of_cluster(cluster, target.tls)
            self._network = network_for(cluster, target.access)
            monitor = await opened.enter_async_context(
                Monitor(
                    cluster,
                    self._tls,
                    timeout_seconds=target.timeout_seconds,
                    details=True,
                    network=self._network,
                )
            )
            self._opened = opened.pop_all()
        self._monitor = monitor
        return monitor

    def _query_reached(self, sample: Sample) -> None:
        """Begin a query of which storages the servers reach.

        Do nothing while a query is under way, or if the last one began less than `_REACH_SECONDS`
        ago.
        """
        now = asyncio.get_running_loop().time()
        if self._query is not None and not self._query.done():
            return
        if self._query_began is not None and now - self._query_began < _REACH_SECONDS:
            return
        self._query_began = now
        self._query = asyncio.create_task(self._query_servers(sample))

    async def _query_servers(self, sample: Sample) -> None:
        """Replace ``reached`` by what the servers report now."""
        members = sample.membership.servers().values()
        # The timeout is the default of `query_servers`, and not that of the target: before its
        # answer, a server opens connections to all its storages.
        reports = await query_servers(members, self._tls, network=self._network)
        self.reached = {
            server: dict(report.storages)
            for server, report in reports.items()
            if report.problem is None
        }


async def _end(task: asyncio.Task[None], work: str) -> None:
    """Cancel ``task`` and wait for its end. If it has failed, log the error.

    ``work`` says in the log line what the task did. The error is not raised, because the caller
    closes connections afterwards.
    """
    task.cancel()
    await asyncio.wait([task])
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("console failed to %s; it closes its connections", work, exc_info=error)


class Poller:
    """Holds the newest view of the cluster, and takes the next sample when a request waits."""

    def __init__(self, source: Source, wall_clock: Clock = time.time) -> None:
        self._source = source
        self._wall_clock = wall_clock
        # Even with a long interval, two consecutive samples must give a rate.
        self._history = History(max(MOST_SECONDS_OF_RATE, 2 * source.target.interval))
        self._view: ClusterView | None = None
        self._value: dict[str, Any] = {}
        """The JSON value of ``_view``."""
        self._number = 0
        """See `number`."""
        self._began_at: float | None = None
        """When the newest sample began, in seconds of the event loop. It may be under way."""
        self._viewed_at: float | None = None
        """When the sample of ``_view`` began, in seconds of the event loop."""
        self._sampling: asyncio.Task[None] | None = None
        """The task that takes the next sample, None while there is no such task."""
        self._waiting = 0
        """How many requests wait for the next sample."""

    @property
    def number(self) -> int:
        """The number of the newest view, 0 before the first."""
        return self._number

    async def newer_than(self, number: int) -> dict[str, Any]:
        """Return the JSON value of a view that is current and is not the view ``number``.

        ``number`` is the number of the view that the browser has, 0 for none. Wait for a sample in
        two cases: the browser has the newest view already, or the newest view is older than the
        interval, because no browser has waited since. The numbers are only compared for equality: a
        page that was loaded from an earlier process of the console may have a larger number.
        """
        if number == self._number or not self._is_current():
            self._waiting += 1
            try:
                if self._sampling is None:
                    self._sampling = asyncio.create_task(self._sample())
                # A request that is cancelled must not cancel the sample that others wait for.
                await asyncio.shield(self._sampling)
            finally:
                self._waiting -= 1
        return self._value

    def _is_current(self) -> bool:
        """Whether the newest view is of a sample that began less than one interval ago."""
        if self._viewed_at is None:
            return False
        age = asyncio.get_running_loop().time() - self._viewed_at
        return age < self._source.target.interval

    async def aclose(self) -> None:
        """End the sample that is under way, and close the connections."""
        try:
            if self._sampling is not None:
                await _end(self._sampling, "sample the cluster")
        finally:
            await self._source.close()

    async def _sample(self) -> None:
        """Wait until the next sample is due, take it, and publish its view."""
        try:
            loop = asyncio.get_running_loop()
            if self._began_at is not None:
                await asyncio.sleep(self._began_at + self._source.target.interval - loop.time())
            if self._waiting == 0:  # All browsers have left during the sleep.
                return
            self._began_at = began_at = loop.time()
            self._view = await self._next_view()
            self._viewed_at = began_at
            self._number += 1
            self._value = as_value(self._number, self._view, self._history)
        finally:
            self._sampling = None

    async def _next_view(self) -> ClusterView:
        """Sample the cluster; return its view, or the last view with the reason of a failure."""
        target = self._source.target
        try:
            sample = await self._source.sample()
        except SampleFailed as problem:
            return failed_view(self._names(), self._view, str(problem), problem.statement)
        at = self._wall_clock()
        before = self._history.add(sample, at)
        return view_cluster(
            self._names(),
            before,
            sample,
            at,
            reached=self._source.reached,
            history=self._history,
            min_disk_free=target.min_disk_free,
        )

    def _names(self) -> Names:
        """Return how the cluster is named. Before the first sample its name is empty."""
        target = self._source.target
        return Names(self._source.name, target.root, target.zookeeper)
