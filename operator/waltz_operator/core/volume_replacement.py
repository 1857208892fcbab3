"""The volumes that are lost, and how far the replacement of a volume is. Pure.

A replacement that has begun is recorded in an annotation of the StoragePool, before anything is
deleted. So an operator that continues after another one knows which volume claims are to be
deleted, and does not delete the new ones, too. `planning.healing` plans the replacements.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from waltz.metadata.core.formats import NO_SESSION
from waltz_operator.core.desired import DesiredCluster, addresses_of
from waltz_operator.core.foreign_claims import is_foreign, label_command
from waltz_operator.core.names import (
    REPLACE_VOLUME_ANNOTATION,
    REPLACEMENT_ANNOTATION,
    storage_set,
)
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ClusterPresent, LiveObject, ObservedCluster
from waltz_operator.core.resources import ObjectMeta, StoragePool


class Phase(StrEnum):
    """The phases of a replacement, in order."""

    EMPTY = "empty"
    """The old volume claims and the pod are deleted, and what the new volume holds is dropped."""

    FILL = "fill"
    """The replicas are created, filled and switched on."""

    COMPARE = "compare"
    """The replicas are compared with those of the other pools."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of the volumes of one pod.

    ``claims`` are the uids of the volume claims that are to be deleted. ``partition`` and
    ``next_id``, a transaction id, say where the comparison continues. They are 0 in the phases
    before it.
    """

    pod: str
    claims: tuple[str, ...] = ()
    phase: Phase = Phase.EMPTY
    partition: int = 0
    next_id: int = 0

    def to_json(self) -> str:
        """Return the value of the annotation."""
        return json.dumps(
            {
                "pod": self.pod,
                "claims": list(self.claims),
                "phase": self.phase.value,
                "partition": self.partition,
                "nextId": self.next_id,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Replacement:
        """Return the replacement in an annotation. Raises ValueError."""
        try:
            fields = json.loads(text)
            return cls(
                str(fields["pod"]),
                tuple(map(str, fields["claims"])),
                Phase(fields["phase"]),
                int(fields["partition"]),
                int(fields["nextId"]),
            )
        except (KeyError, TypeError, OverflowError) as malformed:
            raise ValueError(str(malformed)) from malformed


@dataclass(frozen=True, slots=True)
class PoolPod:
    """One storage of a pool: its pod, its address, and its volume claims by name."""

    pool: StoragePool
    pod: str
    storage: str
    claims: Mapping[str, LiveObject]

    @property
    def claim_keys(self) -> tuple[ObjectKey, ...]:
        """The keys of the volume claims that the pod uses, also of those that do not exist."""
        return _claim_keys(self.pool, self.pod)

    @property
    def claim_uids(self) -> tuple[str, ...]:
        """The uids of the volume claims that exist."""
        return tuple(claim["metadata"]["uid"] for claim in self.claims.values())


@dataclass(frozen=True, slots=True)
class VolumeLoss:
    """A storage whose volume is lost.

    ``reason`` is the sign of the loss, for users. ``is_without_replicas``: the replicas count as
    lost, because the storage does not answer, or because it answers and holds none of them.
    Otherwise the storage still works with the old volume: Kubernetes deletes a volume claim only
    after the pod that uses it has ended. ``has_new_volume``: the storage has started with an empty
    volume.
    """

    pool_pod: PoolPod
    reason: str
    is_without_replicas: bool
    has_new_volume: bool = False


def pool_pods(desired: DesiredCluster, observed: ObservedCluster) -> Iterator[PoolPod]:
    """Yield the storages that the specs of the cluster's pools want, also of pools that leave."""
    for pool in desired.own_pools:
        for ordinal, storage in enumerate(addresses_of(pool)):
            pod = f"{storage_set(pool.metadata.name)}-{ordinal}"
            keys = _claim_keys(pool, pod)
            claims = {key.name: observed.objects[key] for key in keys if key in observed.objects}
            yield PoolPod(pool, pod, storage, claims)


def _claim_keys(pool: StoragePool, pod: str) -> tuple[ObjectKey, ...]:
    kinds = pool.spec.volumes.by_kind
    return tuple(ObjectKey("PersistentVolumeClaim", f"{kind}-{pod}") for kind in kinds)


