"""Observe the state that orders depend on. Touches ZooKeeper and the network; changes nothing.

The result is a `ReplicaObservation`, from which the plan of an order (`core.steps`) decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from waltz.admin.core.replicas import (
    LAG_ALLOWED,
    ObservationScope,
    PartitionView,
    ReplicaObservation,
    StorageReplicas,
    commit_bounds,
)
from waltz.admin.core.verification import ServerReport
from waltz.admin.inspection import query_servers, read_partition
from waltz.admin.storage_admin import StorageAdmin
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import NEW_PARTITION, PartitionMetadata, StoreParams
from waltz.metadata.core.membership_steps import Membership
from waltz.metadata.core.storage_maps import StorageMaps
from waltz.metadata.retry import answered_within
from waltz.net import TCP, ConnectionLost, DialFailed, Network, RemoteFailure, TlsConfig

_RETRY_SECONDS = 0.2
"""The time between two attempts to query a storage."""


class ReplicaObserver:
    """Query ZooKeeper, servers and storages of one cluster.

    ``answer_seconds`` is the time after which a storage or a server without an answer counts as
    failed; a server has this time for the handshake and again for each request. With ``retry``, a
    storage that fails is queried again until this time is over, so that a restart does not look
    like a fault. ``tls`` is the TLS configuration of all connections, except those to the storages
    in ``tls_of``: each of these has its own there. ``lag_allowed`` is passed on to the
    observations. ``network`` opens the connections. ``metadata_seconds`` is ZooKeeper's time limit
    for each group of reads. If it is None, an observation waits until ZooKeeper answers.
    """

    def __init__(
        self,
        cluster: Cluster,
        tls: TlsConfig,
        *,
        answer_seconds: float,
        lag_allowed: int = LAG_ALLOWED,
        retry: bool = True,
        tls_of: Mapping[str, TlsConfig] | None = None,
        network: Network = TCP,
        metadata_seconds: float | None = None,
    ) -> None:
        self._cluster = cluster
        self._tls = tls
        self._answer_seconds = answer_seconds
        self._lag_allowed = lag_allowed
        self._retry = retry
        self._tls_of = tls_of or {}
        self._network = network
        self._metadata_seconds = metadata_seconds

    async def observe(self, scope: ObservationScope) -> ReplicaObservation:
        """Query everything in ``scope``, without partitions that do not exist.

        With ``query_peers``, the storages are queried twice. The first reports give an id up to
        which the log may be committed. The second reports, which are newer, show which replicas
        have reached this id. If there were only one round, a report that happens to be older than
        the other reports would make its replica look as if it lagged.

        Raises NoCluster, MalformedMetadata, OperationTimedOut.
        """
        cluster = self._cluster
        async with answered_within(self._metadata_seconds):
            params, maps = await cluster.store_params(), await cluster.storage_maps()
            count = params.num_partitions
            wanted = range(count) if scope.partitions is None else scope.partitions
            partitions = [p for p in wanted if 0 <= p < count]
            nodes = await asyncio.gather(*(read_partition(cluster, p) for p in partitions))
        metadata = {p: node or NEW_PARTITION for p, node in zip(partitions, nodes, strict=True)}
        groups = maps.groups.groups
        storages = {*scope.storages, *(s for s in groups if groups[s] == scope.group)}
        if scope.query_peers or scope.assigned:
            storages |= {s for p in partitions for s in maps.assignments.storages_of(p)}
        if scope.query_peers:
            storages |= {s for p in partitions for s in metadata[p].replicas}
        storages -= scope.without
        views, first_reports = await asyncio.gather(
            self._views(maps, metadata, with_servers=scope.query_peers),
            self._query_storages(storages, maps, params, with_damage=scope.damage),
        )
        if not scope.query_peers:
            return ReplicaObservation(maps, count, views, first_reports, self._lag_allowed)
        bounds = commit_bounds(views.values(), first_reports)
        # A storage that failed in the first round had its full time, or, without ``retry``, its one
        # attempt: it is not queried again.
        answered = {storage for storage, report in first_reports.items() if report.problem is None}
        second_reports = await self._query_storages(
            answered, maps, params, with_damage=scope.damage
        )
        reports = {**first_reports, **second_reports}
        return ReplicaObservation(
            maps, count, views, reports, self._lag_allowed, commit_bounds=bounds
        )

    async def _views(
        self, maps: StorageMaps, metadata: Mapping[int, PartitionMetadata], *, with_servers: bool
    ) -> Mapping[int, PartitionView]:
        """Return a view of each partition; with ``with_servers``, query the partitions' servers.

        Otherwise the views say that no server is assigned, and ``server_problem`` must be ignored.
        """
        owners: dict[int, int] = {}
        reports: Mapping[int, ServerReport] = {}
        if with_servers and metadata:
            async with answered_within(self._metadata_seconds):
                membership = await self._cluster.membership()
            owners = {p: owner for p in metadata if (owner := _owner(membership, p)) is not None}
            members = membership.servers()
            queried = [members[owner] for owner in set(owners.values()) if owner in members]
            reports = await query_servers(
                queried, self._tls, timeout_seconds=self._answer_seconds, network=self._network
            )
        views = {}
        for p in metadata:
            server_problem, unreached = _server_state(p, owners.get(p), reports)
            replicas = frozenset(maps.assignments.storages_of(p))
            views[p] = PartitionView(p, replicas, metadata[p], server_problem, unreached)
        return views

    async def _query_storages(
        self,
        storages: Iterable[str],
        maps: StorageMaps,
        params: StoreParams,
        *,
        with_damage: bool,
    ) -> Mapping[str, StorageReplicas]:
        names = sorted(storages)
        ports = maps.connections.admin_ports
        reports = await asyncio.gather(
            *(self._query_storage(s, ports.get(s), params, with_damage=with_damage) for s in names)
        )
        return dict(zip(names, reports, strict=True))

    async def _query_storage(
        self, storage: str, admin_port: int | None, params: StoreParams, *, with_damage: bool
    ) -> StorageReplicas:
        """Query one storage; with ``retry``, until it answers or ``answer_seconds`` have passed."""
        if admin_port is None:
            return StorageReplicas(problem="it is not in the cluster")
        # The reason if no attempt has ended. The error of a failed attempt says more, and replaces
        # this text.
        problem = f"no answer within {self._answer_seconds:g} s"
        tls = self._tls_of.get(storage, self._tls)
        try:
            async with asyncio.timeout(self._answer_seconds):
                while True:
                    try:
                        async with await StorageAdmin.open(
                            storage, admin_port, tls, params, self._network
                        ) as admin:
                            held = {state.partition: state for state in await admin.states()}
                            damaged = await admin.damaged_ranges() if with_damage else ()
                            return StorageReplicas(held, damaged=damaged)
                    except (ConnectionLost, DialFailed, RemoteFailure) as failure:
                        problem = str(failure)
                        if not self._retry:
                            return StorageReplicas(problem=problem)
                    await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError:
            return StorageReplicas(problem=problem)


def _owner(membership: Membership, partition: int) -> int | None:
    """Return the server that ZooKeeper assigns ``partition`` to, None if there is none."""
    for server, owned in membership.assignment.servers.items():
        if any(each.partition == partition for each in owned):
            return server
    return None


def _server_state(
    partition: int, owner: int | None, reports: Mapping[int, ServerReport]
) -> tuple[str | None, frozenset[str]]:
    """Return why no server serves the partition, and which storages its server does not reach.

    The reason is None if a server serves the partition. ``owner`` is the server that ZooKeeper
    assigns the partition to; only a running server has a report in ``reports``.
    """
    if owner is None:
        return f"no server is assigned partition {partition}", frozenset()
    report = reports.get(owner)
    if report is None:
        return f"server {owner}, which owns partition {partition}, is not running", frozenset()
    if report.problem is not None:
        return report.problem, frozenset()
    unreached = frozenset(storage for storage, reached in report.storages.items() if not reached)
    if partition not in report.partitions:
        return f"server {owner} has not acquired partition {partition} yet", unreached
    if not report.health.get(partition, False):
        return f"server {owner} could not open partition {partition}", unreached
    return None, unreached
