"""Collect the facts that `core.verification` checks. Touches ZooKeeper and the network.

The requests change nothing: they begin no store session, write no znode, and raise no fence. (A
storage refuses requests of sessions below the fence, so a raised fence would stop a server.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from waltz.admin.core.verification import ClusterFacts, ServerReport, StorageReport
from waltz.admin.server_query import ServerQuery, ServerUnreachable
from waltz.admin.storage_admin import StorageAdmin
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import PartitionMetadata, ServerDescriptor, StoreParams
from waltz.metadata.retry import until_answered
from waltz.net import TCP, ConnectionLost, DialFailed, Network, RemoteFailure, TlsConfig


async def inspect(
    cluster: Cluster, tls: TlsConfig, *, timeout_seconds: float = 10.0, network: Network = TCP
) -> ClusterFacts:
    """Query ZooKeeper, every server and every storage concurrently.

    The report of a process that does not answer has only the reason. A storage has
    ``timeout_seconds`` for its whole answer, a server for the handshake and again for each request.
    Raises NoCluster, MalformedMetadata.
    """
    params = await cluster.store_params()
    membership, maps = await cluster.membership(), await cluster.storage_maps()
    members, ports = membership.servers(), maps.connections.admin_ports
    storages = sorted({*maps.groups.groups, *ports, *maps.assignments.partitions})
    server_answers, storage_answers, metadata = await asyncio.gather(
        query_servers(members.values(), tls, timeout_seconds=timeout_seconds, network=network),
        asyncio.gather(
            *(
                _query_storage(storage, ports.get(storage), tls, params, timeout_seconds, network)
                for storage in storages
            )
        ),
        read_partitions(cluster, params.num_partitions),
    )
    return ClusterFacts(
        num_partitions=params.num_partitions,
        assignment=membership.assignment,
        members=members,
        replicas=maps.assignments,
        metadata=metadata,
        servers=server_answers,
        storages=dict(zip(storages, storage_answers, strict=True)),
    )


async def query_servers(
    members: Iterable[ServerDescriptor],
    tls: TlsConfig,
    *,
    timeout_seconds: float = 10.0,
    network: Network = TCP,
) -> Mapping[int, ServerReport]:
    """Query servers concurrently: their partitions, the partitions' health, the storages reached.

    Return the reports by server id. A server has ``timeout_seconds`` for the handshake and again
    for each request.
    """
    queried = tuple(members)
    queries = (_query_server(each, tls, timeout_seconds, network) for each in queried)
    answers = await asyncio.gather(*queries)
    return {each.server_id: answer for each, answer in zip(queried, answers, strict=True)}


async def read_partitions(cluster: Cluster, num_partitions: int) -> Mapping[int, PartitionMetadata]:
    """Return the metadata of those partitions that a server has opened at least once."""
    return {p: node.metadata for p, node in (await read_nodes(cluster, num_partitions)).items()}


@dataclass(frozen=True, slots=True)
class PartitionNode:
    """The metadata of a partition, and when they were written (None: unknown)."""

    metadata: PartitionMetadata
    changed_at: float | None


async def read_nodes(cluster: Cluster, num_partitions: int) -> Mapping[int, PartitionNode]:
    """Return the nodes of those partitions that a server has opened at least once."""
    nodes = await asyncio.gather(*(_read_node(cluster, p) for p in range(num_partitions)))
    return {p: node for p, node in enumerate(nodes) if node is not None}


async def read_partition(cluster: Cluster, partition: int) -> PartitionMetadata | None:
    """Return a partition's metadata, None if no server has ever opened it."""
    node = await _read_node(cluster, partition)
    return None if node is None else node.metadata


async def _read_node(cluster: Cluster, partition: int) -> PartitionNode | None:
    path = cluster.paths.partition(partition)
    node = await until_answered(cluster.store, lambda: cluster.store.get(path))
    if node is None or node.data is None:
        return None
    return PartitionNode(PartitionMetadata.decode(node.data, partition), node.changed_at)


async def _query_server(
    descriptor: ServerDescriptor, tls: TlsConfig, timeout_seconds: float, network: Network
) -> ServerReport:
    """Return the report of a server; if the server does not answer, a report with the reason."""
    endpoint = descriptor.host, descriptor.port
    try:
        async with await ServerQuery.open(
            endpoint, tls, timeout_seconds=timeout_seconds, network=network
        ) as server:
            return ServerReport(
                frozenset(await server.partitions()), await server.storages(), await server.health()
            )
    except ServerUnreachable as problem:
        return ServerReport(problem=str(problem))


async def _query_storage(
    storage: str,
    admin_port: int | None,
    tls: TlsConfig,
    params: StoreParams,
    timeout_seconds: float,
    network: Network,
) -> StorageReport:
    """Return the report of a storage; if the storage does not answer, a report with the reason."""
    if admin_port is None:
        return StorageReport(problem=f"the admin port of storage {storage} is not known")
    try:
        async with asyncio.timeout(timeout_seconds):
            async with await StorageAdmin.open(storage, admin_port, tls, params, network) as admin:
                states = await admin.states()
        return StorageReport(
            {state.partition: state.available for state in states},
            {state.partition: state.session_id for state in states},
        )
    except TimeoutError:
        return StorageReport(
            problem=f"storage {storage} did not answer within {timeout_seconds:g} s"
        )
    except (DialFailed, ConnectionLost, RemoteFailure) as problem:
        return StorageReport(problem=f"storage {storage}: {problem}")
