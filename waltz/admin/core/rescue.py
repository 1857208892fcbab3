"""Rebuild the metadata of a partition from what its replicas have on their disks. Pure.

`rebuild` decides for one partition, from the reports of the storages that have its replicas. The
metadata say which store session opened last, and which replicas took part in it. A replica that has
left a session has a *closing mark* in the metadata: the next session cuts the replica's log there,
and counts it in the vote on the committed transactions only after that (fact 2). The others vote.

A disk does not have these facts. It has the id of the newest session that marked it, the low-water
mark that this session wrote, and the log.

**Terms.** n replicas are assigned, and q of them are a quorum. The recovery of a session *resolves*
a mark R: no transaction above R was committed before the session. Then the session *marks* disks:
it writes its id and R to them. A replica with a closing mark may get the id before R is resolved,
with an *interim mark* that is not above R (`waltz_server.core.replication.session_recovery`). The
session *opens* when it has marked q disks and its metadata are written; only then does it append. A
session may end before it opens. Session O is the last one that opened.

**Facts.**

1. A session that opens has marked q disks with its R. A disk whose session is older than O took no
   part in O.
2. The vote that resolves R counts only replicas of the session that opened last. It counts one with
   a closing mark only after the disk of this replica has the new id. So when R is resolved, q
   replicas hold the log up to R, and their disks have the session that opened last or a later one.
   No later session resolves less than R, so these logs never end below R again.
3. At least q replicas took part in O without a closing mark. If a later session marked the disk of
   one of them, the disk has the mark R of that session. Every committed id is at most this R:
   nothing above R was committed before that session, and no session after O has opened.
4. A log has the committed records up to its disk's low-water mark (it is *right* up to there).
   Above the mark it may have other records: those of an older session, or copies of such records
   that a session made before it resolved its mark.
5. Two logs that differ at one id differ at all higher ids: a record follows only one log.

**The rule.** For a session X on a disk,

* V(X) is the set of the replicas whose session is at least X,
* m(X) is the highest low-water mark of V(X),
* W(X) is the largest set of replicas of V(X) whose logs reach m(X) and have the same record there.

If X or a later session opened, W(X) has q replicas: those that held the log up to m(X) when m(X)
was resolved. They are in V(X), because their disks already had X or a later session (fact 2). So a
session X with a smaller W(X) never opened. `rebuild` takes the newest X whose W(X) has q replicas:
O is this X or an older session. Some logs of W(X) continue after m(X). `rebuild` groups their
replicas by the record that follows m(X), and keeps a group that may have been a quorum. In the
rebuilt metadata,

* the replicas of this group, and those of W(X) whose logs end at m(X), are participants of X
  without a closing mark, so that they vote,
* the other replicas of W(X) get the closing mark m(X),
* the replicas outside W(X) get their own low-water marks as closing marks.

**Example.** Of three replicas (q is 2),

* a has session 7, mark 40 and a log up to 45,
* b has session 7, mark 40 and a log up to 43,
* c has session 5, mark 30 and a log up to 35.

For X = 7, V(X) is a and b, and m(X) is 40. If both have the same record 40, W(X) is a and b, too:
X is 7. If both also have the same record 41, they vote, and the next recovery resolves a mark from
43 to 45. If their records 41 differ, neither is committed: both get the closing mark 40. c gets the
closing mark 30.

**No committed id T is lost.** If O is older than X, then V(X) has q replicas, so one of them is
among the q of fact 3, and a session after O has marked its disk. So m(X) is not below T, and each
replica of W(X) holds T. The next recovery cannot resolve a mark below m(X): only the replicas
outside W(X) may end below m(X), and these are fewer than q. If O is X, the same is true for T up to
m(X). If T is above m(X), no session after O has marked one of the q of fact 3: its mark would not
be below T. So m(X) is the mark of O. Then all q replicas that hold T are in W(X), have the same
record after m(X), and vote as they would with the metadata that O wrote.

**No record differs.** W(X) has q replicas, so one of them took part in O, and has the right record
at m(X). The others have the same record there, so all logs of W(X) are right up to m(X) (fact 5).
Above m(X) only one group votes, and a committed record there is in the group. All other replicas
are cut to where they are right.

**Unknown replicas.** The replica of a storage that does not answer, an empty disk, and a log that
ends below its local mark are *unknown*: they may have had any session and any record. If W(X) has q
replicas only together with the unknown ones, X may have opened, and `rebuild` decides nothing. In
the rebuilt metadata, an unknown replica gets a session that no disk has. So the next session takes
its disk for an emptied one, and counts the replica as absent until the vote has resolved the mark.

The rule assumes that fewer than q disks are lost. It cannot detect that a disk was restored from a
copy, or that no session followed the last change of the assignment. `test_operations_rescue` tests
the rule with random histories of sessions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from waltz.admin.core.replicas import HeldPartition, quorum
from waltz.metadata.core.formats import (
    NEW_PARTITION,
    NO_SESSION,
    UNRESOLVED,
    PartitionMetadata,
    ReplicaState,
)

Checksums = Mapping[tuple[str, int], int]
"""The checksum of a record, by storage and transaction id."""

SESSION_ROOM = 1000
"""How far the rebuilt session id is above the highest one on a disk.

