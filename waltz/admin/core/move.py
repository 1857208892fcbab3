"""Moves a partition from one storage to another of its group: what is next. Pure.

The replica at the destination is made, filled and switched on, then ZooKeeper is told that there is
one more; when it takes part in the store session, the source's is taken out, and dropped when a
session has begun without it. With *n* replicas, the *n* healthy ones must be a quorum of *n* + 1
both times, so a partition with a single replica cannot be moved.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.filling import fill, switch_on
from waltz.admin.core.leaving import settle
from waltz.admin.core.replicas import Observed, PartitionView, Scope, objection, shortage
from waltz.admin.core.steps import Done, Drop, Next, Reassign, Refuse, Wait
from waltz.metadata.core.storage_maps import ReplicaChange


@dataclass(frozen=True, slots=True)
class Move:
    """The replica of ``partition`` on ``source`` shall be on ``destination`` instead."""

    partition: int
    source: str
    destination: str
    delete_files: bool = False

    @property
    def scope(self) -> Scope:
        """The partition and both storages."""
        return Scope((self.partition,), frozenset({self.source, self.destination}))

    def next_step(self, observed: Observed) -> Next:
        """Return what is next; from any state in which an earlier attempt was broken off, too."""
        return _next_step(observed, self)


def _next_step(observed: Observed, order: Move) -> Next:
    view = observed.partitions.get(order.partition)
    if view is None:
        return Refuse(f"partition {order.partition} does not exist")
    if order.source == order.destination:
        return Refuse(f"partition {order.partition} cannot be moved to where it is")
    match order.source in view.replicas, order.destination in view.replicas:
        case True, False:
            return _stranger(observed, order) or _prepare(observed, view, order)
        case True, True:
            return _hand_over(observed, view, order)
        case False, True:
            return _let_go(observed, view, order)
        case _:
            return Refuse(
                f"partition {order.partition} is neither on {order.source} nor on "
                f"{order.destination}; it is on {', '.join(sorted(view.replicas)) or 'no storage'}"
            )


def _stranger(observed: Observed, order: Move) -> Refuse | None:
    groups = observed.groups
    for storage in (order.source, order.destination):
        if storage not in groups:
            return Refuse(f"storage {storage} is in no group of the cluster")
    if groups[order.source] != groups[order.destination]:
        return Refuse(
            f"storage {order.source} is in group {groups[order.source]}, {order.destination} in "
            f"group {groups[order.destination]}: each group keeps its own copy of a partition"
        )
    return None


def _prepare(observed: Observed, view: PartitionView, order: Move) -> Next:
    wanted = view.replicas | {order.destination}
    # Taking the source out afterwards needs the same quorum, of as many replicas.
    if problem := shortage(view, wanted):
        return Refuse(problem)
    if problem := objection(observed, view, wanted):
        return Wait(problem)
    return (
        fill(observed, view, order.destination)
        or switch_on(observed, view, order.destination)
        or Reassign((ReplicaChange(view.partition, view.replicas, wanted),))
    )


def _hand_over(observed: Observed, view: PartitionView, order: Move) -> Next:
    if step := switch_on(observed, view, order.destination):
        return step
    wanted = view.replicas - {order.source}
    if problem := objection(observed, view, wanted):
        return Wait(problem)
    return Reassign((ReplicaChange(view.partition, view.replicas, wanted),))


def _let_go(observed: Observed, view: PartitionView, order: Move) -> Next:
    if step := settle(observed, (view,), frozenset({order.source})):
        return step
    if order.source not in observed.groups:
        return Done()
    if problem := observed.storage_problem(order.source):
        return Wait(f"storage {order.source} does not answer: {problem}")
    if observed.held(order.source, view.partition) is not None:
        return Drop(order.source, (view.partition,), order.delete_files)
    return Done()
