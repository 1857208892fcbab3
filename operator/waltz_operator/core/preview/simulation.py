"""Simulate a cluster while the planner's steps are applied to its observed state. Pure.

`after_step` simulates what the operator does, `settled` the reaction of Kubernetes, servers and
storages. Only what a step has changed *settles*, which means that this reaction is complete. So a
partition that is unhealthy at first stays unhealthy, and the planner waits for it, as it does in
the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from waltz.admin.core.dry_run import after_step as after_replica_step
from waltz.admin.core.replicas import PartitionView, ReplicaObservation, StorageReplicas
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    DropReplicas,
    RegisterStorage,
    RepairRecords,
    UnregisterStorage,
)
from waltz.admin.core.steps import Step as ReplicaStep
from waltz.metadata.core.formats import NEW_PARTITION
from waltz.metadata.core.storage_maps import StorageMaps
from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster, ordinal_of
from waltz_operator.core.names import CLUSTER_LABEL, FINALIZER
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import (
    SIMULATED_SERVER,
    ClusterAbsent,
    ClusterPresent,
    LiveObject,
    ObservedCluster,
    ZooKeeperUnreachable,
)
from waltz_operator.core.outside_steps import (
    DeleteOutsideAddresses,
    OutsideStep,
    SetSlot,
    WriteOutsideAddresses,
)
from waltz_operator.core.preview.certificates import (
    after_certificates_step,
    with_loaded_certificates,
)
from waltz_operator.core.preview.kubernetes import (
    is_new,
    set_of_pod,
    with_applied,
    with_claim_size,
    with_outside_addresses,
    with_pods,
    with_slot,
    without_set,
)
from waltz_operator.core.preview.replicas import with_sessions
from waltz_operator.core.rebalance import BeginRebalance, EndRebalance
from waltz_operator.core.resources import ObjectMeta, StoragePool
from waltz_operator.core.steps import (
    AddFinalizer,
    ApplyObject,
    ClaimPool,
    CompareReplica,
    CreateMetadata,
    DeleteMetadata,
    DeleteObject,
    EmptyVolume,
    GrowVolume,
    IssueCertificates,
    OrphanPods,
    PoolRecordStep,
    RecordReplacement,
    ReleasePool,
    RemoveFinalizer,
    ReplacePod,
    RotateAuthority,
    Step,
    changed_annotations,
)


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """A cluster after the steps so far.

    ``changed_sets`` are the names of the workloads that steps have changed since the cluster
    settled last. It may have names of other objects, too: these have no pods, so `with_pods` does
    nothing for them. ``changed_partitions`` are the partitions that steps have changed since then.
    """

    desired: DesiredCluster
    observed: ObservedCluster
    changed_sets: frozenset[str] = field(default=frozenset())
    changed_partitions: frozenset[int] = field(default=frozenset())

    @property
    def replicas(self) -> ReplicaObservation | None:
        """The replicas of the cluster, None if its metadata does not exist or is not observed."""
        present = self.observed.metadata
        return present.replicas if isinstance(present, ClusterPresent) else None


def after_step(cluster: SimulatedCluster, step: Step) -> SimulatedCluster:
    """Return the cluster directly after the operator has performed a step."""
    match step:
        case AddFinalizer() | RemoveFinalizer() | ClaimPool() | ReleasePool():
            return replace(cluster, desired=_with_ownership(cluster.desired, step))
        case RecordReplacement() | BeginRebalance() | EndRebalance():
            return replace(cluster, desired=_with_record(cluster.desired, step))
        case CompareReplica(pool, _, at):
            # The comparison of the partition is complete and found no difference.
            progress = replace(at, partition=at.partition + 1, next_id=0)
            record = RecordReplacement(pool, progress)
            return replace(cluster, desired=_with_record(cluster.desired, record))
        case ApplyObject(manifest, _):
            changed = cluster.changed_sets | {manifest.key.name}
            objects = with_applied(cluster.observed.objects, manifest)
            return replace(_with_objects(cluster, objects), changed_sets=changed)
        case ReplacePod(pod, _):
            changed = cluster.changed_sets | {set_of_pod(pod)}
            objects = _without(cluster.observed.objects, ObjectKey("Pod", pod))
            return replace(_with_objects(cluster, objects), changed_sets=changed)
        case DeleteObject(key, _):
            return _after_deletion(cluster, key)
        case GrowVolume() | OrphanPods() | SetSlot():
            return _after_object_step(cluster, step)
        case WriteOutsideAddresses() | DeleteOutsideAddresses():
            return _with_outside(cluster, step)
        case IssueCertificates() | RotateAuthority():
            observed = after_certificates_step(cluster.desired, cluster.observed, step)
            return replace(cluster, observed=observed)
        case CreateMetadata() | DeleteMetadata():
            return _with_metadata(cluster, step)
        case EmptyVolume(_, storage, partitions, _):
            drop = DropReplicas(storage, partitions, delete_files=True)
            return _after_replica_step(cluster, drop)
        case _:
            return _after_replica_step(cluster, step)


def settled(cluster: SimulatedCluster, *, all_catch_up: bool = False) -> SimulatedCluster:
    """Return the cluster after Kubernetes, servers and storages have reacted to the steps.

    With ``all_catch_up``, what was incomplete before the first step is completed, too: missing pods
    start, replicas that can take part in a store session catch up, processes and clients load their
    certificates, and Services get their addresses.
    """
    objects, changed = cluster.observed.objects, cluster.changed_sets
    if all_catch_up:
        changed |= {key.name for key in objects if key.kind in ("StatefulSet", "Deployment")}
        cluster = replace(cluster, observed=with_loaded_certificates(cluster.observed))
        objects = with_outside_addresses(objects)
    cluster = _with_objects(cluster, with_pods(objects, sorted(changed)))
    if cluster.desired.cluster.spec.zookeeper.managed is not None:
        cluster = replace(cluster, observed=_with_zookeeper(cluster))
    if isinstance(cluster.observed.metadata, ClusterPresent):
        present = _settled_metadata(cluster, cluster.observed.metadata, all_catch_up)
        cluster = replace(cluster, observed=replace(cluster.observed, metadata=present))
    return replace(cluster, changed_sets=frozenset(), changed_partitions=frozenset())


def _with_zookeeper(cluster: SimulatedCluster) -> ObservedCluster:
    """Return the observed state after the members of a managed ZooKeeper have started."""
    observed, name = cluster.observed, names.zookeeper_set(cluster.desired.name)
    live = observed.objects.get(ObjectKey("StatefulSet", name))
    if isinstance(observed.metadata, ZooKeeperUnreachable) and live is not None and is_new(live):
        # A new ZooKeeper is empty. Nothing is known about one that exists and does not answer.
        observed = replace(observed, metadata=ClusterAbsent())
    if observed.zookeeper_leader is None:
        # Any member may lead. The real leader is observed only during a roll of ZooKeeper.
        observed = replace(observed, zookeeper_leader=f"{name}-0")
    return observed


def _settled_metadata(
    cluster: SimulatedCluster, present: ClusterPresent, all_catch_up: bool
) -> ClusterPresent:
    """Return the metadata after storages and servers have started and sessions have begun."""
    objects, desired = cluster.observed.objects, cluster.desired
    servers = present.servers
    deployment = objects.get(ObjectKey("Deployment", names.servers(desired.name)), {})
    if not servers and (deployment.get("status") or {}).get("readyReplicas", 0) > 0:
        servers = frozenset({SIMULATED_SERVER})
    storages = dict(present.replicas.storages)
    for storage in present.maps.groups.groups:
        # A storage that was registered in the simulation answers once its pod exists, and is empty.
        if storage not in storages and _pod_of(desired, storage) in objects:
            storages[storage] = StorageReplicas()
    replicas = replace(present.replicas, storages=storages)
    # A partition that was never open opens as soon as there is a server, without a further step.
    never_open = {p for p, view in replicas.partitions.items() if not view.metadata.replicas}
    if all_catch_up:
        partitions = frozenset(replicas.partitions)
    else:
        partitions = cluster.changed_partitions | never_open
    if servers:
        replicas = with_sessions(replicas, partitions, all_catch_up=all_catch_up)
    return replace(present, replicas=replicas, servers=servers)


def _pod_of(desired: DesiredCluster, storage: str) -> ObjectKey | None:
    """Return the key of a storage's pod, None if the storage is in no pool of the cluster."""
    for pool in desired.own_pools:
        if (ordinal := ordinal_of(pool, storage)) is not None:
            return ObjectKey("Pod", f"{names.storage_set(pool.metadata.name)}-{ordinal}")
    return None


