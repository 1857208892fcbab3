"""The metadata that a cluster shares in ZooKeeper, and the only access to them.

`core` needs no ZooKeeper: the znodes' formats and paths, the rules for changing them, the
assignment policy, and the steps of a server's or client's membership. The modules here touch
ZooKeeper, and the event loop:

* `store`: the interface of a compare-and-set store; `kazoo_store`: its implementation
* `retry`: operations that got no answer, and compare-and-set that survives a lost answer
* `cluster`: typed access to one cluster's znodes; `admin_lock`: the lock of its storage maps
* `lifecycle`: creation and deletion of a cluster
* `membership`: which server owns which partitions
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
