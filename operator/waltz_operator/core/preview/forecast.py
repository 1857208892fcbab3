"""Run the planner again and again on a simulated cluster, and record what it does. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from waltz.admin.core.steps import ChangeAssignment
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import pod_of_storage
from waltz_operator.core.observed import ObservedCluster
from waltz_operator.core.planning import plan
from waltz_operator.core.planning.updates import available_update
from waltz_operator.core.preview.replicas import size_of_partition, spare_storages
from waltz_operator.core.preview.simulation import SimulatedCluster, after_step, settled
from waltz_operator.core.shape_change import ShapeChange
from waltz_operator.core.steps import (
    ClaimPool,
    ClusterPlan,
    ReleasePool,
    RemoveFinalizer,
    ReplacePod,
    Step,
)

_ROUNDS = 200
"""The largest number of rounds of a preview, besides those for its replicas.

A limit is needed because plans might never end.
"""

_ROUNDS_OF_A_REPLICA = 10
"""How many more rounds a preview may have for each replica: each partition of each pool."""


class Ending(StrEnum):
    """Why a preview has no more steps."""

    COMPLETE = "complete"
    """The cluster is as its resources specify."""

    WAITS = "waits"
    """The operator waits for something that it does not do itself."""

    REFUSED = "refused"
    """The operator refuses the rest until a person acts."""

    UNFINISHED = "unfinished"
    """The preview has reached its largest number of rounds."""


@dataclass(frozen=True, slots=True)
class ReplicaGain:
    """A replica that a storage gets of a partition.

    ``copied_bytes`` is the size of the partition, 0 if the partition was never open, and None if no
    storage reports the size. Fewer bytes are copied if the storage kept the files of an earlier
    replica.
    """

    partition: int
    storage: str
    copied_bytes: int | None


@dataclass(frozen=True, slots=True)
class ReplicaLoss:
    """A replica that a storage gives up."""

    partition: int
    storage: str


@dataclass(frozen=True, slots=True)
class Round:
    """The steps of one plan, performed together.

    ``change`` is the change of the cluster's shape that the plan makes, None if it makes none.
    ``gains`` and ``losses`` are the replicas that the steps give to storages and take from them.
    ``spare`` is how many storages may fail in the worst moment of the round, ``spare_after`` how
    many may fail after it (see `spare_storages`). Both are None if the replicas are not observed.
    ``copies`` is the largest number of replicas that a partition has after the round.
    ``new_claims`` are the volume claims that Kubernetes creates for new pods, each with its size.
    ``transfers`` are the sizes in bytes of the replicas that are copied or compared; a size is None
    if it is not reported.
    """

    steps: tuple[Step, ...]
    change: ShapeChange | None
    gains: tuple[ReplicaGain, ...]
    losses: tuple[ReplicaLoss, ...]
    spare: int | None
    spare_after: int | None
    copies: int
    new_claims: tuple[str, ...] = ()
    transfers: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Preview:
    """What the operator would do, in its order.

    ``spare_before`` is how many storages may fail now, None if the replicas are not observed.
    ``awaited`` are the waits that end during the preview without an action of the operator.
    ``waits`` are the waits for which the preview ends, empty with another ``ending``. ``refusals``
    are the problems of all plans, each once. ``not_updated`` is a sentence about the pods that an
    operator of another version has specified and that stay until the end; empty without such pods.
    """

    rounds: tuple[Round, ...]
    ending: Ending
    spare_before: int | None
    awaited: tuple[str, ...]
    waits: tuple[str, ...]
    refusals: tuple[str, ...]
    not_updated: str = ""

    def __post_init__(self) -> None:
        assert all(each.steps for each in self.rounds), "a round has steps"
        assert bool(self.waits) == (self.ending is Ending.WAITS), "only a wait has reasons to wait"
        assert self.refusals or self.ending is not Ending.REFUSED, "a refusal has a reason"

    @property
    def steps(self) -> Iterator[Step]:
        """All steps in their order."""
        return (step for each in self.rounds for step in each.steps)

    @property
    def gains(self) -> tuple[ReplicaGain, ...]:
        """The replicas that storages get, in their order."""
        return tuple(gain for each in self.rounds for gain in each.gains)

    @property
    def losses(self) -> tuple[ReplicaLoss, ...]:
        """The replicas that storages give up, in their order."""
        return tuple(loss for each in self.rounds for loss in each.losses)

    @property
    def claimed_pools(self) -> tuple[str, ...]:
        """The pools that join the cluster."""
        return tuple(step.pool for step in self.steps if isinstance(step, ClaimPool))

    @property
    def released_pools(self) -> tuple[str, ...]:
        """The pools that leave the cluster."""
        return tuple(step.pool for step in self.steps if isinstance(step, ReleasePool))


def preview(desired: DesiredCluster, observed: ObservedCluster) -> Preview:
    """Return what the operator would do from now on, if nothing else changes the cluster."""
    cluster = SimulatedCluster(desired, observed)
    spare_before = _spare(cluster)
    rounds: list[Round] = []
    awaited: dict[str, None] = {}
    refusals: dict[str, None] = {}
    num_replicas = desired.cluster.spec.partitions * len(desired.own_pools)
    planned = _plan(cluster)
    for _ in range(_ROUNDS + _ROUNDS_OF_A_REPLICA * num_replicas):
        refusals |= dict.fromkeys(planned.problems)
        if planned.steps:
            performed, cluster = _perform(cluster, planned)
            rounds.append(performed)
            # The last phase of a deletion: no WaltzCluster is left that a plan could be about.
            if RemoveFinalizer() in planned.steps:
                return _end(cluster, rounds, Ending.COMPLETE, spare_before, awaited, (), refusals)
            planned = _plan(cluster)
            continue
        if planned.done:
            return _end(cluster, rounds, Ending.COMPLETE, spare_before, awaited, (), refusals)
        # A wait ends only by what `settled` completes, such as missing pods that start. If the plan
        # is the same after that, nothing in the simulation ends the wait.
        cluster = settled(cluster, all_catch_up=True)
        planned_after_wait = _plan(cluster)
        if planned_after_wait == planned:
            if planned.problems:
                return _end(cluster, rounds, Ending.REFUSED, spare_before, awaited, (), refusals)
            waits = planned.waits or (_progress(planned),)
            return _end(cluster, rounds, Ending.WAITS, spare_before, awaited, waits, refusals)
        awaited |= dict.fromkeys(planned.waits)
        planned = planned_after_wait
    return _end(cluster, rounds, Ending.UNFINISHED, spare_before, awaited, (), refusals)


def _plan(cluster: SimulatedCluster) -> ClusterPlan:
    """Return the operator's plan for the cluster as it is."""
    return plan(cluster.desired, cluster.observed)