# ---- resources


def _with_ownership(
    desired: DesiredCluster, step: AddFinalizer | RemoveFinalizer | ClaimPool | ReleasePool
) -> DesiredCluster:
    """Return the desired state after a step has changed labels or finalizers of resources."""
    match step:
        case AddFinalizer() | RemoveFinalizer():
            finalizers = (FINALIZER,) if isinstance(step, AddFinalizer) else ()
            metadata = desired.cluster.metadata.model_copy(update={"finalizers": finalizers})
            return replace(
                desired, cluster=desired.cluster.model_copy(update={"metadata": metadata})
            )
        case ClaimPool(pool, cluster):
            return _with_pool(
                desired, pool, {"labels": {CLUSTER_LABEL: cluster}, "finalizers": (FINALIZER,)}
            )
        case ReleasePool(pool):
            leaving = tuple(p for p in desired.leaving_pools if p.metadata.name != pool)
            released: dict[str, object] = {"labels": {}, "finalizers": ()}
            return replace(_with_pool(desired, pool, released), leaving_pools=leaving)


def _with_record(desired: DesiredCluster, step: PoolRecordStep) -> DesiredCluster:
    """Return the desired state after the progress of a change was recorded in its pool."""
    metadata = next(p.metadata for p in desired.own_pools if p.metadata.name == step.pool)
    changes = changed_annotations(metadata, step)
    merged: dict[str, str | None] = {**metadata.annotations, **changes}
    annotations = {key: value for key, value in merged.items() if value is not None}
    return _with_pool(desired, step.pool, {"annotations": annotations})


