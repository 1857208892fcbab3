"""The metadata of a cluster in ZooKeeper. All access to these znodes goes through this package.

`core` is pure: the paths and formats of the znodes, the rules for changing them, the policy that
assigns partitions to servers, and the steps by which servers and clients follow the assignment. The
modules beside `core` are not pure:

* `store`: the interface of a compare-and-set store; `kazoo_store`: its implementation
* `kazoo_handlers`: the threads and sockets of kazoo, with TLS
* `kazoo_log`: logs the state of the session, once per change
* `zookeeper_probe`: asks each server of ZooKeeper for its state, if no session can be opened
* `zookeeper_access`, `kazoo_security`: TLS, authentication and ACLs
* `retry`: retries operations that ZooKeeper did not answer
* `cluster`: typed access to the znodes of one cluster
* `optional_znodes`: reads and writes the znodes that a cluster may lack, for the next three modules
* `access`: reads, follows and changes the access rules of one cluster
* `transport`: whether the servers of one cluster use TLS, as they declare in ZooKeeper
* `outside`: reads, follows and changes the outside addresses of servers and storages
* `admin_lock`: the lock for changes of the storage maps (which storages hold which partitions) and
  of the access rules
* `lifecycle`: creation and deletion of a cluster
* `membership`: joins a cluster as a server, or follows the servers as a client
"""

from waltz.metadata.cluster import Cluster, NoCluster, VersionedValue
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import (
    NEW_PARTITION,
    UNRESOLVED,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaState,
)
from waltz.metadata.core.storage_maps import ChangeRefused, StorageMaps
from waltz.metadata.lifecycle import create_cluster, delete_cluster
from waltz.metadata.membership import ClientMembership, ServerMembership
from waltz.metadata.store import MetadataStore, StoreError, StoreUnavailable, VersionConflict
from waltz.metadata.zookeeper_access import AccessDenied, BadCredentials, ZooKeeperAccess

__all__ = [
    "NEW_PARTITION",
    "UNRESOLVED",
    "AccessDenied",
    "BadCredentials",
    "ChangeRefused",
    "ClientMembership",
    "Cluster",
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
    "VersionedValue",
    "ZooKeeperAccess",
    "create_cluster",
    "delete_cluster",
]