def _progress(planned: ClusterPlan) -> str:
    """Return how far the change or rotation of a plan is, if the plan has no reason to wait."""
    if planned.change is not None:
        return planned.change.progress
    return "the change is not complete" if planned.rotation is None else str(planned.rotation)


def _end(
    cluster: SimulatedCluster,
    rounds: Sequence[Round],
    ending: Ending,
    spare_before: int | None,
    awaited: dict[str, None],
    waits: tuple[str, ...],
    refusals: dict[str, None],
) -> Preview:
    """Return the finished preview.

    ``cluster`` is the cluster at the end of the preview. The keys of ``awaited`` and ``refusals``
    are texts in order. ``awaited`` may have waits that have not ended, because another wait of the
    same plan has ended: these are also among ``waits``.
    """
    ended = tuple(text for text in awaited if text not in waits)
    not_updated = available_update(cluster.desired, cluster.observed)
    return Preview(tuple(rounds), ending, spare_before, ended, waits, tuple(refusals), not_updated)


def _perform(cluster: SimulatedCluster, planned: ClusterPlan) -> tuple[Round, SimulatedCluster]:
    """Return the round of a plan's steps, and the cluster after it has settled."""
    gains: list[ReplicaGain] = []
    losses: list[ReplicaLoss] = []
    compared: list[int | None] = []
    before = cluster.observed
    # One number for each moment: before the steps, after each step, and while a pod is replaced.
    spares = [_spare(cluster)]
    for step in planned.steps:
        if isinstance(step, ChangeAssignment):
            gains += _gains(cluster, step)
            losses += _losses(step)
            compared += _compared_sizes(cluster, step)
        cluster = after_step(cluster, step)
        spares.append(_spare(cluster))
        if isinstance(step, ReplacePod):
            # The storage is absent until its new pod has started.
            spares.append(_spare_without(cluster, step.pod))
    cluster = settled(cluster)
    replicas = cluster.replicas
    views = () if replicas is None else replicas.partitions.values()
    performed = Round(
        planned.steps,
        planned.change,
        tuple(gains),
        tuple(losses),
        spare=min((spare for spare in spares if spare is not None), default=None),
        spare_after=_spare(cluster),
        copies=max((len(view.replicas) for view in views), default=0),
        new_claims=tuple(_new_claims(before, cluster.observed)),
        transfers=(*(gain.copied_bytes for gain in gains), *compared),
    )
    return performed, cluster


def _new_claims(before: ObservedCluster, after: ObservedCluster) -> Iterator[str]:
    """Yield the volume claims that only ``after`` has, each with its size."""
    for key in sorted(after.objects.keys() - before.objects.keys()):
        if key.kind == "PersistentVolumeClaim":
            size = after.objects[key]["spec"]["resources"]["requests"]["storage"]
            yield f"{key.name} ({size})"


def _spare_without(cluster: SimulatedCluster, pod: str) -> int | None:
    """Return how many storages may fail while the storage of a pod is absent."""
    replicas = cluster.replicas
    if replicas is None:
        return None
    others = {
        storage: report
        for storage, report in replicas.storages.items()
        if pod_of_storage(storage) != pod
    }
    return spare_storages(replace(replicas, storages=others))


def _spare(cluster: SimulatedCluster) -> int | None:
    """Return how many storages may fail, None if the replicas are not observed."""
    return None if cluster.replicas is None else spare_storages(cluster.replicas)


def _gains(cluster: SimulatedCluster, step: ChangeAssignment) -> Iterator[ReplicaGain]:
    """Yield the replicas that a change of assignments gives to storages."""
    replicas = cluster.replicas
    assert replicas is not None, "assignments change only while they are observed"
    for change in step.changes:
        size = size_of_partition(replicas, change.partition, change.expected)
        was_open = bool(replicas.partitions[change.partition].session_replicas)
        for storage in sorted(change.wanted - change.expected):
            yield ReplicaGain(change.partition, storage, size if was_open else 0)


def _compared_sizes(cluster: SimulatedCluster, step: ChangeAssignment) -> Iterator[int | None]:
    """Yield the size of each partition whose replicas are compared before a change."""
    replicas = cluster.replicas
    assert replicas is not None, "assignments change only while they are observed"
    for proof in step.proofs:
        yield size_of_partition(replicas, proof.partition, proof.storages)


def _losses(step: ChangeAssignment) -> Iterator[ReplicaLoss]:
    """Yield the replicas that a change of assignments takes from storages."""
    for change in step.changes:
        for storage in sorted(change.expected - change.wanted):
            yield ReplicaLoss(change.partition, storage)
