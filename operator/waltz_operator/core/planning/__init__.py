"""Plan what to do next for one cluster: ``plan(desired, observed)``. Pure.

The plan depends only on the desired and the observed state, so it does not matter which steps were
done before, which operator did them, or where it was interrupted (shown by
test_plan_from_any_state_reaches_the_desired_state). All steps of the operator come from here.
``workloads`` plans Kubernetes objects, ``znodes`` the metadata and the registration of storages,
``replicas`` the assignment of partitions, ``deletion`` the end of a cluster.

Invariants of every plan:

*Identity.* A storage's ``host:port``, its group and its admin port never change once it has a
partition. A StatefulSet is never scaled below its highest registered storage. Otherwise the only
replica of a committed transaction could become unreachable
(test_stateful_set_is_never_scaled_below_registered).

*Quorum.* A partition that may have transactions gets or loses a replica only if the replicas that
stay are healthy and are a quorum both of the old and of the new set, or if it gets back a replica
of its last session. Such a change is one write, the last step of a plan, and the next one waits
until all replicas have followed (tests/unit/operator/test_operator_plan_quorum.py).

*History.* Znodes are created only where there are none. They are deleted only if they were never
used or if the cluster's deletion requires it. An empty ZooKeeper member founds no new ensemble once
the cluster exists: it would hide the log that the storages still have
(test_switch_forbids_empty_zookeeper_members_to_found_once_the_cluster_exists).

*Ownership.* An object, a pool or a root that is not this cluster's is never changed
(test_foreign_objects_are_never_changed, test_foreign_root_is_never_changed).

*Order.* A step whose precondition is not yet observed waits: storages start after the metadata
exists, servers after every new partition has a replica in every pool. Repairs wait for nothing.
"""

from waltz_operator.core.planning.deletion import plan_orphaned_pool
from waltz_operator.core.planning.planner import plan

__all__ = ["plan", "plan_orphaned_pool"]
