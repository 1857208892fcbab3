"""Retires a group of storages, and with it one replica of every partition: what is next. Pure.

One compare-and-set takes the whole group out of the assignment, and only while what remains is
healthy and a quorum of both the old and the new replicas of every partition. When sessions without
the group have recovered, its storages drop what they hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.leaving import settle
from waltz.admin.core.replicas import Observed, Scope, objection, shortage
from waltz.admin.core.steps import Done, Drop, Next, Reassign, Refuse, Wait
from waltz.metadata.core.storage_maps import ReplicaChange


@dataclass(frozen=True, slots=True)
class Retirement:
    """The storages of ``group`` shall hold nothing any more."""

    group: int
    delete_files: bool = False

    @property
    def scope(self) -> Scope:
        """Everything: a group has a replica of every partition."""
        return Scope(None, group=self.group)

    def next_step(self, observed: Observed) -> Next:
        """Return what is next; from any state in which an earlier attempt was broken off, too."""
        return _next_step(observed, self)


def _next_step(observed: Observed, order: Retirement) -> Next:
    leaving = frozenset(s for s, group in observed.groups.items() if group == order.group)
    if not leaving:
        return Refuse(f"group {order.group} has no storages")
    views = observed.partitions.values()
    affected = [view for view in views if view.replicas & leaving]
    for view in affected:
        if problem := shortage(view, view.replicas - leaving):
            return Refuse(problem)
    if not affected:
        return settle(observed, views, leaving) or _drop(observed, leaving, order)
    for view in affected:
        if problem := objection(observed, view, view.replicas - leaving):
            return Wait(problem)
    return Reassign(
        tuple(ReplicaChange(v.partition, v.replicas, v.replicas - leaving) for v in affected)
    )


def _drop(observed: Observed, leaving: frozenset[str], order: Retirement) -> Next:
    for storage in sorted(leaving):
        if problem := observed.storage_problem(storage):
            return Wait(f"storage {storage} does not answer: {problem}")
        if held := observed.storages[storage].held:
            return Drop(storage, tuple(sorted(held)), order.delete_files)
    return Done()
