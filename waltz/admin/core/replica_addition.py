"""Order: add replicas of a partition on storages of groups that have none. Pure.

The new replicas are created and filled before ZooKeeper assigns them. So they lack only the newest
transactions when they begin to count in quorums. One change in ZooKeeper assigns all new replicas.

In general, the present replicas alone must be a quorum of the replicas after the change, so that
sessions open even if all new replicas fail. For example, two replicas can get only one more. A
single replica is no quorum of any larger set, so it is an exception: it must get at least two more.
Then sessions open even if one of the new replicas fails. `core.replicas` explains sessions and
quorums.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.replica_filling import next_fill_step, next_switch_on_step
from waltz.admin.core.replicas import (
    ObservationScope,
    PartitionView,
    ReplicaObservation,
    quorum_shortage,
    session_opens,
    unsettled_reason,
)
from waltz.admin.core.steps import (
    ChangeAssignment,
    Done,
    EqualReplicas,
    Next,
    Order,
    Refuse,
    Wait,
)
from waltz.metadata.core.storage_maps import ReplicaChange


@dataclass(frozen=True, slots=True)
class ReplicaAddition(Order):
    """Add a replica of ``partition`` on each of ``storages``; done when all are healthy."""

    partition: int
    storages: frozenset[str]

    @property
    def scope(self) -> ObservationScope:
        """The scope: the partition and the storages."""
        return ObservationScope((self.partition,), self.storages)

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""
        view = observation.partitions.get(self.partition)
        if view is None:
            return Refuse(f"partition {self.partition} does not exist")
        if unknown := sorted(self.storages - observation.groups.keys()):
            return Refuse(f"storage {unknown[0]} is in no group of the cluster")
        new = self.storages - view.replicas
        if new and (shortage := addition_shortage(view, new)):
            return Refuse(shortage)
        if problem := unsettled_reason(observation, view, view.replicas):
            return Wait(problem)
        for storage in sorted(new):
            step = next_fill_step(observation, view, storage) or next_switch_on_step(
                observation, view, storage
            )
            if step is not None:
                return step
        if not new:
            return Done()  # `unsettled_reason` has found all replicas healthy.
        wanted = view.replicas | new
        return ChangeAssignment(
            (ReplicaChange(view.partition, view.replicas, wanted),),
            (EqualReplicas(view.partition, wanted),),
        )


def addition_shortage(view: PartitionView, new: frozenset[str]) -> str | None:
    """Return why the addition of the replicas ``new`` could leave no quorum, None if it could not.

    All present replicas count as healthy here. ``new`` must not be empty.
    """
    wanted = view.replicas | new
    shortage = quorum_shortage(view, wanted)
    if shortage is None or len(view.replicas) > 1:
        return shortage
    # No session opens without the single present replica anyway: only that one certainly has the
    # committed transactions. So it suffices that a quorum of the larger set is left if one of the
    # new replicas fails. Example: with two new replicas a quorum is 2 of 3, and one may fail.
    opens_without_any_one = all(
        session_opens(wanted - {each}, wanted, view.replicas) for each in new
    )
    return None if opens_without_any_one else shortage
