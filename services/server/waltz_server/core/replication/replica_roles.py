"""Which rule applies to each replica in a recovery (spec/behaviour.md section 6). Pure.

The rules guarantee one invariant: **a mark that a session resolves never goes down in a later
one**, even if the session that resolved it fails before it opens. It may have left the mark on a
disk, and that disk's log is trusted up to the mark ever after. `test_server_recovery_histories`
checks the invariant over sequences of sessions that fail during their recovery.

All sessions between two that open find the same metadata. They vote among the same replicas and
share at least one replica of any quorum. So the next vote must still find everything that a vote
has counted:

* A voter keeps its log, so its position can be counted again.
* A replica that left earlier has its own log cut first. Then the new session is put on its disk,
  with the mark at which the log was cut. Only then the session copies records to it that count. If
  the next session finds this session on the disk, the records above the mark are copies: it counts
  them and does not cut them off.

A replica's own mark can still be wrong: a session of Waltz 0.13.2, which does not keep this order,
may have written it, or a disk that had been counted was emptied. So a log is never trusted beyond
the closing mark, which only a session writes that opens. If the log is then cut below the point
where it ended when the disk got its mark, the storage refuses any other mark until the log is
filled again; until then the replica supports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from waltz.metadata.core.formats import UNRESOLVED, ReplicaState

NEVER = -1
"""Session id of a replica that never took part in a session."""


class RecoveryCase(Enum):
    """The rule that applied to a replica when it connected (spec/behaviour.md section 6).

    The transcripts in tests/transcripts show each case; the values appear in log lines.
    """

    NEW_PARTITION = "is of a new partition"
    NEW_REPLICA = "is new: cut to its own mark"
    """adding_replicas.txt, readded_replica.txt"""
    OLDER = "is older than its metadata: known only up to its mark"
    """restored_snapshot.txt, emptied_disk.txt"""
    NEVER_TOOK_PART = "never took part: cut to its own mark"
    """readded_replica_late.txt"""
    CLOSED = "left earlier: cut to its closing mark"
    """clean_replica.txt"""
    FILLED = "was being filled by a session that never opened: supports what it holds"
    """test_server_recovery_histories.py"""
    VOTER = "votes"
    """undecidable_vote.txt"""
    LAGGING = "lags: supports what it copies"
    """lagging_replica.txt"""


class VoteRole(Enum):
    """The uses of a replica's position while the mark is unresolved."""

    VOTER = auto()
    """Took part in the last session and kept all it acknowledged: its position is a vote."""
    CLEAN = auto()
    """Has certainly acknowledged nothing beyond its log: its position, copies included, supports a
    mark.
    """
    UNKNOWN = auto()
    """May have acknowledged more than it now holds (emptied, restored): counts as absent.

    If its copies counted as votes, they would outvote the replicas that kept their logs: see
    emptied_disk.txt.
    """
    NEW = auto()
    """Not among the last session's replicas: copies, but supports nothing.

    Its log does not show what the last session committed: see adding_replicas.txt.
    """


@dataclass(frozen=True, slots=True)
class Classification:
    """The role of a replica in the recovery, and the changes of its log that come first."""

    role: VoteRole
    case: RecoveryCase
    cut_at: int | None
    """The id after which its log is cut first, None if its log is not cut."""
    entry_mark: int | None
    """The mark with which the session is put on its disk before copies count, None if it is not."""
    mark_counts: bool
    """Whether its own mark may be committed: then no mark below it is resolved (known_mark.txt)."""


def classify(
    replica: str, entries: Mapping[str, ReplicaState], session: int, low_water_mark: int
) -> Classification:
    """Classify ``replica``, which has ``session`` and its mark on its disk, by the metadata."""
    entry = entries.get(replica)
    role, case = VoteRole.CLEAN, RecoveryCase.CLOSED
    cut_at: int | None = None
    if entry is None and not entries:
        role, case = VoteRole.VOTER, RecoveryCase.NEW_PARTITION
    elif entry is None:
        # Assigned again with old files, it may hold records that were never committed.
        role, case, cut_at = VoteRole.NEW, RecoveryCase.NEW_REPLICA, low_water_mark
    elif session < entry.session_id:
        # The metadata say that it took part in a session that is not on its disk: the disk was
        # emptied or restored. Transactions that it acknowledged in that session may be lost.
        role, case = VoteRole.UNKNOWN, RecoveryCase.OLDER
        cut_at = _lower(low_water_mark, entry.closing_mark)
    elif entry.closing_mark == UNRESOLVED:
        role, case = VoteRole.VOTER, RecoveryCase.VOTER
    elif session > _last_opened(entries):
        # A session that never opened has begun to fill it. An earlier vote may have counted these
        # copies, so they must not be cut off.
        case = RecoveryCase.FILLED
    elif entry.session_id == NEVER:
        # It may hold records of an earlier assignment: what lies above its own low-water mark may
        # have diverged, whenever it connects.
        case = RecoveryCase.NEVER_TOOK_PART
        cut_at = _lower(low_water_mark, entry.closing_mark)
    else:
        # Records that it received after the closing mark were acknowledged by no quorum.
        cut_at = entry.closing_mark
    confirmed = entry is not None and entry.session_id == session != NEVER
    mark_counts = role is VoteRole.VOTER or case is RecoveryCase.OLDER or confirmed
    entry_mark = None
    if role is VoteRole.CLEAN and cut_at is not None:
        # Marks on a disk never go down.
        entry_mark = max(cut_at, low_water_mark)
    return Classification(role, case, cut_at, entry_mark, mark_counts)


def _last_opened(entries: Mapping[str, ReplicaState]) -> int:
    """Return the session that wrote the metadata: none has opened since."""
    return max(state.session_id for state in entries.values())


def _lower(low_water_mark: int, closing_mark: int) -> int:
    """Return the id up to which both marks prove that the log is right."""
    return low_water_mark if closing_mark == UNRESOLVED else min(low_water_mark, closing_mark)
