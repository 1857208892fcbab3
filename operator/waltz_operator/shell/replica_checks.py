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

    Raises NotEqual if a transaction differs, or if the replica cannot be compared now.
    """
    clock, at = asyncio.get_running_loop().time, step.at
    end = clock() + _COMPARE_SECONDS
    part = await replicas.compare(at.partition, at.next_id, lambda: clock() < end)
    problems = {**part.result.problems, **dict.fromkeys(part.result.ends, "it ends early")}
    if part.result.difference is not None:
        raise NotEqual(
            f"transaction {part.result.difference.transaction_id} is not the same on all storages: "
            "see waltz storage compare"
        )
    if step.storage in problems:
        raise NotEqual(problems[step.storage])
    # Without a peer, not even transaction `at.next_id` is compared: `last_compared` stays below
    # this id. If the partition ends before this id, nothing is left to compare, and
    # `last_compared` is not below the last id of the partition.
    if part.last_compared < min(at.next_id, part.result.last_id):
        raise NotEqual("no peer can be compared now")
    if part.last_compared >= part.result.last_id:
        return replace(at, partition=at.partition + 1, next_id=0)
    return replace(at, next_id=part.last_compared + 1)