A storage has a *fence* for each replica, the newest session that has contacted it; it refuses the
requests of older sessions. Sessions that began on the lost metadata may have raised fences without
reaching a disk. A session that began below such a fence would be refused.
"""


class Verdict(Enum):
    """What `rebuild` decides for a partition; the values are shown to the user."""

    KEPT = "kept"
    """The metadata name replicas, and no replica contradicts them."""
    STALE = "too old"
    """The metadata name replicas, but a replica has a newer session."""
    NEW = "new"
    """No replica holds anything: the partition was never used."""
    REBUILT = "rebuilt"
    """The metadata follow from the replicas."""
    UNDECIDED = "undecided"
    """What the replicas hold does not decide the metadata."""


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What the storage of a replica reported: ``held`` is None if it holds no such replica.

    ``problem`` is why the storage reported nothing, None if it reported. ``assigned`` tells whether
    ZooKeeper assigns the partition to the storage.
    """

    storage: str
    held: HeldPartition | None
    problem: str | None = None
    assigned: bool = True

    @property
    def unknown(self) -> str | None:
        """Why the replica is unknown: it may have held more than it shows. None: it is known."""
        if self.problem is not None:
            return f"does not answer: {self.problem}"
        held = self.held
        if held is None:
            return "does not hold the partition"
        if held.max_transaction_id is None:
            return "does not report its last transaction"
        if held.max_transaction_id < held.local_low_water_mark:
            return f"ends below its local low-water mark {held.local_low_water_mark}"
        if held.max_transaction_id < 0 and held.low_water_mark < 0:
            return "is empty"
        return None


@dataclass(frozen=True, slots=True)
class _LastSession:
    """The session X of the rule, its mark m(X), and the replicas of W(X)."""

    session: int
    mark: int
    voters: frozenset[str]
    """The replicas that vote: those that end at m(X), and the group that may be a quorum."""
    closed: frozenset[str]
    """The other replicas of W(X). They get the closing mark m(X), because no quorum has their
    records after m(X)."""


@dataclass(frozen=True, slots=True)
class RebuildDecision:
    """The decision for one partition, and its reason as a text.

    ``metadata`` is what to write to ZooKeeper, None for nothing.
    """

    verdict: Verdict
    metadata: PartitionMetadata | None
    reason: str


def records_to_compare(reports: Sequence[ReplicaReport]) -> frozenset[tuple[str, int]]:
    """Return storages and ids of the records whose checksums `rebuild` needs.

    For each session X on a disk, these are the records at m(X) and after m(X).
    """
    known = _known_replicas(reports)
    ids: set[int] = set()
    for session in _sessions_on_disks(known):
        mark = _highest_mark(known, session)
        ids |= {mark, mark + 1}
    return frozenset(
        (storage, transaction_id)
        for storage, held in known.items()
        for transaction_id in ids
        if 0 <= transaction_id <= _last_id(held)
    )


