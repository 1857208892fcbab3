"""Collect what is needed to understand a fault afterwards. Touches ZooKeeper and the network.

A *bundle* is a set of files that a user sends to those who search for the fault: the health of the
cluster, its znodes and metadata, and the reports of its processes. It contains no records of the
log. A part that cannot be read becomes a line of ``errors``, and the other parts are collected
nevertheless.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, is_dataclass
from typing import Any

from waltz.admin.diagnosis import OpenCluster, diagnose
from waltz.admin.inspection import inspect
from waltz.admin.monitoring import Monitor
from waltz.admin.rescue import back_up
from waltz.admin.storage_admin import StorageAdmin
from waltz.client.outside import network_for
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.cluster_backup import encode_backup
from waltz.metadata.core.outside_addresses import Access
from waltz.metadata.store import MetadataStore
from waltz.metadata.transport import tls_of_cluster
from waltz.metadata.zookeeper_probe import probe_zookeeper
from waltz.net import TCP, Network, TlsConfig

_MOST_ZNODES = 20_000
"""The largest number of znodes in a bundle, so that a user can still send it."""

Bundle = dict[str, bytes]
"""The files of a bundle: contents by path."""


class BundleCollector:
    """Collects the files of one bundle. A process has ``timeout_seconds`` for each answer.

    ``open_cluster``, ``zookeeper``, ``tls``, ``access`` and ``network`` are as in `diagnose`.
    """

    def __init__(
        self,
        open_cluster: OpenCluster,
        zookeeper: str,
        tls: TlsConfig | None,
        *,
        timeout_seconds: float,
        access: Access = "inside",
        network: Network = TCP,
    ) -> None:
        self.files: Bundle = {}
        """The files that `collect` has collected."""
        self.errors: list[str] = []
        """A line for each part that could not be read."""
        self._open_cluster = open_cluster
        self._zookeeper = zookeeper
        self._tls = tls
        self._timeout_seconds = timeout_seconds
        self._access = access
        self._network = network

    async def collect(self) -> None:
        """Fill `files` and `errors`. Raises the errors of `diagnose`, which are about settings."""
        # The parts are collected concurrently with the diagnosis: otherwise both would wait, one
        # after the other, for a ZooKeeper that does not answer.
        parts = asyncio.create_task(self._collect_parts())
        try:
            health = await diagnose(
                self._open_cluster,
                self._zookeeper,
                self._tls,
                timeout_seconds=self._timeout_seconds,
                access=self._access,
                network=self._network,
            )
            self._add("health.json", health)
            self._add("zookeeper.json", await self._probe())
            await parts
        finally:
            # If `diagnose` raised an error, the other files are not needed. Otherwise the task has
            # ended already, and this has no effect.
            parts.cancel()
            await asyncio.wait([parts])

    async def _collect_parts(self) -> None:
        """Add the files that need a session with ZooKeeper, or their errors."""
        # The parts, which run concurrently, have about half of this time (`_add_part`). The rest is
        # for opening the session with ZooKeeper.
        seconds = self._timeout_seconds * 6 + 5
        limit = asyncio.timeout(seconds)
        try:
            async with limit, self._open_cluster() as cluster:
                # If ZooKeeper does not answer, all parts wait at the same time.
                await asyncio.gather(
                    self._add_part(
                        "znodes.json", lambda: _znodes(cluster.store, cluster.paths.root)
                    ),
                    self._add_part("metadata.json", lambda: _metadata(cluster)),
                    self._add_part("replicas.json", lambda: self._sample(cluster)),
                    self._add_part("checks.json", lambda: self._facts(cluster)),
                    self._add_part("storage-metrics.json", lambda: self._storage_metrics(cluster)),
                )
        except Exception as problem:
            self.errors.append(f"the cluster: {_reason(problem, limit, seconds)}")

    def _add(self, path: str, value: Any) -> None:
        """Add the file ``path`` with ``value`` as JSON."""
        text = json.dumps(_plain(value), indent=2, default=str)
        self.files[path] = text.encode() + b"\n"

    async def _add_part(self, path: str, collect: Callable[[], Awaitable[Any]]) -> None:
        """Add the file ``path`` with the result of ``collect``, or add its error to `errors`."""
        # Enough for three answers in turn, each of which has `_timeout_seconds`.
        seconds = self._timeout_seconds * 3 + 2
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                self._add(path, await collect())
        except Exception as problem:
            self.errors.append(f"{path}: {_reason(problem, limit, seconds)}")

    async def _probe(self) -> dict[str, str]:
        return await probe_zookeeper(self._zookeeper, timeout_seconds=self._timeout_seconds)

    async def _sample(self, cluster: Cluster) -> Any:
        """Return a sample (`waltz.admin.monitoring`) without what other files have."""
        async with Monitor(
            cluster,
            await tls_of_cluster(cluster, self._tls),
            timeout_seconds=self._timeout_seconds,
            details=True,
            network=network_for(cluster, self._access, self._network),
        ) as monitor:
            now = await monitor.sample()
        return {"servers": now.servers, "storages": now.storages, "metadata": now.metadata}

    async def _facts(self, cluster: Cluster) -> Any:
        """Return the facts that ``waltz cluster verify`` checks, without the metadata."""
        facts = await inspect(
            cluster,
            await tls_of_cluster(cluster, self._tls),
            timeout_seconds=self._timeout_seconds,
            network=network_for(cluster, self._access, self._network),
        )
        return {"servers": facts.servers, "storages": facts.storages}

    async def _storage_metrics(self, cluster: Cluster) -> Any:
        params, maps = await cluster.store_params(), await cluster.storage_maps()
        tls = await tls_of_cluster(cluster, self._tls)
        network = network_for(cluster, self._access, self._network)

        async def query(storage: str, port: int) -> Any:
            limit = asyncio.timeout(self._timeout_seconds)
            try:
                async with (
                    limit,
                    await StorageAdmin.open(storage, port, tls, params, network) as admin,
                ):
                    return await admin.metrics()
            except Exception as problem:
                # The error is not raised, so that the bundle gets the metrics of other storages.
                return {"problem": _reason(problem, limit, self._timeout_seconds)}

        ports = maps.connections.admin_ports
        answers = await asyncio.gather(*(query(storage, port) for storage, port in ports.items()))
        return dict(zip(ports, answers, strict=True))


async def _metadata(cluster: Cluster) -> Any:
    """Return the cluster's metadata in the form of ``waltz cluster metadata backup``."""
    return json.loads(encode_backup(await back_up(cluster)))


async def _znodes(store: MetadataStore, root: str) -> Any:
    """Return the znode ``root`` and those below it, by path: versions, times, and data as hex.

    Of a larger tree, only the first `_MOST_ZNODES` znodes are returned.
    """
    nodes: dict[str, Any] = {}
    unread_paths = [root]
    while unread_paths and len(nodes) < _MOST_ZNODES:
        path = unread_paths.pop()
        node = await store.get(path)
        if node is None:
            continue
        nodes[path] = {
            "version": node.version,
            "children_version": node.cversion,
            "session": node.owner,
            "changed_at": node.changed_at,
            "data_hex": None if node.data is None else node.data.hex(),
        }
        unread_paths += [f"{path}/{name}" for name in (await store.children(path)).names]
    return nodes


def _reason(problem: Exception, limit: asyncio.Timeout, seconds: float) -> str:
    """Return why something could not be collected: its time limit has expired, or ``problem``.

    ``seconds`` is the duration of ``limit``.
    """
    if limit.expired():
        return f"no answer within {seconds:g} s"
    return repr(problem)


def _plain(value: Any) -> Any:
    """Return ``value`` in the types of JSON.

    Dataclasses become maps, keys become texts, sets and tuples become lists.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(content) for key, content in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return value
