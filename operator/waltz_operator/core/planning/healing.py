"""Plan the replacement of lost volumes: new volume and pod, then replicas from their peers. Pure.

The *peers* of a replica are the other replicas of its partition. A replacement begins if a user
requests it by the annotation `waltz.dev/replace-volume`. With ``volumes.onLoss: Replace``, it also
begins if the loss has lasted ``volumes.lossDelaySeconds``.

The volume of one storage at a time is replaced. The replacement begins only while every replica on
all other storages is healthy and the partitions open without this storage (`core.disruption`;
`_obstacle` has the one exception). A second loss waits, and the plan says why. A storage that has
lost its replicas comes before a storage that still works with the volume to be replaced.

The StoragePool records a replacement that has begun, and its phase (`core.volume_replacement`):

* Empty. The old volume claims and the pod are deleted; the StatefulSet makes new ones. Replicas
  that the new volume holds are dropped. Example: the provisioner binds a volume with a copy from
  last week. The copy may hold records that the other replicas have truncated since, and must not
  vote.
* Fill. Each replica follows the order `ReplicaRecovery` of `waltz.admin`, as ``waltz storage
  recover`` does: it is created, copied from a healthy peer, and switched on. Servers never count a
  replica before it is complete.
* Compare. The replicas are compared with those of the other pools by range checksums.
"""

from __future__ import annotations

from dataclasses import replace

from waltz.admin.core.replica_recovery import ReplicaRecovery
from waltz.admin.core.steps import (
    CopyReplica,
    CreateReplicas,
    Done,
    Refuse,
    SwitchOff,
    SwitchOn,
    Wait,
)
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.disruption import repair_obstacle
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ClusterPresent, ObservedCluster
from waltz_operator.core.planning.rolls import evictions_obstacle
from waltz_operator.core.resources import OnLoss
from waltz_operator.core.steps import (
    EMPTY_PLAN,
    ClusterPlan,
    CompareReplica,
    DeleteObject,
    EmptyVolume,
    RecordReplacement,
    ReplacePod,
    Step,
    problem,
    wait,
)
from waltz_operator.core.volume_replacement import (
    Phase,
    PoolPod,
    Replacement,
    VolumeLoss,
    begun_replacements,
    claims_obstacle,
    must_yield,
    pool_pods,
    pools_with_obsolete_record,
    replacement_of,
    requested_pod,
    shutdown_obstacle,
    storages_without_replicas,
    volume_losses,
)

_BatchedKind = type[CreateReplicas | SwitchOff | SwitchOn]
"""The kinds of steps that can change several partitions of a storage in one step."""


def storages_to_heal(
    desired: DesiredCluster, observed: ObservedCluster, present: ClusterPresent
) -> frozenset[str]:
    """Return the storages whose replicas `planning.replicas` must leave to `plan_healing`.

    These are the storages whose volume is being replaced, and those whose lost volume will be
    replaced without a further action of a person: ``volumes.onLoss`` is ``Replace``, or the
    annotation requests the replacement already.
    """
    lost = (
        loss.pool_pod
        for loss in volume_losses(desired, observed, present)
        if loss.pool_pod.pool.spec.volumes.on_loss is OnLoss.REPLACE
        or requested_pod(loss.pool_pod.pool) == loss.pool_pod.pod
    )
    begun = (pool_pod for pool_pod, _ in begun_replacements(desired, observed))
    return frozenset(pool_pod.storage for pool_pod in (*lost, *begun))


