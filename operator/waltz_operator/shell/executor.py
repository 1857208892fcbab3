"""Perform the steps of a plan. Touches the API server, ZooKeeper and storages' admin ports.

`waltz_operator.shell.fencing` refuses the writes of an operator that may have lost the Lease. But a
write that was sent while the operator held the Lease may arrive after the Lease was lost. So a
write that a later plan could not correct is conditional:

* Clusters, pools, volume claims, secrets of certificates, storage maps and outside addresses
  (`waltz.metadata.core.outside_addresses`) are changed by compare-and-set.
* Objects are deleted by the uid that was observed.
* Znodes are deleted only if the cluster's name, its key and whether it is complete are as observed.

The other writes have no condition, because the next plan corrects them: all other objects are
applied, the label with a pod's slot is written (`SetSlot`), and the znode with all outside
addresses is deleted.

A storage that drops replicas checks no condition, either. So the executor checks one directly
before the request: it reads the assignment again (`_check_unassigned`), or records the step in the
pool by a compare-and-set (`EmptyVolume`).

test_unreliable_api_server_delays_start_and_deletion_only shows that failed and repeated writes do
no harm.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

from waltz.admin import CopyFailed, NotEqual, NotPossible
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    DropReplicas,
    partitions_text,
)
from waltz.metadata import ChangeRefused, StoreError, create_cluster, delete_cluster
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.outside_addresses import OutsideAddresses
from waltz.metadata.lifecycle import ClusterExists, ClusterMismatch
from waltz.metadata.outside import change_outside_addresses, delete_outside_addresses
from waltz.net import ConnectionLost, DialFailed, RemoteFailure
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import (
    ANNOTATIONS_OF_CLUSTER,
    CLUSTER_LABEL,
    FINALIZER,
    SLOT_LABEL,
)
from waltz_operator.core.outside_steps import (
    DeleteOutsideAddresses,
    SetSlot,
    WriteOutsideAddresses,
)
from waltz_operator.core.rebalance import BeginRebalance, EndRebalance
from waltz_operator.core.resources import ObjectMeta
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
    KubernetesStep,
    MetadataStep,
    OrphanPods,
    PoolRecordStep,
    PoolStep,
    RecordReplacement,
    ReleasePool,
    RemoveFinalizer,
    ReplacePod,
    RotateAuthority,
    Step,
    changed_annotations,
)
from waltz_operator.core.volume_growth import size_request
from waltz_operator.shell.certificate_steps import issue_certificates, rotate_authority
from waltz_operator.shell.environment import Environment
from waltz_operator.shell.kube_api import Conflict, Kube, KubeError
from waltz_operator.shell.replica_checks import compare_next_part

_STEP_SECONDS = 30.0
"""The time limit of a step. Some steps have none: see `_time_limit`."""

_COPY_SECONDS = 10.0
"""The time after which a copy of a replica ends early, so that the cluster is observed.