def rebuild(
    reports: Sequence[ReplicaReport],
    present: PartitionMetadata | None,
    checksums: Checksums,
    opened_session: int = -1,
) -> RebuildDecision:
    """Decide the metadata of a partition.

    ``present`` are the metadata in ZooKeeper, if there are any. ``checksums`` are those of
    `records_to_compare`, by storage and id. ``opened_session`` is the session in a backup of
    the metadata, which certainly opened; -1 without a backup.
    """
    present = present or NEW_PARTITION
    if present.replicas:
        return _judge_present(present, reports)
    assigned = [r for r in reports if r.assigned]
    if not assigned:
        return RebuildDecision(
            Verdict.UNDECIDED, None, "ZooKeeper assigns the partition to no storage"
        )
    newest = max(_sessions(reports).values(), default=-1)
    session_id = max(newest, present.session_id) + SESSION_ROOM
    if all(_shows_nothing(report) for report in reports):
        if newest <= present.session_id:
            return RebuildDecision(Verdict.NEW, None, "no replica holds anything")
        # The next session must be above the fences of the sessions that began (`SESSION_ROOM`).
        empty = PartitionMetadata(present.generation, session_id, {})
        return RebuildDecision(
            Verdict.NEW, empty, f"no replica holds anything; session {newest} has begun"
        )
    last = _last_session(assigned, checksums)
    if isinstance(last, str):
        return RebuildDecision(Verdict.UNDECIDED, None, last)
    if problem := _contradiction(reports, last.session, opened_session):
        return RebuildDecision(Verdict.UNDECIDED, None, problem)
    states = {r.storage: _rebuilt_state(r, last, session_id) for r in assigned}
    metadata = PartitionMetadata(present.generation, session_id, states)
    count = f"{len(last.voters)} of {len(assigned)} replicas vote"
    return RebuildDecision(Verdict.REBUILT, metadata, f"session {last.session}: {count}")


def last_opened_session(metadata: PartitionMetadata) -> int:
    """Return the last session that ``metadata`` prove to have opened, or NO_SESSION.

    A session opens with a quorum of its replicas. The states of this quorum name the session or a
    later one. Other states may name sessions that never opened: a rescue writes a new session for
    an unknown replica, and for other replicas the newest session on the disk.
    """
    sessions = [state.session_id for state in metadata.replicas.values()]
    needed = quorum(len(sessions))
    if sessions.count(metadata.session_id) < needed:
        # The newest session did not open: a rescue wrote it for unknown replicas.
        sessions = [each for each in sessions if each != metadata.session_id]
    # The newest session such that a quorum of the states name it or a later one.
    newest_first = sorted(sessions, reverse=True)
    return newest_first[needed - 1] if len(newest_first) >= needed else NO_SESSION


def _judge_present(present: PartitionMetadata, reports: Sequence[ReplicaReport]) -> RebuildDecision:
    """Keep ``present``, which name replicas, unless a disk has a newer session."""
    sessions = _sessions(reports)
    newest = max(sessions, key=sessions.__getitem__, default=None)
    if newest is None or sessions[newest] <= present.session_id:
        return RebuildDecision(Verdict.KEPT, None, "the metadata name the partition's replicas")
    return RebuildDecision(
        Verdict.STALE,
        None,
        f"the metadata end with session {present.session_id}, but storage {newest} has session "
        f"{sessions[newest]}: they are of an older backup. To rebuild them, save the cluster with "
        "waltz cluster metadata backup, delete it with waltz cluster delete, and restore it with "
        "waltz cluster metadata restore",
    )


def _contradiction(
    reports: Sequence[ReplicaReport], session: int, opened_session: int
) -> str | None:
    """Return why ``session``, found on the assigned replicas, may not be the last that opened."""
    if session < opened_session:
        return (
            f"session {opened_session} of the backup is on no quorum of disks; storages were "
            "emptied or restored from older copies"
        )
    sessions = _sessions(reports)
    for report in reports:
        if not report.assigned and sessions.get(report.storage, -1) >= session:
            return (
                f"storage {report.storage} may have taken part in session {session}, but the "
                "partition is not assigned to it; assign it with: waltz storage assign "
                f"{report.storage} PARTITION --only zookeeper"
            )
    return None


def _sessions(reports: Sequence[ReplicaReport]) -> dict[str, int]:
    """Return the session on the disk of each replica that was reported, by storage."""
    return {r.storage: r.held.session_id for r in reports if r.held is not None}


