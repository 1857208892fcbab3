"""Fill a replica that is switched off from its peers, before servers use it. Pure.

Only a replica that no vote counts may be filled, because filling first cuts it to its own low-water
mark. Transactions that it has acknowledged above the mark would be lost, and nothing would show the
loss.
"""

from __future__ import annotations

from waltz.admin.core.replicas import (
    PartitionView,
    ReplicaObservation,
    absence_reason,
    unhealthy_reason,
)
from waltz.admin.core.steps import CopyReplica, CreateReplicas, Step, SwitchOff, SwitchOn, Wait


def next_fill_step(
    observation: ReplicaObservation,
    view: PartitionView,
    destination: str,
    *,
    source: str | None = None,
) -> Step | Wait | None:
    """Return the next step to fill the replica on ``destination``, None once it is filled.

    It is filled when it reaches the start of the source's present session, or almost, and, if it is
    not assigned yet, has nothing above its own mark. Without a ``source`` the healthy replica that
    reaches furthest is the copy source.
    """
    if problem := observation.storage_problem(destination):
        return Wait(f"storage {destination} does not answer: {problem}")
    held = observation.held(destination, view.partition)
    if held is None:
        return CreateReplicas(destination, (view.partition,))
    chosen = source or _best_copy_source(observation, view, destination)
    if chosen is None:
        return Wait(f"partition {view.partition} has no healthy replica to copy from")
    source_replica = observation.held(chosen, view.partition)
    if source_replica is None:
        why = observation.storage_problem(chosen) or "it does not hold it"
        return Wait(f"partition {view.partition} cannot be copied from storage {chosen}: {why}")
    if held.max_transaction_id is None:
        return Wait(f"storage {destination} does not say where partition {view.partition} ends")
    # Servers of Waltz 0.13.2 trust all records of a new replica, even those above its mark.
    clean = destination in view.replicas or held.max_transaction_id <= held.low_water_mark
    lag = source_replica.local_low_water_mark - held.max_transaction_id
    if clean and lag <= observation.lag_allowed:
        return None
    if held.readable or held.writable:
        return SwitchOff(destination, (view.partition,))
    return CopyReplica(chosen, destination, view.partition)


def next_switch_on_step(
    observation: ReplicaObservation, view: PartitionView, storage: str
) -> CreateReplicas | SwitchOn | Wait | None:
    """Return the next step to let servers use the replica on ``storage``, None if they can."""
    problem = absence_reason(observation, view, storage)
    if problem is None:
        return None
    if observation.storage_problem(storage) is not None:
        return Wait(problem)
    held = observation.held(storage, view.partition)
    if held is None:
        return CreateReplicas(storage, (view.partition,))
    return Wait(problem) if held.available else SwitchOn(storage, (view.partition,))


def _best_copy_source(
    observation: ReplicaObservation, view: PartitionView, destination: str
) -> str | None:
    marks = {
        storage: held.local_low_water_mark
        for storage in sorted(view.replicas - {destination})
        if (held := observation.held(storage, view.partition)) is not None
        and unhealthy_reason(observation, view, storage) is None
    }
    return max(marks, key=lambda storage: marks[storage], default=None)
