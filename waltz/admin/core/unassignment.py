"""Takes replicas away from one storage: what is next, and what speaks against it. Pure.

ZooKeeper is told while what remains is healthy and a quorum, as when a group is retired. When
sessions without the storage have recovered, it drops what it held. If the storage alone is told,
the assignment stays, and with it the quorum: then a quorum of healthy replicas must be elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from waltz.admin.core.leaving import settle
from waltz.admin.core.replicas import (
    Observed,
    PartitionView,
    Scope,
    ailment,
    first_ailment,
    objection,
    opens,
    shortage,
)
from waltz.admin.core.steps import Done, Drop, Next, Reassign, Refuse, Wait
from waltz.metadata.core.storage_maps import ReplicaChange


class Told(StrEnum):
    """Who alone is told of an assignment."""

    ZOOKEEPER = "zookeeper"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True)
class Unassignment:
    """``storage`` shall have ``partitions`` no longer. ``only``: who is told; None: both."""

    storage: str
    partitions: tuple[int, ...]
    delete_files: bool = False
    only: Told | None = None

    @property
    def scope(self) -> Scope:
        """The partitions, all who hold them, and the storage."""
        return Scope(self.partitions, frozenset({self.storage}))

    def next_step(self, observed: Observed) -> Next:
        """Return what is next; from any state in which an earlier attempt was broken off, too."""
        if missing := sorted(set(self.partitions) - observed.partitions.keys()):
            return Refuse(f"partition {missing[0]} does not exist")
        views = tuple(observed.partitions[partition] for partition in self.partitions)
        if self.only is Told.STORAGE:
            return self._drop(observed, views)
        change = self._reassign(observed, views)
        if change is not None or self.only is Told.ZOOKEEPER:
            return change or Done()
        waiting = settle(observed, views, frozenset({self.storage}))
        return waiting or self._drop(observed, views)

    def _reassign(
        self, observed: Observed, views: tuple[PartitionView, ...]
    ) -> Reassign | Wait | Refuse | None:
        leaving = frozenset({self.storage})
        affected = [view for view in views if self.storage in view.replicas]
        for view in affected:
            if problem := shortage(view, view.replicas - leaving):
                return Refuse(problem)
        for view in affected:
            if problem := objection(observed, view, view.replicas - leaving):
                return Wait(problem)
        changes = (ReplicaChange(v.partition, v.replicas, v.replicas - leaving) for v in affected)
        return Reassign(tuple(changes)) if affected else None

    def _drop(self, observed: Observed, views: tuple[PartitionView, ...]) -> Next:
        if problem := observed.storage_problem(self.storage):
            return Wait(f"storage {self.storage} does not answer: {problem}")
        held = [v for v in views if observed.held(self.storage, v.partition) is not None]
        for view in held:
            if found := _loss(observed, view, self.storage):
                return found
        if not held:
            return Done()
        return Drop(self.storage, tuple(view.partition for view in held), self.delete_files)


def _loss(observed: Observed, view: PartitionView, storage: str) -> Refuse | Wait | None:
    """Return why what ``storage`` holds of a partition may not go while it counts in quorums."""
    if storage not in view.replicas | view.last:
        return None
    others = view.replicas - {storage}
    if not opens(others, view.replicas, view.last):
        return Refuse(
            f"without what storage {storage} holds of partition {view.partition} no quorum of its "
            f"{len(view.replicas | view.last)} replicas would be left"
        )
    healthy = frozenset(other for other in others if ailment(observed, view, other) is None)
    if view.server_problem is None and opens(healthy, view.replicas, view.last):
        return None
    reason = first_ailment(observed, view, others)
    assert reason is not None
    return Wait(reason)
