"""Replicas that have just been taken out of the assignment: waited for, or taken back. Pure.

Until a session without them has recovered, they belong to those whose quorum knows what was
committed, but are not asked. If others fail in that moment the partition stays closed until these
are back; taking back the one that left opens it at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from waltz.admin.core.replicas import Observed, PartitionView, absence, first_ailment, opens
from waltz.admin.core.steps import Reassign, Wait
from waltz.metadata.core.storage_maps import ReplicaChange


def settle(
    observed: Observed, views: Iterable[PartitionView], left: frozenset[str]
) -> Reassign | Wait | None:
    """Return what is next after ``left`` have left these partitions, None if all are well again.

    Only then may those who left drop what they hold.
    """
    views = tuple(views)
    back = tuple(c for view in views if (c := _taken_back(observed, view, left)) is not None)
    if back:
        return Reassign(back)
    for view in views:
        if leaving := left & view.last:
            return Wait(
                f"no session of partition {view.partition} without storage "
                f"{', '.join(sorted(leaving))} has recovered yet"
            )
        if problem := first_ailment(observed, view, view.replicas):
            return Wait(problem)
    return None


def _taken_back(
    observed: Observed, view: PartitionView, left: frozenset[str]
) -> ReplicaChange | None:
    """Return how to take those back who have ``left``, if the partition cannot open without."""
    here = frozenset(s for s in view.replicas | left if absence(observed, view, s) is None)
    wanted = view.replicas | (here & left & view.last)
    if opens(here, view.replicas, view.last) or not opens(here, wanted, view.last):
        return None
    return ReplicaChange(view.partition, view.replicas, wanted)
