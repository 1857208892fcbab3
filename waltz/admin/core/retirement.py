"""Order: retire a group of storages, which has one replica of every partition. Pure.

One compare-and-set removes the whole group from the assignment. This is allowed only while the
remaining replicas of every partition are healthy, and are a quorum both of the replicas before the
change and of those after it. Otherwise a session could miss committed transactions. The storages of
the group drop their replicas only after every partition has recovered in a session without them.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.replica_removal import next_removal_step
from waltz.admin.core.replicas import (
    ObservationScope,
    ReplicaObservation,
    change_obstacle,
    quorum_shortage,
)
from waltz.admin.core.steps import ChangeAssignment, Done, DropReplicas, Next, Order, Refuse, Wait
from waltz.metadata.core.storage_maps import ReplicaChange


@dataclass(frozen=True, slots=True)
class Retirement(Order):
    """Remove all replicas from the storages of ``group``, and with ``delete_files`` their files."""

    group: int
    delete_files: bool = False

    @property
    def scope(self) -> ObservationScope:
        """The scope: all partitions, because a group has a replica of every partition."""
        return ObservationScope(None, group=self.group)

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""
        return _next_step(observation, self)


def _next_step(observation: ReplicaObservation, order: Retirement) -> Next:
    leaving = frozenset(s for s, group in observation.groups.items() if group == order.group)
    if not leaving:
        return Refuse(f"group {order.group} has no storages")
    views = observation.partitions.values()
    affected = [view for view in views if view.replicas & leaving]
    for view in affected:
        if problem := quorum_shortage(view, view.replicas - leaving):
            return Refuse(problem)
    if not affected:
        # The assignment has been changed, by this attempt or an earlier one.
        return next_removal_step(observation, views, leaving) or _drop(observation, leaving, order)
    for view in affected:
        if problem := change_obstacle(observation, view, view.replicas - leaving):
            return Wait(problem)
    return ChangeAssignment(
        tuple(ReplicaChange(v.partition, v.replicas, v.replicas - leaving) for v in affected)
    )


def _drop(observation: ReplicaObservation, leaving: frozenset[str], order: Retirement) -> Next:
    """Return the next step until the ``leaving`` storages have dropped all their replicas."""
    for storage in sorted(leaving):
        if problem := observation.storage_problem(storage):
            return Wait(f"storage {storage} does not answer: {problem}")
        if held := observation.storages[storage].held:
            return DropReplicas(storage, tuple(sorted(held)), order.delete_files)
    return Done()