def volume_losses(
    desired: DesiredCluster, observed: ObservedCluster, present: ClusterPresent
) -> list[VolumeLoss]:
    """Return the storages whose volume is lost.

    A storage of which no replica was ever in a store session has nothing to lose, and does not
    count.
    """
    losses = (_loss(pool_pod, present) for pool_pod in pool_pods(desired, observed))
    return [loss for loss in losses if loss is not None]


def storages_without_replicas(losses: list[VolumeLoss]) -> frozenset[str]:
    """Return the storages of ``losses`` that are without replicas; see `VolumeLoss`."""
    return frozenset(loss.pool_pod.storage for loss in losses if loss.is_without_replicas)


def shutdown_obstacle(
    desired: DesiredCluster,
    observed: ObservedCluster,
    replaced: PoolPod,
    losses: list[VolumeLoss],
) -> str | None:
    """Return why ``replaced`` must not be stopped now: another storage is being stopped.

    The result is None if no other storage is. A storage that is being stopped answers until its pod
    has ended, so its replicas still count as healthy. If ``replaced`` were stopped then, too, a
    partition could lose its quorum. Evictions are forbidden during a replacement (`is_replacing`),
    but one that was allowed just before may still run. A storage that is without replicas (see
    `VolumeLoss`) does not count, because its end takes no replica away.
    """
    ignored = {replaced.storage, *storages_without_replicas(losses)}
    for pool_pod in pool_pods(desired, observed):
        pod = observed.objects.get(ObjectKey("Pod", pool_pod.pod))
        is_stopping = pod is not None and pod["metadata"].get("deletionTimestamp")
        if is_stopping and pool_pod.storage not in ignored:
            return f"pod {pool_pod.pod} is being stopped"
    return None


def claims_obstacle(
    observed: ObservedCluster, pool_pod: PoolPod, loss: VolumeLoss | None
) -> str | None:
    """Return why the claims of a storage cannot be deleted, None if its replacement may begin.

    A replacement that does not delete every claim which the pod uses would empty the old volume in
    place, and then report it as a new one. So a claim must have the cluster's labels. It may be
    absent only together with its pod: a pod that runs still uses the volume of a claim that was
    removed by force. A storage that has started with a new volume needs no deletion.
    """
    if loss is not None and loss.has_new_volume:
        return None
    for key in pool_pod.claim_keys:
        claim = pool_pod.claims.get(key.name)
        if claim is None and ObjectKey("Pod", pool_pod.pod) in observed.objects:
            return (
                f"{key} does not exist, but pod {pool_pod.pod} does and may use its volume: delete "
                "the pod, and Kubernetes creates both again"
            )
        if claim is not None and is_foreign(claim, pool_pod.pool):
            return (
                f"{key} lacks labels of this cluster, so the operator does not delete it; if its "
                f"volume may be deleted, run: {label_command(claim, pool_pod.pool)}"
            )
    return None


def must_yield(
    observed: ObservedCluster,
    pool_pod: PoolPod,
    replacement: Replacement,
    losses: list[VolumeLoss],
) -> bool:
    """Whether a replacement that has begun must be cancelled in favour of another storage.

    It must if a storage is without replicas now, and the storage of this replacement still works
    with its old volume: then the storage without replicas is replaced first.

    Once the deletion of the pod has begun, the deletion of the old volume cannot be stopped. Then
    the record must stay: without the record, an old copy on the new volume would not be dropped
    before it votes.
    """
    pod = observed.objects.get(ObjectKey("Pod", pool_pod.pod))
    pod_is_kept = pod is not None and not pod["metadata"].get("deletionTimestamp")
    has_old_volume = any(uid in replacement.claims for uid in pool_pod.claim_uids)
    without_replicas = storages_without_replicas(losses)
    still_works = pod_is_kept and has_old_volume and pool_pod.storage not in without_replicas
    return replacement.phase is Phase.EMPTY and still_works and bool(without_replicas)


