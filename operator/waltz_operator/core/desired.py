"""The desired state of one cluster, and values that follow from it. Pure.

`is_own` and `own_metadata` compare the desired state with observed metadata.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from waltz_operator.core import names
from waltz_operator.core.names import CLUSTER_LABEL
from waltz_operator.core.objects import connect_string
from waltz_operator.core.observed import ClusterPresent, ObservedCluster
from waltz_operator.core.resources import StoragePool, WaltzCluster


@dataclass(frozen=True, slots=True)
class DesiredCluster:
    """A WaltzCluster and its pools.

    A pool is *claimed* by the cluster that its label ``waltz.dev/cluster`` names. ``pools`` are the
    existing pools that ``spec.pools`` names, in its order. Another cluster may have claimed some of
    them. ``leaving_pools`` are the pools that this cluster has claimed and that ``spec.pools`` does
    not name, sorted by name. ``operator_namespace`` is the namespace in which the operator runs.
    ``vanished_owners`` are clusters that no longer exist although the label of a pool in ``pools``
    still names them: such a pool is released, so that this cluster can claim it.
    """

    cluster: WaltzCluster
    pools: tuple[StoragePool, ...]
    operator_namespace: str = "waltz-system"
    vanished_owners: frozenset[str] = frozenset()
    leaving_pools: tuple[StoragePool, ...] = ()

    @property
    def name(self) -> str:
        """The WaltzCluster's name."""
        return self.cluster.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace of all objects of the cluster."""
        return self.cluster.metadata.namespace

    @property
    def key(self) -> uuid.UUID:
        """The UUID by which processes and volumes of another cluster are recognised and refused.

        It is ``spec.clusterKey`` if that field is set, otherwise the uid of the WaltzCluster. The
        cluster's znodes have the key that it had at their creation: if the two differ, the plan
        reports a problem and does not change the znodes.
        """
        return uuid.UUID(self.cluster.spec.cluster_key or self.cluster.metadata.uid)

    @property
    def metadata_name(self) -> str:
        """The cluster's name in ZooKeeper; an adopted cluster keeps the name that it has there."""
        adopt = self.cluster.spec.adopt
        if adopt is not None:
            return adopt.cluster_name
        return names.metadata_name(self.name, self.namespace)

    @property
    def root(self) -> str:
        """The cluster's root znode."""
        return self.cluster.spec.zookeeper.root

    @property
    def zookeeper(self) -> str:
        """The connect string of the cluster's ZooKeeper."""
        return connect_string(self.cluster)

    @property
    def deleting(self) -> bool:
        """Whether the WaltzCluster was deleted, and exists only because of its finalizer."""
        return self.cluster.metadata.deletion_timestamp is not None

    @property
    def own_pools(self) -> tuple[StoragePool, ...]:
        """All pools that this cluster has claimed: `wanted_pools` and ``leaving_pools``."""
        return (*self.wanted_pools, *self.leaving_pools)

    @property
    def wanted_pools(self) -> tuple[StoragePool, ...]:
        """The pools that this cluster has claimed and that its spec names."""
        return tuple(p for p in self.pools if p.metadata.labels.get(CLUSTER_LABEL) == self.name)

    @property
    def may_have_foreign_storages(self) -> bool:
        """Whether storages may be registered that are in no pool; False without ``spec.adopt``.

        The condition Foreign decides. It is False only if the last observation of the storage maps
        showed no such storage. During a deletion it keeps its value after the znodes are gone,
        because the deletion of the volumes still depends on it (`core.conditions`).
        """
        if self.cluster.spec.adopt is None:
            return False
        conditions = self.cluster.status.conditions
        return not any(each.type == "Foreign" and each.status == "False" for each in conditions)

    @property
    def has_several_copies(self) -> bool:
        """Whether a partition may have several copies, so that one storage may be away.

        There may be one copy on each pool. Pools that leave count while they belong to the cluster,
        because their storages may still have copies. Foreign storages count as one more pool.
        """
        pools = {*self.cluster.spec.pools, *(each.metadata.name for each in self.leaving_pools)}
        num_foreign = 1 if self.may_have_foreign_storages else 0
        return len(pools) + num_foreign > 1

    @property
    def missing_pools(self) -> tuple[str, ...]:
        """The names in ``spec.pools`` for which no StoragePool exists."""
        existing = {pool.metadata.name for pool in self.pools}
        return tuple(name for name in self.cluster.spec.pools if name not in existing)


def is_own(desired: DesiredCluster, present: ClusterPresent) -> bool:
    """Whether ``present`` is the metadata of this cluster, and not of another one at its root."""
    return (present.name, present.key) == (desired.metadata_name, desired.key)


def own_metadata(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPresent | None:
    """Return the metadata of this cluster; None if other metadata or none are observed."""
    present = observed.metadata
    return present if isinstance(present, ClusterPresent) and is_own(desired, present) else None


def address_of(pool: StoragePool, ordinal: int) -> str:
    """Return the address of one storage of a pool, which is its identity."""
    metadata = pool.metadata
    return names.storage_address(metadata.name, metadata.namespace, pool.spec.port, ordinal)


def addresses_of(pool: StoragePool) -> tuple[str, ...]:
    """Return the addresses of all storages that a pool specifies."""
    return tuple(address_of(pool, ordinal) for ordinal in range(pool.spec.storages))


def ordinal_of(pool: StoragePool, storage: str) -> int | None:
    """Return the ordinal of the storage at an address, None if ``pool`` has no such storage.

    The ordinal may be beyond ``spec.storages``: the number was lowered, or an earlier pool of this
    name had more storages.
    """
    prefix = f"{names.storage_set(pool.metadata.name)}-"
    number = names.pod_of_storage(storage).removeprefix(prefix)
    if not number.isdecimal() or address_of(pool, int(number)) != storage:
        return None
    return int(number)
