"""Wait for a session without the replicas that lost their assignment, or assign them again. Pure.

Until a session without them has recovered, they belong to the set of which a quorum has every
committed transaction, but servers no longer contact them. If another replica fails at that moment,
the partition stays closed until that replica returns. Assigning the removed replica again opens the
partition immediately.
"""

from __future__ import annotations

from collections.abc import Iterable

from waltz.admin.core.replicas import (
    PartitionView,
    ReplicaObservation,
    absence_reason,
    first_unhealthy_reason,
    session_opens,
)
from waltz.admin.core.steps import ChangeAssignment, Wait
from waltz.metadata.core.storage_maps import ReplicaChange


def settle_removal(
    observation: ReplicaObservation, views: Iterable[PartitionView], left: frozenset[str]
) -> ChangeAssignment | Wait | None:
    """Return the next step after ``left`` lost these partitions, None if all are healthy again.

    Only then may the storages in ``left`` drop their replicas: before, such a replica may be needed
    for a quorum of the last session.
    """
    views = tuple(views)
    back = tuple(c for view in views if (c := _assigned_again(observation, view, left)) is not None)
    if back:
        return ChangeAssignment(back)
    for view in views:
        if leaving := left & view.session_replicas:
            return Wait(
                f"no session of partition {view.partition} without storage "
                f"{', '.join(sorted(leaving))} has recovered yet"
            )
        if problem := first_unhealthy_reason(observation, view, view.replicas):
            return Wait(problem)
    return None


def _assigned_again(
    observation: ReplicaObservation, view: PartitionView, left: frozenset[str]
) -> ReplicaChange | None:
    """Return the change that assigns ``left`` again, if the partition opens only with them."""
    here = frozenset(
        s for s in view.replicas | left if absence_reason(observation, view, s) is None
    )
    wanted = view.replicas | (here & left & view.session_replicas)
    last = view.session_replicas
    if session_opens(here, view.replicas, last) or not session_opens(here, wanted, last):
        return None
    return ReplicaChange(view.partition, view.replicas, wanted)
