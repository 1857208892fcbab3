"""Find the leader of a managed ZooKeeper by the command ``srvr``. Touches the network.

When all members are replaced, the leader comes last, so that only one election is needed.
`core.planning.rolls` waits while the leader is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from waltz.net import open_streams

_ANSWER_SECONDS = 3.0
"""The time after which a member without an answer is ignored."""

_LEADER = "Mode: leader"
"""The line by which a leader's answer differs from that of another member."""


async def find_leader(members: Sequence[tuple[str, int]]) -> str | None:
    """Return the host of the member that leads the ensemble.

    The result is None if no member says that it leads. It is also None if several say so: during an
    election, a member that has lost its quorum may still answer as the leader for a moment. Members
    that do not answer are ignored.
    """
    answers = await asyncio.gather(*(_query_member(host, port) for host, port in members))
    leaders = [
        host
        for (host, _), answer in zip(members, answers, strict=True)
        if _LEADER in answer.splitlines()
    ]
    return leaders[0] if len(leaders) == 1 else None


async def _query_member(host: str, port: int) -> str:
    """Return a member's answer to ``srvr``, empty if it does not answer in time."""
    writer = None
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await open_streams(host, port)
            writer.write(b"srvr")
            await writer.drain()
            # The member closes the connection after its answer.
            return (await reader.read()).decode(errors="replace")
    except (OSError, TimeoutError):
        return ""
    finally:
        if writer is not None:
            writer.close()