The next plan has the same step again, which continues the copy."""

_TRANSIENT = (
    ClusterExists,
    ConnectionLost,
    CopyFailed,
    DialFailed,
    KubeError,
    MalformedMetadata,
    NoCluster,
    NotEqual,
    NotPossible,  # A storage refuses the replica of the step.
    ClusterMismatch,
    ChangeRefused,
    RemoteFailure,
    StoreError,
    TimeoutError,
)
"""Errors after which the next reconcile plans again from the actual state."""


class StepFailed(Exception):
    """A step failed, or its outcome is unknown; the next reconcile observes the actual state.

    The message has the step and the reason.
    """


class Executor:
    """Performs steps for one cluster; ``desired`` is the desired state that was planned for."""

    def __init__(self, desired: DesiredCluster, kube: Kube, environment: Environment) -> None:
        self._desired = desired
        self._kube = kube
        self._environment = environment

    async def perform(self, step: Step) -> None:
        """Perform one step. Raises StepFailed."""
        try:
            async with asyncio.timeout(_time_limit(step)):
                match step:
                    case (
                        CreateMetadata()
                        | DeleteMetadata()
                        | WriteOutsideAddresses()
                        | DeleteOutsideAddresses()
                    ):
                        await self._perform_in_zookeeper(step)
                    case CompareReplica() | EmptyVolume():
                        await self._perform_on_new_volume(step)
                    case (
                        ApplyObject()
                        | ClaimPool()
                        | DeleteObject()
                        | GrowVolume()
                        | OrphanPods()
                        | ReplacePod()
                        | AddFinalizer()
                        | IssueCertificates()
                        | RemoveFinalizer()
                        | ReleasePool()
                        | RecordReplacement()
                        | BeginRebalance()
                        | EndRebalance()
                        | RotateAuthority()
                        | SetSlot()
                    ):
                        await self._perform_in_kubernetes(step)
                    case _:
                        # All other steps are those of `waltz.admin`: they change storages or
                        # replicas.
                        cluster = await self._cluster()
                        if isinstance(step, DropReplicas):
                            await _check_unassigned(cluster, step)
                        replicas = await self._environment.replica_access(self._desired, cluster)
                        clock = asyncio.get_running_loop().time
                        pause_at = clock() + _COPY_SECONDS
                        await replicas.perform(step, may_continue=lambda: clock() < pause_at)
        except _TRANSIENT as problem:
            limit = _time_limit(step)
            in_time = "in time" if limit is None else f"within {limit:g} s"
            # Only a TimeoutError has no text.
            reason = str(problem) or f"no answer {in_time}"
            raise StepFailed(f"{step}: {reason}") from problem

    async def _cluster(self) -> Cluster:
        """Return access to the cluster's metadata in ZooKeeper. Raises StoreError."""
        return Cluster(await self._environment.metadata_store(self._desired), self._desired.root)

    async def _perform_in_zookeeper(self, step: MetadataStep) -> None:
        """Create, change or delete the cluster's znodes. Raises an error of `_TRANSIENT`."""
        cluster, root = await self._cluster(), self._desired.root
        match step:
            case CreateMetadata(name, num_partitions, key):
                await create_cluster(cluster.store, root, name, num_partitions, key=key)
            case DeleteMetadata(name, key, complete):
                # Another operator may have created the cluster again since the observation.
                if await _key_and_completeness(cluster) != (key, complete):
                    raise ClusterMismatch(
                        f"The cluster at {root} in ZooKeeper has changed since it was observed; "
                        "nothing was deleted."
                    )
                await delete_cluster(cluster.store, root, name)
            case WriteOutsideAddresses(addresses, observed):
                wanted, expected = dict(addresses), dict(observed)
                # Addresses that have changed since the observation stay: the next plan compares
                # them again.
                await change_outside_addresses(
                    cluster,
                    lambda before: (
                        OutsideAddresses(wanted) if before.addresses == expected else before
                    ),
                )
            case DeleteOutsideAddresses():
                await delete_outside_addresses(cluster)

    async def _perform_in_kubernetes(self, step: KubernetesStep) -> None:
        """Perform a step at the API server. Raises KubeError."""
        namespace, metadata = self._desired.namespace, self._desired.cluster.metadata
        match step:
            case ApplyObject(wanted, _):
                await self._kube.apply(wanted.body)
            case DeleteObject(key, uid):
                await self._kube.delete(key.kind, namespace, key.name, uid)
            case ReplacePod(pod, uid):
                await self._kube.delete("Pod", namespace, pod, uid)
            case GrowVolume() | SetSlot():
                await self._patch_object(step)
            case OrphanPods(workload, uid):
                await self._kube.delete("StatefulSet", namespace, workload, uid, orphan=True)
            case AddFinalizer():
                finalizers = [*metadata.finalizers, FINALIZER]
                await _patch_metadata(self._kube, "WaltzCluster", metadata, finalizers)
            case RemoveFinalizer():
                # The connections are closed now, because a watch may report the deletion much
                # later. Only after that report does `Reconciler.reconcile` close them, too.
                await self._environment.disconnect(namespace, metadata.name)
                await _patch_metadata(
                    self._kube, "WaltzCluster", metadata, _other_finalizers(metadata)
                )
            case ClaimPool(pool) | ReleasePool(pool):
                await perform_on_pool(self._kube, self._pool(pool), step)
            case RecordReplacement() | BeginRebalance() | EndRebalance():
                await self._record(step)
            case IssueCertificates():
                await issue_certificates(self._kube, self._desired, step)
            case RotateAuthority():
                await rotate_authority(self._kube, self._desired, step)

    async def _patch_object(self, step: GrowVolume | SetSlot) -> None:
        """Change a volume claim or a pod, which Kubernetes itself has created. Raises KubeError."""
        namespace = self._desired.namespace
        match step:
            case GrowVolume(claim, version, size):
                growth = {"metadata": {"resourceVersion": version}, **size_request(size)}
                await self._kube.patch("PersistentVolumeClaim", namespace, claim, growth)
            case SetSlot(pod, slot):
                labels = {SLOT_LABEL: None if slot is None else str(slot)}
                await self._kube.patch("Pod", namespace, pod, {"metadata": {"labels": labels}})

    async def _record(self, step: PoolRecordStep) -> None:
        """Change annotations of a pool, if the pool is as observed. Raises KubeError."""
        observed = self._pool(step.pool)
        annotations = dict(changed_annotations(observed, step))
        change = {"resourceVersion": observed.resource_version, "annotations": annotations}
        await self._kube.patch("StoragePool", observed.namespace, step.pool, {"metadata": change})

    async def _perform_on_new_volume(self, step: CompareReplica | EmptyVolume) -> None:
        """Perform a step at a storage with a new volume, and record its progress in the pool.

        Raises an error of `_TRANSIENT`.
        """
        if isinstance(step, EmptyVolume):
            # Recorded first: this write fails if the pool has changed since it was observed, for
            # example because another operator has begun to fill the volume.
            await self._perform_in_kubernetes(RecordReplacement(step.pool, step.replacement))
        replicas = await self._environment.replica_access(self._desired, await self._cluster())
        match step:
            case EmptyVolume(_, storage, partitions, _):
                await replicas.perform(DropReplicas(storage, partitions, delete_files=True))
            case CompareReplica():
                progress = await compare_next_part(replicas, step)
                await self._perform_in_kubernetes(RecordReplacement(step.pool, progress))

    def _pool(self, name: str) -> ObjectMeta:
        """Return the metadata of a pool as it was when the plan was made."""
        pools = (*self._desired.pools, *self._desired.leaving_pools)
        return next(pool.metadata for pool in pools if pool.metadata.name == name)


