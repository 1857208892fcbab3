"""Compare the replicas on a new volume with their peers. Touches the network.

After a lost volume was replaced, this comparison proves that the new volume has the same records
as the other storages. It proceeds in parts, because it reads whole logs: `compare_next_part`
compares one part, and the next plan has a step for the next part, up to the last partition.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from waltz.admin import NotEqual
from waltz_operator.core.steps import CompareReplica
from waltz_operator.core.volume_replacement import Replacement
from waltz_operator.shell.environment import ReplicaAccess

_COMPARE_SECONDS = 10.0
"""The time after which a comparison ends early, so that the cluster can be observed."""


async def compare_next_part(replicas: ReplicaAccess, step: CompareReplica) -> Replacement:
    """Compare for a bounded time; return where the next comparison continues.

    ``step.at`` is where this comparison begins: a partition and a transaction id. Raises NotEqual
    if a transaction differs, if the replica of ``step.storage`` cannot be compared now, or if none
    of its peers can. Raises also the errors of `ReplicaAccess.compare`.
    """
    start = step.at
    clock = asyncio.get_running_loop().time
    pause_at = clock() + _COMPARE_SECONDS
    result = await replicas.compare(
        start.partition, start.next_id, may_continue=lambda: clock() < pause_at
    )
    # By storage: why its replica cannot be compared up to the last id.
    problems = {**result.problems, **dict.fromkeys(result.ends, "it ends early")}
    if result.difference is not None:
        raise NotEqual(
            f"transaction {result.difference.transaction_id} is not the same on all storages: "
            "see waltz storage compare"
        )
    if step.storage in problems:
        raise NotEqual(problems[step.storage])
    if result.compared_until >= result.last_id:
        return replace(start, partition=start.partition + 1, next_id=0)
    if result.compared_until < start.next_id:
        # `compare` compares at least one range if a peer can be compared, and it compared none.
        reasons = [f"storage {storage}: {why}" for storage, why in sorted(problems.items())]
        raise NotEqual("; ".join(("no peer can be compared now", *reasons)))
    return replace(start, next_id=result.compared_until + 1)
