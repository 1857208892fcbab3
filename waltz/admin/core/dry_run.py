"""Forecast the steps of an order without performing them. Pure.

Each step is applied to the observation instead of the cluster. The forecast does not include what
servers do by themselves: for example, they begin a store session without a removed replica. Where
an order waits for something that servers do, the forecast ends with this `Wait`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from waltz.admin.core.replicas import HeldPartition, ReplicaObservation
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    CreateReplicas,
    Done,
    DropReplicas,
    Order,
    Refuse,
    RegisterStorage,
    RepairRecords,
    SetSwitch,
    Step,
    SwitchKind,
    SwitchOff,
    SwitchOn,
    UnregisterStorage,
    Wait,
)
from waltz.metadata.core.storage_maps import (
    StorageMaps,
    add_storage_node,
    change_replicas,
    remove_storage_node,
)

_MOST_STEPS = 100
"""A forecast ends after this many steps: with a defective `next_step` it might never end."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The steps that an order would take, and what its `next_step` decides after the last one."""

    steps: tuple[Step, ...]
    end: Done | Wait | Refuse


def forecast(order: Order, observation: ReplicaObservation) -> Forecast:
    """Return what ``order`` would do, beginning at ``observation``."""
    if (reason := order.refusal(observation)) is not None:
        return Forecast((), Refuse(reason))
    steps: list[Step] = []
    for _ in range(_MOST_STEPS):
        match order.next_step(observation):
            case (Done() | Wait() | Refuse()) as end:
                return Forecast(tuple(steps), end)
            case DropReplicas(final=True) as step:
                # A storage does not list a replica whose entry in its control file is damaged. No
                # observation would show that it is dropped, so the order ends with this step.
                return Forecast((*steps, step), Done())
            case step:
                steps.append(step)
                observation = after_step(observation, step)
    return Forecast(tuple(steps), Wait(f"the forecast ends after {_MOST_STEPS} steps"))


def after_step(observation: ReplicaObservation, step: Step) -> ReplicaObservation:
    """Return the observation after ``step``, if nothing else changes the cluster."""
    match step:
        case ChangeAssignment(changes, _):
            return _with_maps(observation, change_replicas(observation.maps, changes))
        case RegisterStorage(storage, group, admin_port):
            maps = add_storage_node(observation.maps, storage, group, admin_port)
            return _with_maps(observation, maps)
        case UnregisterStorage(storage):
            return _with_maps(observation, remove_storage_node(observation.maps, storage))
        case RepairRecords():
            return _with_repair(observation, step)
        case _:
            return _with_replicas(observation, step)


def _with_maps(observation: ReplicaObservation, maps: StorageMaps) -> ReplicaObservation:
    """Return the observation after a change of the storage maps to ``maps``."""
    views = {
        partition: replace(view, replicas=frozenset(maps.assignments.storages_of(partition)))
        for partition, view in observation.partitions.items()
    }
    return replace(observation, maps=maps, partitions=views)


def _with_replicas(
    observation: ReplicaObservation,
    step: CreateReplicas | SwitchOff | SwitchOn | SetSwitch | DropReplicas | CopyReplica,
) -> ReplicaObservation:
    """Return the observation after a step that changes the replicas of one storage."""
    storage = step.destination if isinstance(step, CopyReplica) else step.storage
    held = dict(observation.storages[storage].held)
    match step:
        case CreateReplicas(_, partitions):
            for p in partitions:
                held.setdefault(p, _new_replica(p))
        case DropReplicas(_, partitions):
            for p in partitions:
                held.pop(p, None)
        case SwitchOff(_, partitions):
            held |= {p: replace(held[p], readable=False, writable=False) for p in partitions}
        case SwitchOn(_, partitions):
            held |= {p: replace(held[p], readable=True, writable=True) for p in partitions}
        case SetSwitch(_, partitions, SwitchKind.READ, on):
            held |= {p: replace(held[p], readable=on) for p in partitions}
        case SetSwitch(_, partitions, SwitchKind.WRITE, on):
            held |= {p: replace(held[p], writable=on) for p in partitions}
        case CopyReplica(source, _, partition):
            source_replica = observation.held(source, partition)
            assert source_replica is not None, "a plan copies only from a storage with the replica"
            held[partition] = _replica_after_copy(held[partition], source_replica)
    # A step succeeds only at a storage that answers.
    report = replace(observation.storages[storage], held=held, problem=None)
    changed = {**observation.storages, storage: report}
    return replace(observation, storages=changed)


def _with_repair(observation: ReplicaObservation, step: RepairRecords) -> ReplicaObservation:
    """Return the observation without the damaged records that ``step`` repairs.

    The step repairs one damaged range, or only its beginning. In both cases the last record of the
    step is in this range, and in no other.
    """
    report = observation.storages[step.destination]
    damaged = []
    for damaged_range in report.damaged:
        is_repaired = (
            damaged_range.partition == step.partition
            and damaged_range.first_id <= step.last_id <= damaged_range.last_id
        )
        if not is_repaired:
            damaged.append(damaged_range)
        elif step.last_id < damaged_range.last_id:
            damaged.append(replace(damaged_range, first_id=step.last_id + 1))
    changed = {**observation.storages, step.destination: replace(report, damaged=tuple(damaged))}
    return replace(observation, storages=changed)


def _new_replica(partition: int) -> HeldPartition:
    """Return a replica as a storage creates it: switched on, and empty.

    It is not empty if the storage's disk has files of it, but no observation shows these.
    """
    return HeldPartition(
        partition,
        session_id=-1,
        low_water_mark=-1,
        local_low_water_mark=-1,
        max_transaction_id=-1,
        size_bytes=None,
        readable=True,
        writable=True,
    )


def _replica_after_copy(held: HeldPartition, source: HeldPartition) -> HeldPartition:
    """Return the replica ``held`` after a copy from ``source``.

    A copy keeps the records up to the low-water mark of ``held``, and replaces or adds those up to
    the local low-water mark of the source.
    """
    end = max(held.low_water_mark, source.local_low_water_mark)
    return replace(held, low_water_mark=end, local_low_water_mark=end, max_transaction_id=end)
