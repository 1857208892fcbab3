"""Find what the cluster in ZooKeeper lacks, and what a rescue therefore writes to it.

An interrupted restore may have created the cluster without the declaration of TLS and the outside
addresses of its backup. A cluster that was created anew assigns no partition to its storages.
Touches ZooKeeper and the network.
"""

from __future__ import annotations

from collections.abc import Mapping

from waltz.admin import held_assignments, query_storages
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.cluster_backup import ClusterBackup
from waltz.metadata.core.formats import StoreParams
from waltz.metadata.core.outside_addresses import OutsideAddresses
from waltz.metadata.core.server_transport import ServerTransport
from waltz.metadata.core.storage_maps import StorageMaps
from waltz.net import Network, TlsConfig


async def missing_transport(
    cluster: Cluster, backup: ClusterBackup | None
) -> ServerTransport | None:
    """Return the declaration of TLS of ``backup`` if ZooKeeper has none, otherwise None."""
    if backup is None or backup.transport is None:
        return None
    is_missing = await cluster.store.get(cluster.paths.transport) is None
    return backup.transport if is_missing else None


async def missing_outside(
    cluster: Cluster, backup: ClusterBackup | None
) -> OutsideAddresses | None:
    """Return the outside addresses of ``backup`` if the cluster in ZooKeeper has none, else None.

    A restore that was interrupted may have created the cluster without them.
    """
    if backup is None or backup.outside is None:
        return None
    is_missing = await cluster.store.get(cluster.paths.outside) is None
    return backup.outside if is_missing else None


async def missing_assignments(
    maps: StorageMaps, params: StoreParams, tls: TlsConfig, network: Network, seconds: float
) -> Mapping[str, tuple[int, ...]]:
    """Return the partitions that each storage holds, if ``maps`` assign no partition at all.

    If they assign any partition, the assignment in ``maps`` stays, and the result is empty.
    """
    if any(maps.assignments.partitions.values()):
        return {}
    replicas = await query_storages(maps, params, tls, timeout_seconds=seconds, network=network)
    return held_assignments(replicas)
