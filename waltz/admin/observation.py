"""Finds out what plans for replicas look at. Touches ZooKeeper and the network; changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from waltz.admin.core.replicas import LAG_ALLOWED, Observed, PartitionView, Scope, StorageView
from waltz.admin.core.verification import ServerAnswers
from waltz.admin.inspection import ask_servers, read_partition
from waltz.admin.storage_admin import StorageAdmin
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import NEW_PARTITION, StoreParams
from waltz.metadata.core.membership_steps import View
from waltz.metadata.core.storage_maps import StorageMaps
from waltz.net import ConnectionLost, DialFailed, RemoteFailure, TlsConfig

_PAUSE_SECONDS = 0.2


class Observer:
    """Asks ZooKeeper, servers and storages.

    ``answer_seconds`` is how long a storage or a server may be silent, or away, before it counts as
    failed: longer than a restart, so that one does not look like a fault.
    """

    def __init__(
        self,
        cluster: Cluster,
        tls: TlsConfig,
        *,
        answer_seconds: float,
        lag_allowed: int = LAG_ALLOWED,
    ) -> None:
        self._cluster = cluster
        self._tls = tls
        self._answer_seconds = answer_seconds
        self._lag_allowed = lag_allowed

    async def observe(self, scope: Scope) -> Observed:
        """Ask everybody concerned, all at once. Raises NoCluster, MalformedMetadata."""
        cluster = self._cluster
        params, maps, view = (
            await cluster.store_params(),
            await cluster.storage_maps(),
            await cluster.view(),
        )
        count = params.num_partitions
        wanted = range(count) if scope.partitions is None else scope.partitions
        partitions = [p for p in wanted if 0 <= p < count]
        owners = {p: owner for p in partitions if (owner := _owner(view, p)) is not None}
        members = view.servers()
        asked = [members[owner] for owner in set(owners.values()) if owner in members]
        found = await asyncio.gather(*(read_partition(cluster, p) for p in partitions))
        metadata = {p: m or NEW_PARTITION for p, m in zip(partitions, found, strict=True)}
        storages = scope.storages | {
            *(s for s, group in maps.groups.groups.items() if group == scope.group),
            *(s for p in partitions for s in maps.assignments.storages_of(p)),
            *(s for p in partitions for s in metadata[p].replicas),
        }
        answers, said = await asyncio.gather(
            ask_servers(asked, self._tls, timeout_seconds=self._answer_seconds),
            self._ask_storages(storages, maps, params),
        )
        views = {}
        for p in partitions:
            problem, unreached = _what_its_server_says(p, owners.get(p), answers)
            replicas = frozenset(maps.assignments.storages_of(p))
            views[p] = PartitionView(p, replicas, metadata[p], problem, unreached)
        return Observed(maps.groups.groups, views, said, self._lag_allowed)

    async def _ask_storages(
        self, storages: Iterable[str], maps: StorageMaps, params: StoreParams
    ) -> Mapping[str, StorageView]:
        names = sorted(storages)
        ports = maps.connections.admin_ports
        views = await asyncio.gather(*(self._ask(s, ports.get(s), params) for s in names))
        return dict(zip(names, views, strict=True))

    async def _ask(self, storage: str, admin_port: int | None, params: StoreParams) -> StorageView:
        """Ask until it answers, or has been away for too long."""
        if admin_port is None:
            return StorageView(problem="it is not in the cluster")
        problem = f"no answer within {self._answer_seconds:g} s"
        try:
            async with asyncio.timeout(self._answer_seconds):
                while True:
                    try:
                        opened = StorageAdmin.open(storage, admin_port, self._tls, params)
                        async with await opened as admin:
                            states = await admin.states()
                            return StorageView({state.partition: state for state in states})
                    except (ConnectionLost, DialFailed, RemoteFailure) as away:
                        problem = str(away)
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError:
            return StorageView(problem=problem)


def _owner(view: View, partition: int) -> int | None:
    for server, owned in view.assignment.servers.items():
        if any(each.partition == partition for each in owned):
            return server
    return None


def _what_its_server_says(
    partition: int, owner: int | None, answers: Mapping[int, ServerAnswers]
) -> tuple[str | None, frozenset[str]]:
    """Return why the partition is not served, if so, and which storages its server lacks."""
    if owner is None:
        return f"no server is to have partition {partition}", frozenset()
    said = answers.get(owner)
    if said is None:
        return f"server {owner}, which is to have partition {partition}, is gone", frozenset()
    if said.problem is not None:
        return said.problem, frozenset()
    unreached = frozenset(storage for storage, reached in said.storages.items() if not reached)
    if partition not in said.partitions:
        return f"server {owner} does not have partition {partition} yet", unreached
    if not said.health.get(partition, False):
        return f"server {owner} could not open partition {partition}", unreached
    return None, unreached
