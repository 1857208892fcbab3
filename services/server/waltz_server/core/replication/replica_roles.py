"""Decide which rule applies to each replica in a recovery (spec/behaviour.md section 6). Pure.

`session_recovery` explains the terms. The .txt files are in tests/transcripts.

The rules guarantee one invariant: **after a session has resolved a mark, no later session resolves
a lower one**, even if the first session fails before it opens. The first session may have written
its mark to a disk, and later sessions trust the log on this disk up to the mark.
`test_server_recovery_histories` checks the invariant over sequences of sessions that fail during
their recovery.

Only a session that opens changes the states of the replicas in ZooKeeper (the *metadata*). If a
session fails before it opens, the next session votes among the same replicas. The next vote must
still find everything that the failed session's vote has counted. So:

* A *voter*, which took part in the last session that opened, keeps its log. Its position can be
  counted again.
* A replica that left an earlier session passes three steps, in this order:

  1. Its log is cut.
  2. The id of the new session is written to its disk, with the *interim mark*: the mark at which
     the log was cut, or the mark on the disk if that is higher.
  3. It receives copies, which count in the vote.

  If the session fails, the next session finds the id of the failed session on this disk. That
  proves that the records above the mark are copies. The next session counts them and does not cut
  them off.

The mark on a replica's disk can be wrong in spite of this order, in two cases:

* Waltz 0.13.2 has written it, which does not keep the order.
* A session that never opened has written it. Later, the disk of another replica was emptied, whose
  position the vote of that session had counted. The invariant supposes that such disks keep their
  records. Now a later session may resolve a lower mark.

So a log is never trusted beyond its *closing mark* in the metadata: the high-water mark at which
the replica left its session. The closing mark is UNRESOLVED for the replicas that took part in the
last session that opened. Only a session that opens writes closing marks.

Each disk also has a *local low-water mark*: the id at which the log ended when the low-water mark
was written. A log that is cut at its closing mark may end below the local low-water mark. The
storage then refuses every new mark until copies have filled the log up to the local low-water mark.
Until then the replica supports no mark in the vote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from waltz.metadata.core.formats import NO_SESSION, UNRESOLVED, ReplicaState


class RecoveryCase(Enum):
    """The rule that applies to a replica in a recovery (spec/behaviour.md section 6).

    The values appear in log lines. The docstring of a case names the transcripts or tests that show
    it (tests/transcripts, tests/unit).
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
    """lagging_replica.txt. `SessionRecovery.measured` finds this case by the end of the log."""


class VoteRole(Enum):
    """How a recovery uses the position of a replica while the mark is unresolved.

    A replica *supports* a mark if its position counts for that mark in the vote.
    """

    VOTER = auto()
    """The replica took part in the last session, and its disk shows no loss of a record that it
    acknowledged: its position is a vote. (A disk that was restored from a copy made during the same
    session shows no loss, either: see ``committed`` of `SessionRecovery`.)
    """
    CLEAN = auto()
    """The replica has certainly acknowledged no record beyond its log: its position supports a
    mark, also after it has received copies.
    """
    UNKNOWN = auto()
    """The replica may have acknowledged more than it holds, because its disk was emptied or
    restored: it counts as absent.

    If its copies counted, they would outvote the replicas that kept their logs: see
    emptied_disk.txt.
    """
    NEW = auto()
    """The replica is not among the last session's replicas: it receives copies but supports no
    mark, because its log does not show what the last session committed. See adding_replicas.txt.
    """


@dataclass(frozen=True, slots=True)
class Classification:
    """The role of a replica in the recovery, and the changes to its disk before it counts."""

    role: VoteRole
    case: RecoveryCase
    cut_at: int | None
    """The replica's log is cut after this id before it counts. None: the log is not cut."""
    interim_mark: int | None
    """The *interim mark*: it is written to the disk with the new session's id, before copies count.

    None: the id is not written before the mark is resolved.
    """
    mark_counts: bool
    """Whether a session may have resolved the low-water mark that is on the replica's disk.

    Then the recovery resolves no lower mark (known_mark.txt).
    """


