"""After replicas were unassigned: wait for a session without them, or assign them again. Pure.

Until a session without the removed replicas has recovered, they still count in the quorum that
recovery needs, but servers no longer contact them. If another replica fails during that time, the
partition stays closed until the failed replica returns. Assigning the removed replica again opens
the partition immediately. Example: one of three replicas is removed. Recovery still needs two of
the three, and servers contact only two, so both must answer.
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

    The result is None if all partitions are healthy in sessions without those storages. Only then
    may the storages drop their replicas: until then, a quorum of the last session may need them.
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
    """Return the change that reassigns ``removed`` storages, if a session opens only with them."""
    present = frozenset(
        s for s in view.replicas | removed if absence_reason(observation, view, s) is None
    )
    last_session = view.session_replicas
    # Only replicas of the last session know what it has committed, so only these can help.
    wanted = view.replicas | (present & removed & last_session)
    opens_now = session_opens(present, view.replicas, last_session)
    opens_with_removed = session_opens(present, wanted, last_session)
    if opens_now or not opens_with_removed:
        return None
    return ReplicaChange(view.partition, view.replicas, wanted)
