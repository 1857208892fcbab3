"""Plan what to do next for one cluster: ``plan(desired, observed)``. Pure.

The plan depends only on the desired and the observed state. So it does not matter which steps were
performed before, which operator performed them, or after which step that operator was interrupted
(shown by test_plan_from_any_state_reaches_the_desired_state). This package plans all steps of the
operator:

* ``workloads``: Kubernetes objects; ``certificates``: the secrets with certificates; ``rotation``:
  the rotation of the authority that signs them
* ``znodes``: the metadata and the registration of storages; ``replicas``: the assignment of
  partitions; ``shape``: changes of pools and storages
* ``rolls``: the replacement of outdated pods; ``updates`` finds pods that an operator of another
  version has specified
* ``healing``: the replacement of lost volumes; ``volume_sizes``: the growth of volumes
* ``outside``: the access of clients outside of the Kubernetes cluster; ``adoption_guard``: the
  refusal to adopt a cluster whose storages run in another Kubernetes cluster
* ``deletion``: the deletion of a cluster; ``planner`` combines the plans of all modules

Invariants of every plan:

*Identity.* A storage's ``host:port``, its group and its admin port never change once it has a
partition. A StatefulSet is never scaled below its highest registered storage, and a storage is
unregistered only when it holds nothing. Otherwise the only replica of a committed transaction could
become unreachable (test_stateful_set_is_never_scaled_below_registered).

*Quorum.* A partition that may have transactions gets or loses a replica only in two cases: if the
replicas that stay are healthy and are a quorum both of the old and of the new set, or if a storage
of the partition's last store session is assigned to it again. Such a change is one write and the
last step of a plan. The next change waits until all replicas have caught up
(tests/unit/operator/test_operator_plan_quorum.py).

*Shape.* A replica is unassigned on purpose only if range checksums show, directly before the
change, that the replicas that stay are equal. A storage drops an unassigned replica only after the
partition has recovered in a store session without this replica
(tests/unit/operator/test_operator_shape_properties.py).

*Adoption.* A cluster that the operator did not create is changed only if ``spec.adopt`` and
``spec.clusterKey`` state its name and its key. *Foreign* storages and servers are those of the
cluster that the operator does not run (`core.adoption`). Pools get copies only when no foreign
server runs. A copy on a foreign storage is given up only if the user asks for it, and if three
pools have a copy; the files stay. Nothing else at foreign storages is changed
(tests/unit/operator/test_operator_adoption_properties.py).

*Balance.* The moves of a rebalance are recorded in the pool before the first of them, and no
partition moves twice for one request. Partitions that are arranged by bytes are not spread by count
(tests/unit/operator/test_operator_rebalance_properties.py).

*Disruption.* The disruption budget of the storages allows no eviction unless every replica of every
partition is healthy, and never an eviction that costs a partition its quorum (`core.disruption`,
tests/unit/operator/test_operator_disruption.py).

*Rolling changes.* A storage whose replicas are healthy is stopped for another version only if every
replica of all partitions is healthy, and never together with another storage. If a pod of a new
version does not start, no second pod gets this version (`rolls`, which also has the rules for a
storage that has failed; tests/unit/operator/test_operator_roll_properties.py).

*Updates.* An operator of another version restarts no pod: the template of a workload changes only
if a user has changed a field that its pods depend on, or has requested the update. The exception is
a template that endangers records or secrets (`core.pod_templates.TEMPLATE_VERSION`,
tests/unit/operator/test_operator_pod_templates.py).

*Growth.* No pod is stopped because its volumes grow, except one whose file system has waited for
its resize too long. A StatefulSet is deleted without its pods, and created again with other claim
templates, only while all of its pods run its current version
(tests/unit/operator/test_operator_growth_properties.py).

*Healing.* The volume of one storage at a time is replaced, and only while every replica on the
other storages is healthy. Among several storages that have lost their replicas, one is replaced
although the replicas on the others are not healthy. No volume claim is deleted before the
StoragePool records the replacement (`healing`,
tests/unit/operator/test_operator_healing_properties.py).

*Certificates.* Any two processes, and any client and process, accept each other's certificates,
whatever certificates of the operator they have loaded so far. A phase of the rotation of the
authority begins only after all pods have loaded the certificates of the phase before it, and after
the certificate of the clients was issued (`rotation`,
tests/unit/operator/test_operator_rotation.py).

*Outside.* Clients outside reach a server by the Service of its *slot* (`core.slots`). A server gets
a slot only when no other pod has it. Outside addresses are deleted only if the operator has written
them (`outside`, tests/unit/operator/test_operator_outside_properties.py).

*History.* Znodes are created only where there are none, and only for a cluster that has never
existed (test_vanished_metadata_of_an_existing_cluster_is_never_created_again). Znodes are deleted
only if they were never used or if the cluster's deletion requires it. Once the cluster exists,
empty ZooKeeper members form no new ensemble: in a new ensemble the cluster would seem not to exist,
although the storages still have its log
(test_switch_forbids_empty_members_a_new_ensemble_once_the_cluster_exists).

*Ownership.* An object, a pool or a root that does not belong to this cluster is never changed
(test_foreign_objects_are_never_changed, test_foreign_root_is_never_changed). A pool whose label
names a cluster that no longer exists belongs to no cluster.

*Order.* A step is planned only after its precondition is observed: storages start after the
metadata exists, servers after every new partition has a replica in every pool. The repair of an
object that exists has no precondition.
"""

from waltz_operator.core.planning.deletion import plan_orphaned_pool
from waltz_operator.core.planning.planner import plan

__all__ = ["plan", "plan_orphaned_pool"]
