"""Under which rule a replica takes part in a recovery (spec/behaviour.md section 6). Pure.

A mark that a session resolves never goes down in a later one, even if that session dies before it
opens: it may have left the mark on a disk, which is trusted up to it ever after. All sessions
between two that open find the same metadata, vote among the same replicas, and share one of any
quorum; so what a vote has counted may not be lost to the next. A voter keeps its log anyway. A
replica that left earlier has its own log cut first, then the new session on its disk, with the mark
at which it was cut, and is given copies only then: the next session knows by it that they are
copies, and measures them instead of cutting them off.

A replica may still come with a mark that is not true: from sessions that did not keep to this
(0.13.2), or because a disk that had been counted was emptied. So the closing mark, which only a
session writes that opens, is never exceeded. If that cuts the log below what it was when the disk
got its mark, its storage refuses any other one until the log is filled again, and the replica
supports nothing until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from waltz.metadata.core.formats import UNRESOLVED, ReplicaState

NEVER = -1
"""Session id of a replica that never took part in a session."""


class Case(Enum):
    """The rule that a replica fell under when it connected (spec/behaviour.md section 6)."""

    NEW_PARTITION = "is of a new partition"
    NEW_REPLICA = "is new: cut to its own mark"
    OLDER = "is older than its metadata: known only up to its mark"
    NEVER_TOOK_PART = "never took part: cut to its own mark"
    CLOSED = "left earlier: cut to its closing mark"
    FILLED = "was being filled by a session that never opened: supports what it holds"
    VOTER = "votes"
    LAGGING = "lags: supports what it copies"


class Standing(Enum):
    """What a replica's position may be used for while the mark is unresolved."""

    VOTER = auto()
    """Took part in the last session and kept all it acknowledged: its position is a vote."""
    CLEAN = auto()
    """Known to have acknowledged nothing beyond what it holds: supports what it has copied."""
    UNKNOWN = auto()
    """May have acknowledged more than it now holds (emptied, restored): counts as absent."""
    NEW = auto()
    """Not among the last session's replicas: copies, but supports nothing."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a replica may be used for, and what is done to its log before."""

    standing: Standing
    case: Case
    cut_at: int | None
    """Where its log is cut first, None if it is measured as it is."""
    entry_mark: int | None
    """The mark with which the session goes to its disk before copies count, None if it does not."""
    mark_counts: bool
    """Whether its own mark is known to be committed, or may be: none below it is resolved."""


def judge(
    replica: str, entries: Mapping[str, ReplicaState], session: int, low_water_mark: int
) -> Judgement:
    """Judge ``replica``, which has ``session`` and its mark on its disk, by the metadata."""
    entry = entries.get(replica)
    standing, case = Standing.CLEAN, Case.CLOSED
    cut_at: int | None = None
    if entry is None and not entries:
        standing, case = Standing.VOTER, Case.NEW_PARTITION
    elif entry is None:
        standing, case, cut_at = Standing.NEW, Case.NEW_REPLICA, low_water_mark
    elif session < entry.session_id:
        standing, case = Standing.UNKNOWN, Case.OLDER
        cut_at = _lower(low_water_mark, entry.closing_mark)
    elif entry.closing_mark == UNRESOLVED:
        standing, case = Standing.VOTER, Case.VOTER
    elif session > _last_opened(entries):
        case = Case.FILLED
    elif entry.session_id == NEVER:
        # It may hold records of an earlier assignment: what lies above its own low-water mark may
        # have diverged, whenever it connects.
        case = Case.NEVER_TOOK_PART
        cut_at = _lower(low_water_mark, entry.closing_mark)
    else:
        cut_at = entry.closing_mark
    vouched = entry is not None and entry.session_id == session != NEVER
    mark_counts = standing is Standing.VOTER or case is Case.OLDER or vouched
    entry_mark = None
    if standing is Standing.CLEAN and cut_at is not None:
        entry_mark = max(cut_at, low_water_mark)
    return Judgement(standing, case, cut_at, entry_mark, mark_counts)


def _last_opened(entries: Mapping[str, ReplicaState]) -> int:
    """Return the session that wrote the metadata: none has opened since."""
    return max(state.session_id for state in entries.values())


def _lower(low_water_mark: int, closing_mark: int) -> int:
    """Return up to where both marks vouch for a log."""
    return low_water_mark if closing_mark == UNRESOLVED else min(low_water_mark, closing_mark)