def plan_healing(
    desired: DesiredCluster, observed: ObservedCluster, present: ClusterPresent
) -> ClusterPlan:
    """Return the plan that replaces lost volumes, one at a time.

    A replacement that has begun continues. Otherwise the next one begins, but not while a record
    cannot be decoded, and not before obsolete records are removed.

    Evictions must be forbidden before a storage is stopped. Otherwise the API server could allow
    the eviction of another storage at the same moment, and a partition could lose its quorum. For
    the same reason the operator waits while another storage is being stopped, for example because
    of an eviction that was allowed before.
    """
    result = _plan_malformed(desired)
    begun = begun_replacements(desired, observed)
    losses = volume_losses(desired, observed, present)
    if not begun and result.problems:
        # The record that cannot be decoded may be that of a replacement that has begun. Another
        # replacement could delete a second copy, or overwrite this record.
        for loss in losses:
            result += _report(loss, "it is not replaced before the malformed annotation is removed")
        return result
    if not begun:
        if obsolete := pools_with_obsolete_record(desired, observed):
            removals = (RecordReplacement(pool, None, pod_has_left=True) for pool in obsolete)
            return result + ClusterPlan(tuple(removals))
        return result + _plan_begin(desired, observed, present, losses)
    pool_pod, replacement = begun[0]
    obstacle = (
        _obstacle(present, pool_pod, losses)
        or evictions_obstacle(desired, observed)
        or shutdown_obstacle(desired, observed, pool_pod, losses)
    )
    result += _plan_phase(observed, present, pool_pod, replacement, obstacle)
    if must_yield(observed, pool_pod, replacement, losses):
        # The storage of this replacement still works, and another storage has lost its replicas. So
        # this replacement is cancelled, and a request for it is written: it begins again later. The
        # plan above deletes nothing, because the other storage is an obstacle.
        assert obstacle is not None, "another storage is unhealthy: the volume is not deleted"
        step = RecordReplacement(pool_pod.pool.metadata.name, None, request=pool_pod.pod)
        return result + ClusterPlan((step,))
    why = f"the volume of storage {pool_pod.storage} is being replaced"
    for loss in losses:
        if loss.pool_pod.storage != pool_pod.storage:
            result += _report(loss, why)
    return result


def _plan_malformed(desired: DesiredCluster) -> ClusterPlan:
    """Report each pool whose replacement cannot be decoded as a problem."""
    result = EMPTY_PLAN
    for pool in desired.own_pools:
        try:
            replacement_of(pool)
        except ValueError as malformed:
            result += problem(
                f"the annotation of StoragePool {pool.metadata.name} about the replacement of a "
                f"volume cannot be decoded ({malformed}): remove it"
            )
    return result


# ---- the beginning


def _plan_begin(
    desired: DesiredCluster,
    observed: ObservedCluster,
    present: ClusterPresent,
    losses: list[VolumeLoss],
) -> ClusterPlan:
    """Plan to begin the replacement of one volume.

    Storages that have lost their replicas are considered first. The plan has a reason for each
    storage that is considered before the chosen one and must wait.
    """
    result = EMPTY_PLAN
    loss_of_pod = {loss.pool_pod.pod: loss for loss in losses}
    without_replicas = storages_without_replicas(losses)
    pods = list(pool_pods(desired, observed))
    in_order = (
        *(each for each in pods if each.storage in without_replicas),
        *(each for each in pods if each.storage not in without_replicas),
    )
    for pool_pod in in_order:
        loss = loss_of_pod.get(pool_pod.pod)
        # A user may request the replacement of any volume, also of one that is not lost.
        is_requested = requested_pod(pool_pod.pool) == pool_pod.pod
        if loss is None and not is_requested:
            continue
        reason_to_wait = None if is_requested else _reason_to_wait(pool_pod, observed)
        if loss is not None and reason_to_wait is not None:
            result += _report(loss, reason_to_wait)
            continue
        if why := _obstacle(present, pool_pod, losses) or claims_obstacle(observed, pool_pod, loss):
            result += wait(f"the volume of storage {pool_pod.storage} is not replaced yet: {why}")
            continue
        # A storage that has started empty has a new volume already.
        claims = () if loss is not None and loss.has_new_volume else pool_pod.claim_uids
        begin = RecordReplacement(pool_pod.pool.metadata.name, Replacement(pool_pod.pod, claims))
        # The record is one write, and nothing else is planned before it is observed.
        return result + ClusterPlan((begin,))
    return result + _plan_unknown_requests(desired, observed)


