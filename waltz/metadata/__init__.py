"""What a cluster shares in ZooKeeper: formats, paths, rules, and the only access to it.

Pure modules decide: ``codec``, ``modified_utf8``, ``formats``, ``paths``, ``policy``, ``admin``,
``recipe``. The shell acts: ``store`` (the interface of a compare-and-set store), ``kazoo_store``
(the real one), ``retry``, ``admin_lock``, ``cluster`` (typed access), ``lifecycle`` (creating and
deleting it), ``membership`` (who owns which partitions).
"""

from waltz.metadata.cluster import Cluster, NoCluster, Versioned
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import (
    NEW_PARTITION,
    UNRESOLVED,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaState,
)
from waltz.metadata.core.storage_maps import ChangeRefused, StorageMaps
from waltz.metadata.kazoo_store import ConnectFailed, KazooStore
from waltz.metadata.lifecycle import create_cluster, delete_cluster
from waltz.metadata.membership import ClientMembership, ServerMembership
from waltz.metadata.store import MetadataStore, StoreError, StoreUnavailable, VersionConflict

__all__ = [
    "NEW_PARTITION",
    "UNRESOLVED",
    "ChangeRefused",
    "ClientMembership",
    "Cluster",
    "ConnectFailed",
    "KazooStore",
    "MalformedMetadata",
    "MetadataStore",
    "NoCluster",
    "PartitionMetadata",
    "ReplicaAssignments",
    "ReplicaState",
    "ServerMembership",
    "StorageMaps",
    "StoreError",
    "StoreUnavailable",
    "VersionConflict",
    "Versioned",
    "create_cluster",
    "delete_cluster",
]
