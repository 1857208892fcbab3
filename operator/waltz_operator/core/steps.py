"""The steps of the operator, and the plan that holds them. Pure.

Every step is idempotent and may be interrupted anywhere: the next reconcile reads the actual state
and plans again. The text of a step becomes the message of a Kubernetes event.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from waltz.admin.core.steps import Step as ReplicaStep
from waltz.admin.core.steps import partitions_text
from waltz_operator.core.authority import AuthorityRotation, Holder, RotationPhase
from waltz_operator.core.names import OUTSIDE_LABEL, REBALANCED_ANNOTATION, is_outside
from waltz_operator.core.objects import Manifest, ObjectKey
from waltz_operator.core.outside_steps import (
    DeleteOutsideAddresses,
    OutsideStep,
    SetSlot,
    WriteOutsideAddresses,
)
from waltz_operator.core.rebalance import BeginRebalance, EndRebalance, RebalanceStep
from waltz_operator.core.resources import ObjectMeta
from waltz_operator.core.shape_change import ShapeChange
from waltz_operator.core.volume_replacement import Phase, Replacement, record_annotations


@dataclass(frozen=True, slots=True)
class ClaimPool:
    """Label a pool with the name of its ``cluster``, and add the finalizer to it.

    The step is a compare-and-set of the pool's version, so two clusters can never use one pool.
    """

    pool: str
    cluster: str

    def __str__(self) -> str:
        return f"StoragePool {self.pool} is claimed"


@dataclass(frozen=True, slots=True)
class ReleasePool:
    """Remove a pool's label and finalizer, so that another cluster can claim the pool.

    If a user has deleted the pool, Kubernetes removes it now, because it has no finalizer any more.
    """

    pool: str

    def __str__(self) -> str:
        return f"StoragePool {self.pool} is released"


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Add the finalizer to the WaltzCluster, so that Kubernetes keeps it until the cleanup ends."""

    def __str__(self) -> str:
        return "finalizer added"


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove the WaltzCluster's finalizer, so that Kubernetes deletes the WaltzCluster."""

    def __str__(self) -> str:
        return "cleanup complete, finalizer removed"