def _loss(pool_pod: PoolPod, present: ClusterPresent) -> VolumeLoss | None:
    """Return the loss of a storage's volume, None if there is no sign of a loss.

    There are three signs:

    * A volume claim is being deleted.
    * A volume claim is in the phase Lost.
    * The storage answers, and holds none of its replicas that were in a store session.

    A storage that does not answer is not a sign: its pod may be restarting.
    """
    used = _used_partitions(present, pool_pod.storage)
    if not used:
        return None
    replicas = present.replicas
    answers = replicas.storage_problem(pool_pod.storage) is None
    is_empty = answers and all(replicas.held(pool_pod.storage, p) is None for p in used)
    is_without_replicas = is_empty or not answers
    for name, claim in pool_pod.claims.items():
        if claim["metadata"].get("deletionTimestamp"):
            reason = f"PersistentVolumeClaim {name} is being deleted"
            return VolumeLoss(pool_pod, reason, is_without_replicas)
        if (claim.get("status") or {}).get("phase") == "Lost":
            reason = f"PersistentVolumeClaim {name} has lost its volume"
            return VolumeLoss(pool_pod, reason, is_without_replicas)
    if is_empty:
        return VolumeLoss(
            pool_pod, "it holds none of its replicas", is_without_replicas=True, has_new_volume=True
        )
    return None


def _used_partitions(present: ClusterPresent, storage: str) -> list[int]:
    """Return the partitions assigned to ``storage`` whose replica there was in a store session."""
    return [
        view.partition
        for view in present.replicas.partitions.values()
        if storage in view.replicas
        and (state := view.metadata.replicas.get(storage)) is not None
        and state.session_id != NO_SESSION
    ]


def replacement_of(pool: StoragePool) -> Replacement | None:
    """Return the replacement in a pool's annotation, None without one. Raises ValueError."""
    text = pool.metadata.annotations.get(REPLACEMENT_ANNOTATION)
    return None if text is None else Replacement.from_json(text)


def begun_replacements(
    desired: DesiredCluster, observed: ObservedCluster
) -> list[tuple[PoolPod, Replacement]]:
    """Return the replacements that have begun, each with its storage.

    Records that cannot be decoded, or of a pod that the pool no longer has, are left out.
    """
    result = []
    for pool_pod in pool_pods(desired, observed):
        try:
            replacement = replacement_of(pool_pod.pool)
        except ValueError:
            continue
        if replacement is not None and replacement.pod == pool_pod.pod:
            result.append((pool_pod, replacement))
    return result


def pools_with_obsolete_record(desired: DesiredCluster, observed: ObservedCluster) -> list[str]:
    """Return the names of the pools whose recorded replacement is of a pod that they do not have.

    This happens if ``spec.storages`` is lowered during a replacement. If the record stayed, it
    would forbid evictions forever (`is_replacing`). Raises ValueError if a record cannot be
    decoded.
    """
    pods = {pool_pod.pod for pool_pod in pool_pods(desired, observed)}
    recorded = {pool.metadata.name: replacement_of(pool) for pool in desired.own_pools}
    return [
        pool
        for pool, replacement in recorded.items()
        if replacement is not None and replacement.pod not in pods
    ]


def record_annotations(
    pool: ObjectMeta, replacement: Replacement | None, request: str | None
) -> dict[str, str | None]:
    """Return the annotations that are to be changed; the value None removes an annotation.

    ``replacement`` is the progress to record, None to remove the record. When a replacement begins,
    the request of a user for this pod is removed, so that the volume is replaced once. A request
    for another pod of the pool stays.

    If a replacement is postponed, ``request`` is the name of its pod. It is written as a request,
    in place of any other request, so that the replacement begins again later. Otherwise ``request``
    is None.
    """
    text = None if replacement is None else replacement.to_json()
    changed: dict[str, str | None] = {REPLACEMENT_ANNOTATION: text}
    if request is not None:
        changed[REPLACE_VOLUME_ANNOTATION] = request
    elif (
        replacement is not None
        and replacement.phase is Phase.EMPTY
        and pool.annotations.get(REPLACE_VOLUME_ANNOTATION) == replacement.pod
    ):
        changed[REPLACE_VOLUME_ANNOTATION] = None
    return changed


def is_replacing(desired: DesiredCluster) -> bool:
    """Whether the volume of any storage is being replaced.

    Meanwhile no storage may be evicted (`planning.workloads`), and no StatefulSet of storages is
    created again with larger volumes (`planning.volume_sizes`).
    """
    return any(REPLACEMENT_ANNOTATION in each.metadata.annotations for each in desired.own_pools)


def requested_pod(pool: StoragePool) -> str | None:
    """Return the pod whose volume a user requests to replace, None without a request."""
    return pool.metadata.annotations.get(REPLACE_VOLUME_ANNOTATION)