def _plan_unknown_requests(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Report each request that names no pod of its pool as a problem."""
    pods = {pool_pod.pod for pool_pod in pool_pods(desired, observed)}
    result = EMPTY_PLAN
    for pool in desired.own_pools:
        if (pod := requested_pod(pool)) is not None and pod not in pods:
            result += problem(
                f"StoragePool {pool.metadata.name} asks to replace the volume of {pod}, which is "
                "not a pod of the pool: correct the annotation or remove it"
            )
    return result


def _reason_to_wait(pool_pod: PoolPod, observed: ObservedCluster) -> str | None:
    """Return why a lost volume that no user asks to replace must wait; None if it need not wait."""
    volumes = pool_pod.pool.spec.volumes
    if volumes.on_loss is OnLoss.MANUAL:
        return (
            f"annotate StoragePool {pool_pod.pool.metadata.name} with "
            f"waltz.dev/replace-volume={pool_pod.pod} to replace it"
        )
    passed, delay = observed.lost_seconds.get(pool_pod.pod, 0.0), volumes.loss_delay_seconds
    if passed < delay:
        return f"it is replaced when the loss has lasted {delay} s"
    return None


def _obstacle(present: ClusterPresent, pool_pod: PoolPod, losses: list[VolumeLoss]) -> str | None:
    """Return why the volume of a storage must not be replaced now, None if it may.

    All replicas on the other storages must be healthy. There is one exception: several storages
    have lost their replicas at the same time, and this storage is one of them. Then the replicas on
    the others of them need not be healthy, if the partitions open without all of these storages.
    Without the exception each of them would wait until the others are healthy, forever.
    """
    storages = storages_without_replicas(losses)
    if pool_pod.storage not in storages:
        storages = frozenset({pool_pod.storage})
    return repair_obstacle(present, storages)


def _report(loss: VolumeLoss, why: str) -> ClusterPlan:
    """Return the wait that reports a lost volume, and ``why`` its replacement does not begin."""
    return wait(f"storage {loss.pool_pod.storage} has lost its volume: {loss.reason}; {why}")


# ---- the phases


def _plan_phase(
    observed: ObservedCluster,
    present: ClusterPresent,
    pool_pod: PoolPod,
    replacement: Replacement,
    obstacle: str | None,
) -> ClusterPlan:
    """Plan the next steps of the phase in which a replacement is.

    ``obstacle`` is why the storage must not be stopped now, None if it may be stopped.
    """
    match replacement.phase:
        case Phase.EMPTY:
            deletion = _plan_claim_deletion(observed, pool_pod, replacement, obstacle)
            return deletion or _plan_emptying(present, pool_pod, replacement)
        case Phase.FILL:
            return _plan_filling(present, pool_pod, replacement)
        case Phase.COMPARE:
            return _plan_comparison(present, pool_pod, replacement)


def _plan_claim_deletion(
    observed: ObservedCluster, pool_pod: PoolPod, replacement: Replacement, obstacle: str | None
) -> ClusterPlan | None:
    """Plan to delete the volume claims that are replaced, and the pod that uses them.

    The result is None once the volume claims no longer exist.
    """
    old_claims = {
        name: claim
        for name, claim in pool_pod.claims.items()
        if claim["metadata"]["uid"] in replacement.claims
    }
    if not old_claims:
        return None
    steps: list[Step] = [
        DeleteObject(ObjectKey("PersistentVolumeClaim", name), claim["metadata"]["uid"])
        for name, claim in old_claims.items()
        if not claim["metadata"].get("deletionTimestamp")
    ]
    pod = observed.objects.get(ObjectKey("Pod", pool_pod.pod))
    if pod is not None and not pod["metadata"].get("deletionTimestamp"):
        steps.append(ReplacePod(pool_pod.pod, pod["metadata"]["uid"]))
    if steps and obstacle is not None:
        # Another storage may have failed since the beginning.
        return wait(f"the volume of storage {pool_pod.storage} is not deleted yet: {obstacle}")
    if steps:
        return ClusterPlan(tuple(steps))
    return wait(
        f"pod {pool_pod.pod} shuts down, so that its volume can be replaced; if its node is lost, "
        "delete the node"
    )


def _plan_emptying(
    present: ClusterPresent, pool_pod: PoolPod, replacement: Replacement
) -> ClusterPlan:
    """Plan to drop the replicas on the new volume. The phase ends when the storage holds none."""
    report = present.replicas.storages.get(pool_pod.storage)
    if report is None or report.problem is not None:
        why = "it is not registered" if report is None else report.problem
        return wait(f"storage {pool_pod.storage} starts with a new volume: {why}")
    if report.held:
        step = EmptyVolume(
            pool_pod.pool.metadata.name, pool_pod.storage, tuple(sorted(report.held)), replacement
        )
        return ClusterPlan((step,))
    return _record(pool_pod, replace(replacement, phase=Phase.FILL))


def _plan_filling(
    present: ClusterPresent, pool_pod: PoolPod, replacement: Replacement
) -> ClusterPlan:
    """Plan the next step of all replicas together, but the copy of only one replica at a time."""
    partitions = sorted(present.replicas.assigned(pool_pod.storage))
    by_kind: dict[_BatchedKind, list[int]] = {CreateReplicas: [], SwitchOff: [], SwitchOn: []}
    copies: list[CopyReplica] = []
    waits: list[str] = []
    num_done = 0
    for partition in partitions:
        match ReplicaRecovery(partition, pool_pod.storage).next_step(present.replicas):
            case CreateReplicas() | SwitchOff() | SwitchOn() as step:
                by_kind[type(step)].append(partition)
            case CopyReplica() as copy:
                copies.append(copy)
            case Wait(reason) | Refuse(reason):
                waits.append(reason)
            case other:
                assert isinstance(other, Done), f"a recovery has no step {other}"
                num_done += 1
    if num_done == len(partitions):
        return _record(pool_pod, replace(replacement, phase=Phase.COMPARE))
    steps: list[Step] = [
        kind(pool_pod.storage, tuple(numbers)) for kind, numbers in by_kind.items() if numbers
    ]
    steps += copies[:1]
    progress = (
        f"storage {pool_pod.storage} gets its replicas again: {num_done} of {len(partitions)} done"
    )
    if copies:
        progress += (
            f", partition {copies[0].partition} is {_copied_percent(present, copies[0])} % copied"
        )
    return ClusterPlan(tuple(steps), waits=(progress, *waits[:1]))


def _copied_percent(present: ClusterPresent, copy: CopyReplica) -> int:
    """Return how much of a replica is copied, in percent.

    The copy ends at the local low-water mark of the source: the last transaction id that the source
    had when its store session began. Servers bring the later transactions. The answer is 0 if the
    storages do not report the source and the copy.
    """
    source = present.replicas.held(copy.source, copy.partition)
    held = present.replicas.held(copy.destination, copy.partition)
    if source is None or held is None or held.max_transaction_id is None:
        return 0
    # The first transaction id is 0.
    num_wanted, num_copied = source.local_low_water_mark + 1, held.max_transaction_id + 1
    return 100 if num_wanted <= 0 else min(100, 100 * num_copied // num_wanted)


def _plan_comparison(
    present: ClusterPresent, pool_pod: PoolPod, replacement: Replacement
) -> ClusterPlan:
    """Plan to compare the next part of the replicas, partition by partition.

    The replacement is complete after the last partition. ``replacement`` says where the last part
    ended. Partition 3 and the next id 500 mean: partitions below 3 are compared completely, and
    partition 3 up to transaction 499.
    """
    partitions = sorted(present.replicas.assigned(pool_pod.storage))
    remaining = [partition for partition in partitions if partition >= replacement.partition]
    if not remaining:
        return ClusterPlan((RecordReplacement(pool_pod.pool.metadata.name, None),))
    # The record may name a partition that is no longer assigned to this storage. Then ``next_id``
    # belongs to that partition, and the first remaining one is compared from its beginning.
    first_id = replacement.next_id if remaining[0] == replacement.partition else 0
    at = replace(replacement, partition=remaining[0], next_id=first_id)
    step = CompareReplica(pool_pod.pool.metadata.name, pool_pod.storage, at)
    num_done = len(partitions) - len(remaining)
    progress = (
        f"storage {pool_pod.storage} is compared with its peers: {num_done} of "
        f"{len(partitions)} partitions done"
    )
    return ClusterPlan((step,), waits=(progress,))


def _record(pool_pod: PoolPod, replacement: Replacement) -> ClusterPlan:
    """Return the plan that records the progress of a replacement in its pool."""
    return ClusterPlan((RecordReplacement(pool_pod.pool.metadata.name, replacement),))
