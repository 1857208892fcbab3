"""What users want of one cluster, and what follows from that alone. Pure."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from waltz_operator.core import names
from waltz_operator.core.names import CLUSTER_LABEL
from waltz_operator.core.objects import connect_string
from waltz_operator.core.resources import StoragePool, WaltzCluster


@dataclass(frozen=True, slots=True)
class Desired:
    """A WaltzCluster and those of its pools that there are, in the order of its ``spec.pools``.

    ``operator_namespace`` is where the operator itself runs.
    """

    cluster: WaltzCluster
    pools: tuple[StoragePool, ...]
    operator_namespace: str = "waltz-system"

    @property
    def name(self) -> str:
        """The WaltzCluster's name."""
        return self.cluster.metadata.name

    @property
    def namespace(self) -> str:
        """Where everything of the cluster is."""
        return self.cluster.metadata.namespace

    @property
    def key(self) -> uuid.UUID:
        """What keeps the processes and volumes of other clusters out: random, and never changes."""
        return uuid.UUID(self.cluster.spec.cluster_key or self.cluster.metadata.uid)

    @property
    def metadata_name(self) -> str:
        """What the cluster is called in ZooKeeper."""
        return names.metadata_name(self.name, self.namespace)

    @property
    def root(self) -> str:
        """Its znode."""
        return self.cluster.spec.zookeeper.root

    @property
    def zookeeper(self) -> str:
        """Where its ZooKeeper is."""
        return connect_string(self.cluster)

    @property
    def deleting(self) -> bool:
        """Whether somebody has deleted the WaltzCluster."""
        return self.cluster.metadata.deletion_timestamp is not None

    @property
    def own_pools(self) -> tuple[StoragePool, ...]:
        """The pools that are claimed for this cluster, and for no other one."""
        return tuple(p for p in self.pools if p.metadata.labels.get(CLUSTER_LABEL) == self.name)

    @property
    def missing_pools(self) -> tuple[str, ...]:
        """The pools that nobody has made."""
        there = {pool.metadata.name for pool in self.pools}
        return tuple(name for name in self.cluster.spec.pools if name not in there)


def address_of(pool: StoragePool, ordinal: int) -> str:
    """Return the identity of one storage of a pool."""
    metadata = pool.metadata
    return names.storage_address(metadata.name, metadata.namespace, pool.spec.port, ordinal)


def addresses_of(pool: StoragePool) -> tuple[str, ...]:
    """Return the identities of all storages that a pool shall have."""
    return tuple(address_of(pool, ordinal) for ordinal in range(pool.spec.storages))


def ordinal_of(pool: StoragePool, storage: str) -> int | None:
    """Return which storage of ``pool`` this is, None if it is none."""
    prefix = f"{names.storage_set(pool.metadata.name)}-"
    number = storage.partition(".")[0].removeprefix(prefix)
    if not number.isdecimal() or address_of(pool, int(number)) != storage:
        return None
    return int(number)
