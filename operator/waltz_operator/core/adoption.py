"""Find the storages and servers of an adopted cluster that the operator does not run. Pure.

A cluster is *adopted* if its ``spec.adopt`` is set: it ran before, without this operator. A storage
is *foreign* if it is registered in ZooKeeper, but belongs to no pool of the cluster. A server is
foreign if it has joined the cluster, but is no pod of the cluster.

The address of a storage contains the name of its pool and the namespace, but nothing about the
Kubernetes cluster. So a storage that another operator runs in another Kubernetes cluster may have
the same address as a storage of a pool here. Such a storage *runs elsewhere*
(`storages_elsewhere`). It is not foreign, because a pool here has its address. While one runs
elsewhere, no workload starts here: `planning.adoption_guard` has the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.replicas import ReplicaObservation
from waltz.metadata.core.storage_maps import StorageMaps
from waltz.net.core.addresses import join_address
from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster, ordinal_of
from waltz_operator.core.names import Component
from waltz_operator.core.objects import ObjectKey, is_ours
from waltz_operator.core.observed import SIMULATED_SERVER, ClusterPresent, ObservedCluster
from waltz_operator.core.pod_ports import port_of_pod


@dataclass(frozen=True, slots=True)
class ForeignParts:
    """The foreign storages and servers of an adopted cluster; both empty without ``spec.adopt``."""

    storages: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()

    def obstacle_to_copies_on_pools(self) -> str | None:
        """Return why pools must not get copies yet: foreign servers run. None without them.

        The host names of the pools' storages are known only inside the Kubernetes cluster, so a
        foreign server may not reach these storages. A replica that the server does not reach counts
        in the quorum all the same, so the partition could lose its quorum. The operator cannot
        check beforehand whether a server reaches a storage: the server connects to it only after a
        replica of one of the server's partitions was assigned to the storage.
        """
        if not self.servers:
            return None
        servers = ", ".join(sorted(self.servers))
        return (
            f"servers that are no pods of this cluster have joined ({servers}), and may not reach "
            "the storages of the pools: stop them when the servers of this cluster are ready"
        )

    def unreached_storage(self, replicas: ReplicaObservation) -> str | None:
        """Return a foreign storage that has partitions and does not answer; None without one."""
        return next(
            (
                storage
                for storage in sorted(self.storages)
                if replicas.assigned(storage) and replicas.storage_problem(storage) is not None
            ),
            None,
        )


NO_FOREIGN_PARTS = ForeignParts()


def foreign_parts(
    desired: DesiredCluster, observed: ObservedCluster, present: ClusterPresent
) -> ForeignParts:
    """Return the foreign storages and servers of a cluster with ``spec.adopt``.

    Without ``spec.adopt`` the result is empty: the operator treats registered storages that are in
    no pool as its own. A server that only a preview of a plan has started is not foreign
    (`core.preview`).
    """
    if desired.cluster.spec.adopt is None:
        return NO_FOREIGN_PARTS
    port = desired.cluster.spec.servers.port
    own_servers = {
        join_address(address, port_of_pod(pod, "waltz", port))
        for pod in observed.of_kind("Pod", Component.SERVER)
        if (address := (pod.get("status") or {}).get("podIP"))
    }
    foreign_servers = present.servers - {*own_servers, SIMULATED_SERVER}
    return ForeignParts(foreign_storages(desired, present.maps), foreign_servers)


def foreign_outside_addresses(
    desired: DesiredCluster, observed: ObservedCluster, present: ClusterPresent
) -> dict[str, str]:
    """Return the outside addresses that ZooKeeper has for foreign storages and servers.

    The keys are the addresses that the processes have registered. An outside address is the one
    that clients outside of the Kubernetes cluster use instead. This operator keeps the outside
    addresses of foreign processes, because an administrator or another operator has written them.
    """
    parts = foreign_parts(desired, observed, present)
    # A storage has registered two addresses: one for servers, and one for administration.
    admin_addresses = present.maps.admin_addresses()
    foreign_admin = {admin_addresses[each] for each in parts.storages & admin_addresses.keys()}
    foreign = parts.storages | parts.servers | foreign_admin
    return {
        registered: outside
        for registered, outside in (present.outside or {}).items()
        if registered in foreign
    }


def foreign_storages(desired: DesiredCluster, maps: StorageMaps) -> frozenset[str]:
    """Return the storages in any of the storage maps that are in no pool of the cluster.

    Pools that the spec names and the cluster has not claimed yet count as pools of the cluster.
    Otherwise the storages of a cluster that is created again would be foreign at first.
    """
    pools = (*desired.pools, *desired.leaving_pools)
    known = {*maps.groups.groups, *maps.connections.admin_ports, *maps.assignments.partitions}
    return frozenset(
        storage for storage in known if all(ordinal_of(pool, storage) is None for pool in pools)
    )


def storages_elsewhere(
    desired: DesiredCluster, observed: ObservedCluster, maps: StorageMaps
) -> dict[str, str]:
    """Return the storages that run elsewhere, each with the name of the pool that has its address.

    A storage with partitions runs elsewhere if neither the StatefulSet of its pool nor the claim of
    its data volume exists here. A missing StatefulSet alone does not show this: a WaltzCluster that
    is created again has no StatefulSet at first, but the claims that were kept.

    The result is empty without ``spec.adopt``. During a deletion it is also empty if the last
    observation found no such storage (`DesiredCluster.may_have_foreign_storages`): the deletion
    itself removes the StatefulSets and the claims, so their absence shows nothing then.
    """
    if desired.cluster.spec.adopt is None:
        return {}
    if desired.deleting and not desired.may_have_foreign_storages:
        return {}
    elsewhere = {}
    for pool in (*desired.pools, *desired.leaving_pools):
        name = pool.metadata.name
        if _has_own(desired, observed, ObjectKey("StatefulSet", names.storage_set(name))):
            continue
        for storage, partitions in sorted(maps.assignments.partitions.items()):
            claim = f"data-{names.pod_of_storage(storage)}"
            if (
                partitions
                and ordinal_of(pool, storage) is not None
                and not _has_own(desired, observed, ObjectKey("PersistentVolumeClaim", claim))
            ):
                elsewhere[storage] = name
    return elsewhere


def _has_own(desired: DesiredCluster, observed: ObservedCluster, key: ObjectKey) -> bool:
    """Whether an object exists and has the labels of the cluster."""
    live = observed.objects.get(key)
    return live is not None and is_ours(live, desired.name)
