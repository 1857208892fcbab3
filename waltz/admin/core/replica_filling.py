"""Fill a switched-off replica from another storage, before servers use it. Pure.

Filling first cuts the replica to its own low-water mark (`HeldPartition` in `core.replicas`): it
deletes all transactions above the mark, because some of them may never have been committed. But the
replica may have acknowledged some of them, and a server may have committed them because of that. If
a vote on the committed transactions counted the replica then, it would not notice that they are
missing, and they would be lost. So a replica may be filled only if no vote counts it. The orders
check this before: `Move` and `ReplicaAddition` fill a replica that ZooKeeper has not assigned yet,
`ReplicaRecovery` calls `counts_in_vote`.
"""

from __future__ import annotations

from waltz.admin.core.replicas import (
    PartitionView,
    ReplicaObservation,
    absence_reason,
    unhealthy_reason,
)
from waltz.admin.core.steps import CopyReplica, CreateReplicas, Step, SwitchOff, SwitchOn, Wait

_LAG_FACTOR_ON = 10
"""A replica that was filled and switched on may lag this many times ``lag_allowed``.

Such a replica falls behind until servers use it; then they bring it up to date. Until then, a busy
log grows by more than ``lag_allowed``. Without the factor, the replica would be switched off and
filled again and again (tests/sim/test_ordered_runs.py, recover, seed 2).
"""


def next_fill_step(
    observation: ReplicaObservation,
    view: PartitionView,
    destination: str,
    *,
    source: str | None = None,
) -> Step | Wait | None:
    """Return the next step to fill the replica on ``destination``, None once it is filled.

    A copy ends where the source's present session began. The replica is filled when it lacks at
    most ``lag_allowed`` (`ReplicaObservation`) of the transactions before that point. An assigned
    replica that is switched on and not empty may lack `_LAG_FACTOR_ON` times as many. A replica
    that is not assigned yet must also have no transaction above its own low-water mark. If
    ``source`` is None, the healthy replica with the highest local low-water mark is copied.
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
        why = observation.storage_problem(chosen) or "it does not hold the partition"
        return Wait(f"partition {view.partition} cannot be copied from storage {chosen}: {why}")
    if held.max_transaction_id is None:
        return Wait(f"storage {destination} does not report the end of partition {view.partition}")
    # A new replica may have records above its mark that were never committed, and servers of Waltz
    # 0.13.2 trust all its records. A copy cuts those records off.
    needs_cut = destination not in view.replicas and held.max_transaction_id > held.low_water_mark
    lag = source_replica.local_low_water_mark - held.max_transaction_id
    is_on = held.readable or held.writable
    was_filled = is_on and destination in view.replicas and held.max_transaction_id >= 0
    lag_allowed = observation.lag_allowed * (_LAG_FACTOR_ON if was_filled else 1)
    if not needs_cut and lag <= lag_allowed:
        return None
    # Servers must not write the replica during the copy.
    if is_on:
        return SwitchOff(destination, (view.partition,))
    return CopyReplica(chosen, destination, view.partition)


def next_switch_on_step(
    observation: ReplicaObservation, view: PartitionView, storage: str
) -> CreateReplicas | SwitchOn | Wait | None:
    """Return the next step until servers can use the replica on ``storage``, None if they can."""
    problem = absence_reason(observation, view, storage)
    if problem is None:
        return None
    if observation.storage_problem(storage) is not None:
        return Wait(problem)
    held = observation.held(storage, view.partition)
    if held is None:
        return CreateReplicas(storage, (view.partition,))
    # If both switches are on, the server does not reach the storage: no step changes that.
    return Wait(problem) if held.available else SwitchOn(storage, (view.partition,))


def _best_copy_source(
    observation: ReplicaObservation, view: PartitionView, destination: str
) -> str | None:
    """Return the storage of the healthy replica with the highest local low-water mark, if any."""
    marks = {
        storage: held.local_low_water_mark
        for storage in sorted(view.replicas - {destination})
        if (held := observation.held(storage, view.partition)) is not None
        and unhealthy_reason(observation, view, storage) is None
    }
    return max(marks, key=lambda storage: marks[storage], default=None)