def _with_pool(
    desired: DesiredCluster, name: str, metadata: Mapping[str, object]
) -> DesiredCluster:
    """Return the desired state with other fields of the metadata of one pool."""

    def changed(pool: StoragePool) -> StoragePool:
        if pool.metadata.name != name:
            return pool
        new: ObjectMeta = pool.metadata.model_copy(update=dict(metadata))
        return pool.model_copy(update={"metadata": new})

    return replace(
        desired,
        pools=tuple(map(changed, desired.pools)),
        leaving_pools=tuple(map(changed, desired.leaving_pools)),
    )


# ---- objects


def _with_objects(
    cluster: SimulatedCluster, objects: Mapping[ObjectKey, LiveObject]
) -> SimulatedCluster:
    """Return the cluster with other objects."""
    return replace(cluster, observed=replace(cluster.observed, objects=objects))


def _without(
    objects: Mapping[ObjectKey, LiveObject], *gone: ObjectKey
) -> dict[ObjectKey, LiveObject]:
    """Return the objects except those of the keys ``gone``."""
    return {key: live for key, live in objects.items() if key not in gone}


def _after_object_step(
    cluster: SimulatedCluster, step: GrowVolume | OrphanPods | SetSlot
) -> SimulatedCluster:
    """Return the cluster after the change of one object."""
    objects = cluster.observed.objects
    match step:
        case GrowVolume(claim, _, size):
            return _with_objects(cluster, with_claim_size(objects, claim, size))
        case OrphanPods(workload, _):
            key = ObjectKey("StatefulSet", workload)
            return _with_objects(cluster, _without(objects, key))
        case SetSlot(pod, slot):
            return _with_objects(cluster, with_slot(objects, pod, slot))


