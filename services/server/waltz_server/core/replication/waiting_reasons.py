"""Describe why a recovery waits: which replicas do not count, and why. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from waltz_server.core.replication.recovering_replica import RecoveringReplica
from waltz_server.core.replication.replica_roles import VoteRole


def waiting_reasons(
    assigned: Collection[str],
    last_replicas: Collection[str],
    present: Mapping[str, RecoveringReplica],
    *,
    failed: Collection[str],
    below_own_mark: Collection[str],
    unreadable: Collection[tuple[str, int]],
) -> list[str]:
    """Return a phrase for each reason, with the replicas that it concerns.

    ``assigned`` are the replicas of the partition now, ``last_replicas`` those of the last session
    that opened. ``present`` are the replicas that have connected, without those that the recovery
    has dropped: ``failed``, and ``below_own_mark``, whose logs end below their own local
    low-water marks. ``unreadable`` has pairs of a replica and the id of a record that this replica
    could not deliver. The replica is named if a present replica needs this record next.
    """
    seen = {*present, *failed, *below_own_mark}
    needed = {r.position + 1 for r in present.values() if r.position is not None}
    reasons = {
        "absent:": [name for name in assigned if name not in seen],
        "failed:": failed,
        "lost records below its own mark:": below_own_mark,
        "older than its metadata:": [n for n, r in present.items() if r.role is VoteRole.UNKNOWN],
        "no longer assigned:": [name for name in last_replicas if name not in assigned],
        "cannot be read:": sorted({name for name, record in unreadable if record in needed}),
    }
    return [f"{reason} {', '.join(names)}" for reason, names in reasons.items() if names]
