"""Decide which storages may be away now without harm to a partition. Pure.

The disruption budget of the storages and the rolling changes follow from this decision. Every
other step that makes a storage unavailable on purpose must use it, too, so that two decisions never
contradict each other.

A *session* here is a store session: the exclusive right of one server to write the replicas of a
partition (`waltz.admin.core.replicas`). A partition takes appends only in a session. The *last*
session of a partition is the one that is recorded in the partition's metadata.
"""

from __future__ import annotations

from collections.abc import Set

from waltz.admin.core.replicas import (
    PartitionView,
    first_unhealthy_reason,
    quorum,
    session_opens,
)
from waltz_operator.core.observed import ClusterPresent


def may_be_away(present: ClusterPresent, storages: Set[str]) -> bool:
    """Whether all ``storages`` may be away now, at the same time.

    They may if every partition has a server and only healthy replicas, and if a new session of each
    partition opens without these storages. While any replica is unhealthy, no storage may be away:
    the unhealthy replica may lack transactions, so without one more replica the partition could
    lose its quorum.
    """
    return absence_obstacle(present, storages) is None


def absence_obstacle(present: ClusterPresent, storages: Set[str]) -> str | None:
    """Return why ``storages`` must not be away now; None if they may. See `may_be_away`."""
    for _, view in sorted(present.replicas.partitions.items()):
        if reason := first_unhealthy_reason(present.replicas, view, view.replicas):
            return reason
        if not _opens_without(view, storages):
            return _no_quorum(view, storages)
    return None


def health_obstacle(present: ClusterPresent) -> str | None:
    """Return why a partition is not healthy now; None if all are.

    A partition is healthy if it has a server, if all its replicas are healthy, and if a new session
    of it could open.
    """
    return absence_obstacle(present, frozenset())


def may_be_repaired(present: ClusterPresent, storages: Set[str]) -> bool:
    """Whether ``storages``, whose replicas are unhealthy, may be stopped for a repair.

    They may if every partition has a server, if every replica on the other storages is healthy, and
    if a new session of each partition opens without ``storages``: then no partition depends on
    them. `may_be_away` is false for ``storages``, because it demands that all replicas are healthy.
    """
    return repair_obstacle(present, storages) is None


def repair_obstacle(present: ClusterPresent, storages: Set[str]) -> str | None:
    """Return why ``storages`` must not be stopped for a repair; None if they may.

    See `may_be_repaired`.
    """
    for _, view in sorted(present.replicas.partitions.items()):
        others = view.replicas - storages
        if reason := first_unhealthy_reason(present.replicas, view, others):
            return reason
        if not _opens_without(view, storages):
            return _no_quorum(view, storages)
    return None


def _opens_without(view: PartitionView, storages: Set[str]) -> bool:
    """Whether a new session of a partition opens while ``storages`` are away."""
    return session_opens(view.replicas - storages, view.replicas, view.session_replicas)


def _no_quorum(view: PartitionView, storages: Set[str]) -> str:
    """Return the sentence that no session of a partition opens while ``storages`` are away."""
    if not storages:
        return f"partition {view.partition} has no quorum"
    return f"partition {view.partition} has no quorum without {', '.join(sorted(storages))}"


def count_storages_that_may_be_away(present: ClusterPresent) -> int:
    """Return how many storages may be away at the same time, whichever storages they are.

    A storage has at most one replica of a partition, so each storage that is away takes at most one
    replica from a partition. The result follows from the replicas that exist, not from the pools
    that the spec names: a pool that was added has no replicas at first
    (test_budget_counts_existing_copies). It is 0 if there are no partitions, and while a partition
    has no server or an unhealthy replica.
    """
    if not may_be_away(present, frozenset()):
        return 0
    return min((_spare_replicas(view) for view in present.replicas.partitions.values()), default=0)


def _spare_replicas(view: PartitionView) -> int:
    """Return how many healthy replicas a partition can lose and still open a new session.

    A session needs two quorums: of the last session's replicas, and of the assigned replicas
    (`session_opens`). All assigned replicas are healthy here, so all of them are in the last
    session. So the last session has at least as many replicas as are assigned, and its quorum is at
    least as large: this quorum alone decides. Example: of the 4 replicas of the last session one
    was unassigned. The quorum of 4 is 3, so none of the 3 assigned replicas can be lost.
    """
    of_last_session = view.session_replicas
    assert view.replicas <= of_last_session, (
        f"partition {view.partition}: a healthy replica has no session"
    )
    return len(view.replicas) - quorum(len(of_last_session))
