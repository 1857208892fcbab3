"""Vote for the mark of a recovery (spec/behaviour.md section 6.2). Pure.

`session_recovery` explains the terms. It passes the positions that count, and uses the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby


def decided_position(positions: Iterable[int], absent: int, quorum: int) -> int | None:
    """Return the highest position that a quorum supports, None if that cannot be decided yet.

    ``positions`` are the last transaction ids of the counted replicas, highest first. ``absent`` is
    the number of the last session's replicas that are not counted. A replica supports every
    position up to its own.

    The vote goes down from the highest position. If a position lacks support, but would have enough
    with the absent replicas, the transactions up to it may be committed. A session that opens below
    this position would lose them, so no lower position can be decided (undecidable_vote.txt).

    Example with a quorum of two: positions 12 and 10, and one replica absent. The absent replica
    may have 12, too, so nothing is decided. If it then connects with 10, only one replica supports
    12, and 10 is decided.

    No other rule is needed to keep the transactions that the last session committed. A quorum of
    that session's replicas holds each of them, and each replica of this quorum is either counted
    at or above the transaction, or absent. So the vote decides a position at or above the
    transaction, or it cannot decide. The transactions of earlier sessions are at or below a mark
    that is known to be committed, and the caller resolves no mark below that one (known_mark.txt).
    """
    supporters = 0
    for position, replicas in groupby(positions):
        supporters += len(list(replicas))
        if supporters >= quorum:
            return position
        if supporters + absent >= quorum:
            return None
    # No replica is counted. Otherwise the lowest position would have returned: all counted replicas
    # support it, and with the absent ones they are a quorum.
    return None
