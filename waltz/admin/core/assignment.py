"""Orders: assign some partitions to one storage, or all partitions to a group of storages. Pure.

In an `Assignment` the storage creates the replicas before ZooKeeper assigns them, so that a server
never finds an assigned replica that the storage does not hold.

A `GroupAssignment` does the opposite. It first assigns all partitions by one change in ZooKeeper:
the group gets either all of them or none. Then the storages create the replicas, which servers
cannot use before. A `GroupAssignment` that was interrupted after the change cannot be started
again, because `auto_assign` refuses storages that have partitions. A `Synchronization`
(`core.synchronization`) of each storage completes it.

In both orders, servers fill the new replicas. The *storage maps* are the values of the three znodes
about storages: groups, admin ports and assignments (`waltz.metadata.core.storage_maps`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from waltz.admin.core.replicas import ObservationScope, ReplicaObservation
from waltz.admin.core.steps import (
    ChangeAssignment,
    CreateReplicas,
    Done,
    Next,
    Order,
    Refuse,
    Wait,
)
from waltz.admin.core.synchronization import next_sync_step
from waltz.metadata.core.storage_maps import (
    ChangeRefused,
    ReplicaChange,
    StorageMaps,
    assign_partitions,
    auto_assign,
)


class AssignmentSide(StrEnum):
    """One of the two places that keep an assignment: ZooKeeper, and the storage itself."""

    ZOOKEEPER = "zookeeper"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True)
class Assignment(Order):
    """Assign ``partitions`` to ``storage``, on the side ``only`` (None: on both sides)."""

    storage: str
    partitions: tuple[int, ...]
    only: AssignmentSide | None = None

    @property
    def scope(self) -> ObservationScope:
        """The scope: the storage, unless only ZooKeeper changes."""
        storages = () if self.only is AssignmentSide.ZOOKEEPER else (self.storage,)
        return ObservationScope((), frozenset(storages))

    def refusal(self, observation: ReplicaObservation) -> str | None:
        """Return why the storage maps forbid the order, None if they allow it."""
        if self.only is AssignmentSide.STORAGE:
            return observation.unknown_storage(self.storage)
        try:
            assign_partitions(
                observation.maps, self.storage, self.partitions, observation.num_partitions
            )
        except ChangeRefused as problem:
            return str(problem)
        return None

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""
        if self.only is not AssignmentSide.ZOOKEEPER:
            if problem := observation.storage_problem(self.storage):
                return Wait(f"storage {self.storage} does not answer: {problem}")
            held = observation.storages[self.storage].held
            if missing := tuple(p for p in self.partitions if p not in held):
                return CreateReplicas(self.storage, missing)
        if self.only is AssignmentSide.STORAGE:
            return Done()
        return _assignment_change(observation.maps, {self.storage: self.partitions}) or Done()


@dataclass(frozen=True, slots=True)
class GroupAssignment(Order):
    """Assign all partitions round-robin to the storages of ``group``.

    These storages must not have partitions yet: otherwise the group could get two replicas of one
    partition.
    """

    group: int

    @property
    def scope(self) -> ObservationScope:
        """The scope: the storages of the group."""
        return ObservationScope((), group=self.group)

    def refusal(self, observation: ReplicaObservation) -> str | None:
        """Return why the storage maps forbid the order, None if they allow it."""
        try:
            auto_assign(observation.maps, self.group, observation.num_partitions)
        except ChangeRefused as problem:
            return str(problem)
        return None

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; nothing changes before all storages of the group answer."""
        members = observation.maps.group_members(self.group)
        # The same distribution as that of `auto_assign`.
        wanted = {
            member: tuple(range(first_partition, observation.num_partitions, len(members)))
            for first_partition, member in enumerate(members)
        }
        for member in members:
            if problem := observation.storage_problem(member):
                return Wait(f"storage {member} does not answer: {problem}")
            if observation.assigned(member) - set(wanted[member]):
                return Refuse(f"storage {member} has been assigned other partitions meanwhile")
        if change := _assignment_change(observation.maps, wanted):
            return change
        for member in members:
            if step := next_sync_step(observation, member):
                return step
        return Done()


def _assignment_change(
    maps: StorageMaps, wanted: Mapping[str, tuple[int, ...]]
) -> ChangeAssignment | None:
    """Return the change after which each storage has at least its ``wanted`` partitions.

    Return None if each storage has its wanted partitions already.
    """
    wanted_storages: dict[int, set[str]] = {}
    for storage, partitions in wanted.items():
        for partition in partitions:
            wanted_storages.setdefault(partition, set()).add(storage)
    changes = []
    for partition in sorted(wanted_storages):
        before = frozenset(maps.assignments.storages_of(partition))
        after = before | wanted_storages[partition]
        if after != before:
            changes.append(ReplicaChange(partition, before, after))
    return ChangeAssignment(tuple(changes)) if changes else None