def _shows_nothing(report: ReplicaReport) -> bool:
    """Whether the storage answers, and has neither a record nor a mark of the partition."""
    if report.problem is not None:
        return False
    held = report.held
    return held is None or (
        held.max_transaction_id == -1 and held.low_water_mark < 0 and held.local_low_water_mark < 0
    )


def _last_session(assigned: Sequence[ReplicaReport], checksums: Checksums) -> _LastSession | str:
    """Return the session X of the rule and its replicas, or why they cannot be decided."""
    needed = quorum(len(assigned))
    known = _known_replicas(assigned)
    unknown = [f"{r.storage} {r.unknown}" for r in assigned if r.unknown is not None]
    for session in _sessions_on_disks(known):
        mark = _highest_mark(known, session)
        same_record = _group_by_record(_replicas_since(known, session), mark, checksums)
        complete = _largest_group(same_record)
        if len(complete) + len(unknown) < needed:
            continue  # The session never opened, even if all unknown replicas took part.
        if len(complete) < needed:
            return (
                f"session {session} may have opened: {', '.join(sorted(complete))} took part; "
                f"unknown: {'; '.join(unknown)}"
            )
        continuing = _group_by_record({s: known[s] for s in complete}, mark + 1, checksums)
        # The groups that may have been a quorum: their record after the mark may be committed.
        possible = [group for group in continuing if len(group) + len(unknown) >= needed]
        if len(possible) > 1:
            return (
                f"the replicas differ at transaction {mark + 1}, and it is undecided which "
                f"of these transactions was committed; unknown: {'; '.join(unknown)}"
            )
        impossible = (group for group in continuing if group not in possible)
        closed = frozenset[str]().union(*impossible)
        return _LastSession(session, mark, complete - closed, closed)
    missing = f" ({'; '.join(unknown)})" if unknown else ""
    return f"no session is complete on {needed} of {len(assigned)} replicas{missing}"


def _known_replicas(reports: Sequence[ReplicaReport]) -> dict[str, HeldPartition]:
    """Return the assigned replicas that are not unknown, by storage."""
    return {
        r.storage: r.held
        for r in reports
        if r.assigned and r.held is not None and r.unknown is None
    }


def _sessions_on_disks(known: Mapping[str, HeldPartition]) -> list[int]:
    """Return the sessions on the disks, newest first."""
    return sorted({held.session_id for held in known.values()}, reverse=True)


def _replicas_since(known: Mapping[str, HeldPartition], session: int) -> dict[str, HeldPartition]:
    """Return V of ``session``: the replicas whose session is not older."""
    return {storage: held for storage, held in known.items() if held.session_id >= session}


def _highest_mark(known: Mapping[str, HeldPartition], session: int) -> int:
    """Return m of ``session``: the highest low-water mark of V."""
    return max(held.low_water_mark for held in _replicas_since(known, session).values())


def _group_by_record(
    known: Mapping[str, HeldPartition], transaction_id: int, checksums: Checksums
) -> list[frozenset[str]]:
    """Group the replicas that reach ``transaction_id`` by their record with this id.

    Replicas have the same record if its checksum is the same. The id -1 is before the first record:
    there all replicas are one group.
    """
    groups: dict[int, set[str]] = {}
    for storage, held in known.items():
        if _last_id(held) >= transaction_id:
            checksum = checksums[storage, transaction_id] if transaction_id >= 0 else 0
            groups.setdefault(checksum, set()).add(storage)
    return [frozenset(group) for group in groups.values()]


def _largest_group(groups: Sequence[frozenset[str]]) -> frozenset[str]:
    return max(groups, key=len, default=frozenset())


def _last_id(held: HeldPartition) -> int:
    """Return the last id of a known replica."""
    assert held.max_transaction_id is not None, "a replica without it is unknown"
    return held.max_transaction_id


def _rebuilt_state(report: ReplicaReport, last: _LastSession, session_id: int) -> ReplicaState:
    """Return what the rebuilt metadata, whose session is ``session_id``, say about a replica."""
    if report.storage in last.voters:
        return ReplicaState(last.session, UNRESOLVED)
    if report.held is None or report.unknown is not None:
        # No disk has the new session, so that the next session takes this disk for an emptied one.
        return ReplicaState(session_id, UNRESOLVED)
    mark = last.mark if report.storage in last.closed else report.held.low_water_mark
    return ReplicaState(report.held.session_id, mark)