async def _check_unassigned(cluster: Cluster, step: DropReplicas) -> None:
    """Raise ChangeRefused if ZooKeeper assigns one of the dropped partitions to the storage.

    A storage drops every replica that a request names. Since the plan was made, a user may have
    changed the spec back, and another operator may have assigned the partition again.
    """
    maps = await cluster.storage_maps()
    assigned = {*maps.assignments.partitions.get(step.storage, ())} & {*step.partitions}
    if assigned:
        raise ChangeRefused(
            f"ZooKeeper assigns {partitions_text(sorted(assigned))} to storage {step.storage}"
        )


def _time_limit(step: Step) -> float | None:
    """Return the time limit of a step in seconds.

    Two kinds of steps have no limit (None), because `waltz.admin` limits each of their requests: a
    copy of a replica, and a change of the assignment that first compares whole replicas.
    """
    match step:
        # `ChangeAssignment` is matched only if its second field, ``proofs``, is not empty.
        case CopyReplica() | ChangeAssignment(_, (_, *_)):
            return None
        case _:
            return _STEP_SECONDS


async def _key_and_completeness(cluster: Cluster) -> tuple[uuid.UUID | None, bool]:
    """Return the key in the metadata of a cluster, and whether the metadata is complete.

    The key is None if the znode with the key is missing. Raises StoreError, MalformedMetadata.
    """
    key = None
    try:
        key = (await cluster.store_params()).key
        await cluster.params()
        await cluster.storage_maps()
        await cluster.membership()
    except NoCluster:
        return key, False
    return key, True


async def perform_on_pool(kube: Kube, pool: ObjectMeta, step: PoolStep) -> None:
    """Claim or release a pool; ``pool`` is its metadata as observed. Raises KubeError."""
    match step:
        case ClaimPool(_, cluster):
            finalizers = [*_other_finalizers(pool), FINALIZER]
            await _patch_metadata(kube, "StoragePool", pool, finalizers, {CLUSTER_LABEL: cluster})
        case ReleasePool():
            await _release_pool(kube, pool)


async def _release_pool(kube: Kube, pool: ObjectMeta) -> None:
    """Remove the status of a pool, then its label, finalizer and `ANNOTATIONS_OF_CLUSTER`.

    The status is removed first. If the operator is stopped in between, the pool still has the
    label, so the release is planned and performed again. In the other order the status would stay,
    because no operator writes the status of a pool without the label. Raises KubeError.
    """
    no_status = {"metadata": {"resourceVersion": pool.resource_version}, "status": None}
    await kube.patch("StoragePool", pool.namespace, pool.name, no_status, part="status")
    # The pool is read again, because the first patch has changed its version.
    live = await kube.get("StoragePool", pool.namespace, pool.name)
    if live is None:
        return
    current = ObjectMeta.model_validate(live["metadata"])
    if current.labels.get(CLUSTER_LABEL) != pool.labels.get(CLUSTER_LABEL):
        raise Conflict(f"StoragePool {pool.name} has changed since it was observed")
    others = _other_finalizers(current)
    removed = [name for name in ANNOTATIONS_OF_CLUSTER if name in current.annotations]
    await _patch_metadata(
        kube, "StoragePool", current, others, {CLUSTER_LABEL: None}, dict.fromkeys(removed)
    )


async def _patch_metadata(
    kube: Kube,
    kind: str,
    metadata: ObjectMeta,
    finalizers: list[str],
    labels: Mapping[str, str | None] | None = None,
    annotations: Mapping[str, str | None] | None = None,
) -> None:
    """Replace the finalizers, and merge labels and annotations; None removes a label or annotation.

    The observed version in ``metadata`` makes the patch a compare-and-set. Without the version, two
    clusters could claim one pool, and the patch could remove finalizers that other controllers have
    added. Raises KubeError.
    """
    change: dict[str, Any] = {
        "resourceVersion": metadata.resource_version,
        "finalizers": finalizers,
    }
    if labels is not None:
        change["labels"] = dict(labels)
    if annotations:
        change["annotations"] = dict(annotations)
    await kube.patch(kind, metadata.namespace, metadata.name, {"metadata": change})


def _other_finalizers(metadata: ObjectMeta) -> list[str]:
    """Return the finalizers of other controllers."""
    return [each for each in metadata.finalizers if each != FINALIZER]
