"""Order: move a replica from one storage to another one of the same group. Pure.

1. The replica at the destination is created, filled and switched on.
2. ZooKeeper assigns the partition to the destination, too.
3. When the new replica takes part in the store session, ZooKeeper's assignment to the source is
   removed.
4. When a session without the source has recovered, the source drops its replica. A quorum of the
   session before may need it until then (`core.replica_removal`).

A partition with *n* replicas has *n* + 1 after step 2, and *n* after step 3. In each of these two
changes, the *n* replicas that stay must be a quorum of *n* + 1, so that the next session opens with
them alone. For example, three replicas are a quorum of four. One replica is no quorum of two, so
the only replica of a partition cannot be moved. `core.replicas` explains sessions and quorums, and
which replicas are healthy.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.replica_filling import next_fill_step, next_switch_on_step
from waltz.admin.core.replica_removal import next_step_after_removal
from waltz.admin.core.replicas import (
    ObservationScope,
    PartitionView,
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
class Move(Order):
    """Move the replica of ``partition`` on ``source`` to ``destination``.

    With ``delete_files``, the source also deletes the files of its replica. With ``prove``, the
    assignment changes only if range checksums show that the replicas after the change are equal
    (`EqualReplicas`).
    """

    partition: int
    source: str
    destination: str
    delete_files: bool = False
    prove: bool = False

    @property
    def scope(self) -> ObservationScope:
        """The scope: the partition and both storages."""
        return ObservationScope((self.partition,), frozenset({self.source, self.destination}))

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""
        return _next_step(observation, self)


def _next_step(observation: ReplicaObservation, order: Move) -> Next:
    """Return the next step. The storages that are assigned show how far the move has got."""
    view = observation.partitions.get(order.partition)
    if view is None:
        return Refuse(f"partition {order.partition} does not exist")
    if order.source == order.destination:
        return Refuse(f"partition {order.partition} cannot be moved to the storage that it is on")
    match order.source in view.replicas, order.destination in view.replicas:
        case True, False:
            return _group_refusal(observation, order) or _add_destination(observation, view, order)
        case True, True:
            # An earlier attempt of this move has assigned the destination, unless the storages are
            # in different groups. Each of two groups needs its own replica: then both must stay.
            return _two_groups_refusal(observation, order) or _remove_source(
                observation, view, order
            )
        case False, True:
            return _drop_at_source(observation, view, order)
        case _:
            return Refuse(
                f"partition {order.partition} is neither on {order.source} nor on "
                f"{order.destination}; it is on {', '.join(sorted(view.replicas)) or 'no storage'}"
            )


def _group_refusal(observation: ReplicaObservation, order: Move) -> Refuse | None:
    """Refuse a move between groups, or of a storage in no group; None if the move is allowed."""
    for storage in (order.source, order.destination):
        if storage not in observation.groups:
            return Refuse(f"storage {storage} is in no group of the cluster")
    return _two_groups_refusal(observation, order)


def _two_groups_refusal(observation: ReplicaObservation, order: Move) -> Refuse | None:
    """Refuse a move from one group to another; None if the groups are equal or one is unknown."""
    source = observation.groups.get(order.source)
    destination = observation.groups.get(order.destination)
    if source is None or destination is None or source == destination:
        return None
    return Refuse(
        f"storage {order.source} is in group {source}, {order.destination} in group "
        f"{destination}: each group keeps its own copy of a partition"
    )


def _add_destination(observation: ReplicaObservation, view: PartitionView, order: Move) -> Next:
    """Return the next step until ZooKeeper assigns the partition to the destination, too."""
    wanted = view.replicas | {order.destination}
    # The later removal of the source needs the same quorum. Without it the move could not end.
    if problem := quorum_shortage(view, wanted):
        return Refuse(problem)
    if problem := change_obstacle(observation, view, wanted):
        return Wait(problem)
    return (
        next_fill_step(observation, view, order.destination)
        or next_switch_on_step(observation, view, order.destination)
        or _change(view, wanted, order)
    )


def _remove_source(observation: ReplicaObservation, view: PartitionView, order: Move) -> Next:
    """Return the next step until ZooKeeper assigns the partition to the destination only."""
    if step := next_switch_on_step(observation, view, order.destination):
        return step
    wanted = view.replicas - {order.source}
    if problem := change_obstacle(observation, view, wanted):
        return Wait(problem)
    return _change(view, wanted, order)


def _change(view: PartitionView, wanted: frozenset[str], order: Move) -> ChangeAssignment:
    """Return the change to the ``wanted`` replicas, with the proof that the order demands."""
    proofs = (EqualReplicas(view.partition, wanted),) if order.prove else ()
    return ChangeAssignment((ReplicaChange(view.partition, view.replicas, wanted),), proofs)


def _drop_at_source(observation: ReplicaObservation, view: PartitionView, order: Move) -> Next:
    """Return the next step until the source, which is unassigned, has dropped its replica."""
    if step := next_step_after_removal(observation, (view,), frozenset({order.source})):
        return step
    if order.source not in observation.groups:
        return Done()  # The storage has left the cluster: its admin port is not known any more.
    if problem := observation.storage_problem(order.source):
        return Wait(f"storage {order.source} does not answer: {problem}")
    if observation.held(order.source, view.partition) is not None:
        return DropReplicas(order.source, (view.partition,), order.delete_files)
    return Done()
