"""After replicas were unassigned: wait for a session without them, or assign them again. Pure.

Until a session without the removed replicas has recovered, the removed replicas still count in the
quorum that recovery needs, but servers no longer contact them. Example: one of three replicas is
removed. Recovery still needs two of the three. Servers contact only two, so both must answer. If
one of them fails, the partition stays closed until it returns. Assigning the removed replica again
opens the partition immediately. `core.replicas` explains sessions and quorums.
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


def next_step_after_removal(
    observation: ReplicaObservation, views: Iterable[PartitionView], removed: frozenset[str]
) -> ChangeAssignment | Wait | None:
    """Return the next step after the partitions were unassigned from the ``removed`` storages.

    None means that all partitions are healthy in sessions without these storages. Before that the
    storages must keep their replicas, because a quorum of the last session may need them.
    """
    views = tuple(views)
    reassigned = tuple(
        change
        for view in views
        if (change := _reassignment(observation, view, removed)) is not None
    )
    if reassigned:
        return ChangeAssignment(reassigned)
    for view in views:
        if leaving := removed & view.session_replicas:
            return Wait(
                f"no session of partition {view.partition} without storage "
                f"{', '.join(sorted(leaving))} has recovered yet"
            )
        if problem := first_unhealthy_reason(observation, view, view.replicas):
            return Wait(problem)
    return None


def _reassignment(
    observation: ReplicaObservation, view: PartitionView, removed: frozenset[str]
) -> ReplicaChange | None:
    """Return the change that reassigns ``removed`` storages, if a session opens only with them.

    Otherwise return None.
    """
    present = frozenset(
        s for s in view.replicas | removed if absence_reason(observation, view, s) is None
    )
    last_session = view.session_replicas
    # Only replicas of the last session can have what that session committed, so only they help.
    wanted = view.replicas | (present & removed & last_session)
    opens_now = session_opens(present, view.replicas, last_session)
    opens_with_removed = session_opens(present, wanted, last_session)
    if opens_now or not opens_with_removed:
        return None
    return ReplicaChange(view.partition, view.replicas, wanted)