def classify(
    replica: str, entries: Mapping[str, ReplicaState], session: int, low_water_mark: int
) -> Classification:
    """Classify ``replica`` by the metadata and by what its disk has.

    ``entries`` are the replica states in the metadata. ``session`` and ``low_water_mark`` are on
    the replica's disk: the id of its last session, and the mark of that session.
    """
    entry = entries.get(replica)
    role, case, cut_at = _rule_for(entry, entries, session, low_water_mark)
    # The mark on the disk counts in three cases:
    # * The replica is a voter: it gets only resolved marks.
    # * The replica is older than its metadata: its disk may have a resolved mark.
    # * The metadata name the session on the disk: that session opened, so it had resolved its mark.
    # Otherwise the mark may be of an earlier assignment, or an interim mark of a failed session.
    mark_confirmed = entry is not None and session != NO_SESSION and session == entry.session_id
    mark_counts = role is VoteRole.VOTER or case is RecoveryCase.OLDER or mark_confirmed
    interim_mark = None
    if role is VoteRole.CLEAN and cut_at is not None:
        # A storage refuses a mark below the one on its disk.
        interim_mark = max(cut_at, low_water_mark)
    return Classification(role, case, cut_at, interim_mark, mark_counts)


def _rule_for(
    entry: ReplicaState | None,
    entries: Mapping[str, ReplicaState],
    session: int,
    low_water_mark: int,
) -> tuple[VoteRole, RecoveryCase, int | None]:
    """Return the role and the case of a replica, and where its log is cut (None: nowhere).

    ``entry`` is the state of the replica in the metadata, None if it has none.
    """
    if entry is None and not entries:
        return VoteRole.VOTER, RecoveryCase.NEW_PARTITION, None
    if entry is None:
        # If the replica was assigned again with its old files, it may hold uncommitted records.
        return VoteRole.NEW, RecoveryCase.NEW_REPLICA, low_water_mark
    if session < entry.session_id:
        # The metadata show that the replica took part in a session that is not on its disk: the
        # disk was emptied or restored. Transactions that it acknowledged then may be lost.
        known_up_to = _proven_up_to(low_water_mark, entry.closing_mark)
        return VoteRole.UNKNOWN, RecoveryCase.OLDER, known_up_to
    if entry.closing_mark == UNRESOLVED:
        # The replica took part in the last session that opened.
        return VoteRole.VOTER, RecoveryCase.VOTER, None
    if session > _last_opened(entries):
        # A session that never opened has begun to copy records to the replica. The vote of that
        # session may have counted these copies, so they must not be cut off.
        return VoteRole.CLEAN, RecoveryCase.FILLED, None
    if entry.session_id == NO_SESSION:
        # The replica may hold records of an earlier assignment. Above its own low-water mark they
        # may differ from the log.
        known_up_to = _proven_up_to(low_water_mark, entry.closing_mark)
        return VoteRole.CLEAN, RecoveryCase.NEVER_TOOK_PART, known_up_to
    # The replica left a session earlier. No quorum has acknowledged the records that it received
    # after its closing mark.
    return VoteRole.CLEAN, RecoveryCase.CLOSED, entry.closing_mark


def _last_opened(entries: Mapping[str, ReplicaState]) -> int:
    """Return the id of the last session that opened: it wrote ``entries``."""
    return max(state.session_id for state in entries.values())


def _proven_up_to(low_water_mark: int, closing_mark: int) -> int:
    """Return the id up to which the replica's log is certainly right: the lower of both marks.

    An UNRESOLVED closing mark sets no limit: the replica had not left its session.
    """
    return low_water_mark if closing_mark == UNRESOLVED else min(low_water_mark, closing_mark)
