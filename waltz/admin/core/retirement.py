"""Order: retire a group of storages, which has one replica of every partition. Pure.

By default one compare-and-set in ZooKeeper removes the whole group from the assignment. Then all
partitions recover at the same time. For clusters under load, several changes of fewer partitions
each are possible (``at_once``). A change is made only while the remaining replicas of every
partition are healthy. They must be a quorum of the replicas before the change, and of those after
it. Otherwise a session could miss committed transactions. The storages of the group drop their
replicas only after every partition has recovered in a session without them.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.replica_removal import next_step_after_removal
from waltz.admin.core.replicas import (
    ObservationScope,
    ReplicaObservation,
    change_obstacle,
    quorum_shortage,
)
from waltz.admin.core.steps import (
    ChangeAssignment,
    Done,
    DropReplicas,
    EqualReplicas,
    Next,
    Order,
    Refuse,
    Wait,
)
from waltz.metadata.core.storage_maps import ReplicaChange


@dataclass(frozen=True, slots=True)
class Retirement(Order):
    """Remove all replicas from the storages of ``group``, and with ``delete_files`` their files.

    ``at_once`` is the largest number of partitions of one change in ZooKeeper (None: all). The next
    change waits until every partition of the earlier changes has recovered in a session without the
    group. With ``prove``, a change is made only if range checksums show that the remaining replicas
    are equal (`EqualReplicas`).
    """

    group: int
    delete_files: bool = False
    at_once: int | None = None
    prove: bool = False

    @property
    def scope(self) -> ObservationScope:
        """The scope: all partitions, because a group has a replica of every partition."""
        return ObservationScope(None, group=self.group)

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""
        return _next_step(observation, self)


def _next_step(observation: ReplicaObservation, order: Retirement) -> Next:
    """Return the next step: change the assignment, wait for sessions, drop the replicas."""
    groups = observation.groups
    leaving = frozenset(storage for storage in groups if groups[storage] == order.group)
    if not leaving:
        return Refuse(f"group {order.group} has no storages")
    views = observation.partitions.values()
    affected = [view for view in views if view.replicas & leaving]
    for view in affected:
        if problem := quorum_shortage(view, view.replicas - leaving):
            return Refuse(problem)
    if not affected:
        # No partition is assigned to the group any more: this attempt or an earlier one has
        # unassigned them all.
        return next_step_after_removal(observation, views, leaving) or _drop(
            observation, leaving, order
        )
    if order.at_once is not None:
        # The partitions of earlier changes must have recovered before the next change. So at most
        # ``at_once`` partitions recover at the same time.
        changed = [view for view in views if not view.replicas & leaving]
        if step := next_step_after_removal(observation, changed, leaving):
            return step
    for view in affected:
        if problem := change_obstacle(observation, view, view.replicas - leaving):
            return Wait(problem)
    chosen = affected[: order.at_once]  # With None, the slice has all.
    return ChangeAssignment(
        tuple(ReplicaChange(v.partition, v.replicas, v.replicas - leaving) for v in chosen),
        tuple(EqualReplicas(v.partition, v.replicas - leaving) for v in chosen if order.prove),
    )


def _drop(observation: ReplicaObservation, leaving: frozenset[str], order: Retirement) -> Next:
    """Return the next step until the ``leaving`` storages have dropped all their replicas."""
    for storage in sorted(leaving):
        if problem := observation.storage_problem(storage):
            return Wait(f"storage {storage} does not answer: {problem}")
        if held := observation.storages[storage].held:
            return DropReplicas(storage, tuple(sorted(held)), order.delete_files)
    return Done()