def _after_deletion(cluster: SimulatedCluster, key: ObjectKey) -> SimulatedCluster:
    """Return the cluster after Kubernetes has deleted an object.

    With a StatefulSet, its pods are deleted. With a volume claim, its volume is deleted.
    """
    objects = cluster.observed.objects
    if key.kind == "StatefulSet":
        return _with_objects(cluster, without_set(objects, key.name))
    result = _with_objects(cluster, _without(objects, key))
    present = cluster.observed.metadata
    if key.kind != "PersistentVolumeClaim" or not isinstance(present, ClusterPresent):
        return result
    # A storage whose data volume was deleted starts with an empty one.
    storages = dict(present.replicas.storages)
    for storage in storages:
        pod = _pod_of(cluster.desired, storage)
        if pod is not None and key.name == f"data-{pod.name}":
            storages[storage] = StorageReplicas()
    return _with_replicas(result, present, replace(present.replicas, storages=storages))


# ---- metadata and replicas


def _with_metadata(
    cluster: SimulatedCluster, step: CreateMetadata | DeleteMetadata
) -> SimulatedCluster:
    """Return the cluster after its metadata was created in ZooKeeper or deleted there."""
    metadata: ClusterAbsent | ClusterPresent = ClusterAbsent()
    if isinstance(step, CreateMetadata):
        count, maps = step.num_partitions, StorageMaps.empty()
        # A partition that no server serves has a problem (`PartitionView.server_problem`).
        views = {
            p: PartitionView(p, frozenset(), NEW_PARTITION, server_problem="new")
            for p in range(count)
        }
        replicas = ReplicaObservation(maps, count, views, storages={})
        metadata = ClusterPresent(step.name, count, step.key, maps, replicas)
    return replace(cluster, observed=replace(cluster.observed, metadata=metadata))


def _with_outside(cluster: SimulatedCluster, step: OutsideStep) -> SimulatedCluster:
    """Return the cluster with other outside addresses in ZooKeeper."""
    addresses = dict(step.addresses) if isinstance(step, WriteOutsideAddresses) else None
    present = cluster.observed.metadata
    assert isinstance(present, ClusterPresent), "addresses change only while they are observed"
    metadata = replace(present, outside=addresses)
    return replace(cluster, observed=replace(cluster.observed, metadata=metadata))


def _after_replica_step(cluster: SimulatedCluster, step: ReplicaStep) -> SimulatedCluster:
    """Return the cluster after a step that changes storages or replicas."""
    present = cluster.observed.metadata
    assert isinstance(present, ClusterPresent), "replicas change only while they are observed"
    replicas = after_replica_step(present.replicas, step)
    if isinstance(step, UnregisterStorage):
        # Only registered storages are observed.
        storages = {s: report for s, report in replicas.storages.items() if s != step.storage}
        replicas = replace(replicas, storages=storages)
    changed = cluster.changed_partitions | _partitions_of(step)
    return replace(_with_replicas(cluster, present, replicas), changed_partitions=changed)


def _with_replicas(
    cluster: SimulatedCluster, present: ClusterPresent, replicas: ReplicaObservation
) -> SimulatedCluster:
    """Return the cluster with other replicas; ``present`` is its metadata until now."""
    metadata = replace(present, maps=replicas.maps, replicas=replicas)
    return replace(cluster, observed=replace(cluster.observed, metadata=metadata))


def _partitions_of(step: ReplicaStep) -> Set[int]:
    """Return the partitions of which a step changes or fills replicas."""
    match step:
        case ChangeAssignment(changes, _):
            return {change.partition for change in changes}
        case CopyReplica() | RepairRecords():
            return {step.partition}
        case RegisterStorage() | UnregisterStorage():
            return frozenset()
        case _:
            return {*step.partitions}
