"""Compare the replicas on a new volume with their peers, in parts. Touches the network."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from waltz.admin import NotEqual
from waltz_operator.core.steps import CompareReplica
from waltz_operator.core.volume_replacement import Replacement
from waltz_operator.shell.environment import ReplicaAccess

_COMPARE_SECONDS = 10.0
"""The time after which a comparison pauses, so that the cluster is observed meanwhile."""


async def compare_next_part(replicas: ReplicaAccess, step: CompareReplica) -> Replacement:
    """Compare for a bounded time; return where the next comparison continues.

    ``step.at`` is where this comparison begins: a partition and a transaction id. Raises NotEqual
    if a transaction differs, or if the replica of ``step.storage`` cannot be compared now, and the
    errors of `ReplicaAccess.compare`.
    """
    at = step.at
    clock = asyncio.get_running_loop().time
    end = clock() + _COMPARE_SECONDS
    result = await replicas.compare(at.partition, at.next_id, lambda: clock() < end)
    # Why the replica of a storage cannot be compared to the end, by storage.
    problems = {**result.problems, **dict.fromkeys(result.ends, "it ends early")}
    if result.difference is not None:
        raise NotEqual(
            f"transaction {result.difference.transaction_id} is not the same on all storages: "
            "see waltz storage compare"
        )
    if step.storage in problems:
        raise NotEqual(problems[step.storage])
    if result.compared_until >= result.last_id:
        return replace(at, partition=at.partition + 1, next_id=0)
    if result.compared_until < at.next_id:
        # At least one range is compared if there is a peer, so there is none.
        reasons = [f"storage {storage}: {why}" for storage, why in sorted(problems.items())]
        raise NotEqual("; ".join(("no peer can be compared now", *reasons)))
    return replace(at, next_id=result.compared_until + 1)