@dataclass(frozen=True, slots=True)
class ApplyObject:
    """Create or repair an object by a server-side apply; ``new`` is true if it does not exist."""

    manifest: Manifest
    new: bool

    def __str__(self) -> str:
        return f"{self.manifest.key} is {'created' if self.new else 'repaired'}"


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete the object with this uid; another object that has got the name since is kept."""

    key: ObjectKey
    uid: str

    def __str__(self) -> str:
        return f"{self.key} is deleted"


@dataclass(frozen=True, slots=True)
class GrowVolume:
    """Let a volume claim request ``size``; Kubernetes then enlarges the volume.

    The step is a compare-and-set of the claim's version. Otherwise a late write could request a
    size that the spec no longer has, which cannot be undone: a volume never shrinks.
    """

    claim: str
    version: str
    size: str

    def __str__(self) -> str:
        return f"volume {self.claim} grows to {self.size}"


@dataclass(frozen=True, slots=True)
class OrphanPods:
    """Delete the StatefulSet with this uid and leave its pods, which run on without it.

    Kubernetes changes no claim template of an existing StatefulSet. So the next plan creates the
    StatefulSet again, and the new one adopts the pods.
    """

    workload: str
    uid: str

    def __str__(self) -> str:
        return (
            f"StatefulSet {self.workload} is deleted without its pods; it is created again with "
            "the new size of its volumes"
        )


@dataclass(frozen=True, slots=True)
class ReplacePod:
    """Delete the pod with this uid: its StatefulSet creates it again from the current template."""

    pod: str
    uid: str

    def __str__(self) -> str:
        return (
            f"pod {self.pod} is deleted; its StatefulSet creates it again from the current template"
        )


@dataclass(frozen=True, slots=True)
class IssueCertificates:
    """Create the missing secret of ``holder``; with ``renew``, renew the certificate in its secret.

    An existing certificate authority is kept. A new one is created only if the processes have no
    certificate: processes with certificates of two authorities could not connect to each other. The
    issued certificates are those of the present phase of the authority's rotation. ``outside`` are
    the names and IP addresses by which clients outside reach the processes. It is empty for the
    certificate of the clients.
    """

    renew: bool
    holder: Holder = Holder.PROCESSES
    outside: tuple[str, ...] = ()

    def __str__(self) -> str:
        changed = "renewed" if self.renew else "created"
        match self.holder:
            case Holder.PROCESSES:
                return f"certificates are {changed}"
            case Holder.CLIENTS:
                return f"the certificate of the clients is {changed}"


@dataclass(frozen=True, slots=True)
class RotateAuthority:
    """Begin the phase ``to`` of the rotation of the certificate authority.

    The step changes the authority's secret only, as a compare-and-set of its ``version``; the next
    plan issues the certificates of the phase. ``request`` is the value of the annotation that
    requests rotations. It is recorded when a rotation begins.
    """

    to: RotationPhase
    request: str
    version: str

    def __str__(self) -> str:
        match self.to:
            case RotationPhase.SETTLED:
                return "the rotation of the certificate authority is complete"
            case RotationPhase.TRUST | RotationPhase.SIGN | RotationPhase.RETIRE:
                return f"rotation of the certificate authority, {AuthorityRotation(self.to)}"


@dataclass(frozen=True, slots=True)
class CreateMetadata:
    """Create the znodes of a new cluster."""

    name: str
    num_partitions: int
    key: uuid.UUID

    def __str__(self) -> str:
        return f"the cluster {self.name} is created in ZooKeeper"


@dataclass(frozen=True, slots=True)
class DeleteMetadata:
    """Delete the znodes of a cluster that is deleted or whose creation was interrupted.

    The znodes are deleted only if their state is still the observed one: ``key`` is the key that
    was observed, None if there was none; ``complete`` is false if parts of the metadata were
    missing.
    """

    name: str
    key: uuid.UUID | None
    complete: bool

    def __str__(self) -> str:
        return f"the cluster {self.name} is deleted in ZooKeeper"


@dataclass(frozen=True, slots=True)
class RecordReplacement:
    """Record the progress of a volume replacement in the pool.

    ``replacement`` is the progress. None removes the record, in three cases:

    * The replacement is complete: ``request`` is None, and ``pod_has_left`` is false.
    * It is postponed: ``request`` is the name of the pod. The step writes a request for this pod,
      in place of any other request of the pool, so that the replacement begins again later.
    * It is obsolete, because the pool no longer has the pod: ``pod_has_left`` is true.

    When a replacement begins, the step removes the request. The step is a compare-and-set of the
    pool's version.
    """

    pool: str
    replacement: Replacement | None
    request: str | None = None
    pod_has_left: bool = False

    def __str__(self) -> str:
        # The recorded phase begins now. The text of the first phase says so. The text of a later
        # phase says what the phase before it has done.
        match self.replacement:
            case None if self.request is not None:
                return (
                    f"StoragePool {self.pool}: the replacement of the volume of {self.request} is "
                    "postponed"
                )
            case None if self.pod_has_left:
                return (
                    f"StoragePool {self.pool}: the record of a replacement is removed, because the "
                    "pool no longer has its pod"
                )
            case None:
                return f"StoragePool {self.pool}: the new volume has all replicas"
            case Replacement(pod, _, Phase.EMPTY):
                return f"StoragePool {self.pool}: the replacement of the volume of {pod} begins"
            case Replacement(pod, _, Phase.FILL):
                return f"StoragePool {self.pool}: the new volume of {pod} is empty"
            case Replacement(pod):
                return f"StoragePool {self.pool}: the new volume of {pod} is filled"


@dataclass(frozen=True, slots=True)
class EmptyVolume:
    """Drop the replicas that a new volume holds, and their files.

    A new volume holds replicas if, for example, it was made from an old copy of a volume. These
    replicas must not vote. ZooKeeper assigns their partitions to the storage, so the assignment
    does not show whether they may be dropped. If this step were performed late, after another
    operator has begun to fill the volume, it would delete good replicas. So it is performed only
    while the pool still records ``replacement``.
    """

    pool: str
    storage: str
    partitions: tuple[int, ...]
    replacement: Replacement

    def __str__(self) -> str:
        return (
            f"storage {self.storage} drops {partitions_text(self.partitions)}, which its new "
            "volume holds"
        )


@dataclass(frozen=True, slots=True)
class CompareReplica:
    """Compare a replica with its peers by range checksums, and record the progress.

    The replica is that of the partition ``at.partition`` on ``storage``. The step begins at the
    transaction ``at.next_id``, and compares for a bounded time. It fails if a transaction differs,
    or if the replica or its peers cannot be read now.
    """

    pool: str
    storage: str
    at: Replacement

    def __str__(self) -> str:
        return (
            f"partition {self.at.partition} on storage {self.storage} is compared with its peers "
            f"from transaction {self.at.next_id} on"
        )


def concerns_outside_access(step: Step) -> bool:
    """Whether a step concerns only the access of clients outside of the Kubernetes cluster."""
    match step:
        case SetSlot() | WriteOutsideAddresses() | DeleteOutsideAddresses():
            return True
        case ApplyObject(manifest):
            return OUTSIDE_LABEL in manifest.body["metadata"]["labels"]
        case DeleteObject(key):
            return key.kind == "Service" and is_outside(key.name)
        case _:
            return False


def stops(failed: Step, later: Step) -> bool:
    """Whether the failure of the step ``failed`` stops ``later``, a later step of the same plan.

    * A failed `SetSlot` stops each later `SetSlot`, because a slot must be taken from a pod before
      another pod gets it. It also stops `WriteOutsideAddresses`, because a pod must have its slot
      before the address of the slot's Service is written.
    * Any other failed step of the access from outside stops nothing: no step waits for this access.
    * A failed `GrowVolume` stops only each later `GrowVolume`: no other step waits for a growth.
    * Every other failed step stops all later steps.
    """
    if isinstance(failed, GrowVolume):
        return isinstance(later, GrowVolume)
    if isinstance(failed, SetSlot):
        return isinstance(later, SetSlot | WriteOutsideAddresses)
    return not concerns_outside_access(failed)


PoolStep = ClaimPool | ReleasePool
VolumeStep = GrowVolume | OrphanPods
CertificateStep = IssueCertificates | RotateAuthority
ObjectStep = ApplyObject | DeleteObject | ReplacePod | SetSlot | CertificateStep | VolumeStep
PoolRecordStep = RecordReplacement | RebalanceStep
KubernetesStep = PoolStep | ObjectStep | AddFinalizer | RemoveFinalizer | PoolRecordStep
MetadataStep = CreateMetadata | DeleteMetadata | OutsideStep
Step = KubernetesStep | MetadataStep | CompareReplica | EmptyVolume | ReplicaStep
"""Any step. `waltz.admin` performs a `ReplicaStep`, which changes storages or replicas."""


def changed_annotations(pool: ObjectMeta, step: PoolRecordStep) -> Mapping[str, str | None]:
    """Return the annotations of a pool that ``step`` changes; the value None removes one."""
    match step:
        case RecordReplacement(_, replacement, request):
            return record_annotations(pool, replacement, request)
        case BeginRebalance(_, record) | EndRebalance(_, record):
            return {REBALANCED_ANNOTATION: record.to_json()}


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The next steps of one cluster, and the reasons why other steps are not possible yet.

    ``steps`` are performed now, in this order. ``waits`` say what the operator waits for: states
    that no step of this plan ends, but time, Kubernetes, or an optional action of a user.
    ``problems`` are states that a person must correct. With a problem the cluster is not Ready,
    with a wait it is not Healthy. ``change`` is the change of the cluster's shape that is under
    way, ``rotation`` the rotation of its certificate authority that is under way or wanted. If all
    of these fields are empty, the cluster is as its resources specify.
    """

    steps: tuple[Step, ...] = ()
    waits: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    change: ShapeChange | None = None
    rotation: AuthorityRotation | None = None

    def __add__(self, other: ClusterPlan) -> ClusterPlan:
        """Return both plans as one; of two changes or rotations, it has the first one only."""
        return ClusterPlan(
            self.steps + other.steps,
            self.waits + other.waits,
            self.problems + other.problems,
            self.change or other.change,
            self.rotation or other.rotation,
        )

    @property
    def done(self) -> bool:
        """Whether the cluster is as its resources specify."""
        is_changing = self.change is not None or self.rotation is not None
        return not (self.steps or self.waits or self.problems or is_changing)


EMPTY_PLAN = ClusterPlan()


def wait(*reasons: str) -> ClusterPlan:
    """Return a plan that waits for these reasons."""
    return ClusterPlan(waits=reasons)


def problem(*sentences: str) -> ClusterPlan:
    """Return a plan that reports problems for a person to solve."""
    return ClusterPlan(problems=sentences)
