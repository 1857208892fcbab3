"""Vote for the mark of a recovery (spec/behaviour.md section 6.2). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby


def decided_position(positions: Iterable[int], absent: int, quorum: int) -> int | None:
    """Return the highest position that a quorum supports, None if that cannot be decided yet.

    A replica supports every position up to its own. ``positions`` are those of the counted
    replicas, highest first. ``absent`` is the number of the
    last session's replicas that are not counted. The vote goes down from the highest position. If a
    position lacks support, but would have enough with the absent replicas, it may be committed, and
    a session that opens below it would lose it. So no lower position can be decided
    (undecidable_vote.txt).

    No other rule is needed. A quorum of the last session's replicas holds each transaction that
    this session committed. Each of these replicas is counted at or above the transaction, or is
    absent. So before the vote gets below the transaction, it has decided or cannot decide.
    Transactions of earlier sessions are at or below a mark that is known to be committed, and the
    caller resolves no mark below that one (known_mark.txt).
    """
    supports = 0
    for position, group in groupby(positions):
        supports += len(list(group))
        if supports >= quorum:
            return position
        if supports + absent >= quorum:
            return None
    return None
