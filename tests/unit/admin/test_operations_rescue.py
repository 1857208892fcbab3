"""Test that rebuilt metadata lose no committed transaction, over random histories of sessions.

The histories, the disks and the checks are those of `test_server_recovery_histories`.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.replica_histories import Disk, World
from waltz.admin.core.replicas import HeldPartition
from waltz.admin.core.rescue import (
    SESSION_ROOM,
    RebuildDecision,
    ReplicaReport,
    Verdict,
    last_opened_session,
    rebuild,
    records_to_compare,
)
from waltz.metadata.core.formats import NEW_PARTITION, UNRESOLVED, PartitionMetadata, ReplicaState

_NO_ANSWER = "no answer within 10 s"


def _report(name: str, disk: Disk, *, answers: bool = True) -> ReplicaReport:
    info = disk.info
    held = HeldPartition(
        0,
        info.session_id,
        info.low_water_mark,
        info.local_low_water_mark,
        disk.end,
        0,
        readable=True,
        writable=True,
    )
    return ReplicaReport(name, held if answers else None, None if answers else _NO_ANSWER)


def _history(random: Random) -> World:
    world = World(random, random.choice((1, 3, 3, 3, 4, 5)))
    world.session(all_steps=True)
    for _ in range(random.randint(1, 10)):
        world.session(all_steps=random.random() < 0.4)
    return world


def _rescue(world: World, absent: frozenset[str]) -> RebuildDecision:
    reports = [_report(n, d, answers=n not in absent) for n, d in world.disks.items()]
    checksums = {(n, i): world.disks[n].log[i] for n, i in records_to_compare(reports)}
    found = rebuild(reports, NEW_PARTITION, checksums)
    if found.metadata is not None:
        # A backup of the rescued metadata can be restored: it contradicts no disk.
        in_backup = last_opened_session(found.metadata)
        again = rebuild(reports, NEW_PARTITION, checksums, in_backup)
        assert again.verdict is found.verdict, again.reason
        assert found.metadata.session_id > max(d.info.session_id for d in world.disks.values())
        world.states = dict(found.metadata.replicas)
        world.session_id = found.metadata.session_id
    return found


@given(st.integers(0, 2**32))
@settings(max_examples=400)
def test_rescue_with_all_replicas_loses_no_committed_record(seed: int) -> None:
    check_rescue_with_all_replicas(seed)


@pytest.mark.slow
@given(st.integers(0, 2**32))
@settings(max_examples=1100)
def test_rescue_with_all_replicas_loses_no_committed_record_of_more_histories(seed: int) -> None:
    check_rescue_with_all_replicas(seed)


def check_rescue_with_all_replicas(seed: int) -> None:
    """Check that no committed record is lost.

    The sessions after the rescue may fail at any step, and reach any subset of the replicas.
    """
    random = Random(seed)
    world = _history(random)
    found = _rescue(world, frozenset())
    if found.verdict is Verdict.UNDECIDED:
        # An empty disk may have been emptied: it is no proof that no session opened with it.
        ends = sorted(disk.end for disk in world.disks.values())
        assert ends[0] == -1, found.reason
        return
    for _ in range(random.randint(1, 6)):
        world.session(all_steps=random.random() < 0.6)
    world.session(all_steps=True, complete=True)
    assert world.opened, "with all replicas, a rescued partition opens"


@given(st.integers(0, 2**32))
@settings(max_examples=400)
def test_rescue_with_lost_or_absent_replicas_loses_no_committed_record_or_refuses(
    seed: int,
) -> None:
    check_rescue_with_lost_or_absent_replicas(seed)


@pytest.mark.slow
@given(st.integers(0, 2**32))
@settings(max_examples=1100)
def test_rescue_with_lost_or_absent_replicas_of_more_histories_loses_no_committed_record_or_refuses(
    seed: int,
) -> None:
    check_rescue_with_lost_or_absent_replicas(seed)


def check_rescue_with_lost_or_absent_replicas(seed: int) -> None:
    """Check that no committed record is lost, or that the rescue is refused."""
    random = Random(seed)
    world = _history(random)
    names = sorted(world.disks)
    lost = random.sample(names, random.randint(0, (len(names) - 1) // 2))
    absent = frozenset(random.sample(names, random.randint(0, len(names) - 1)))
    for name in lost:
        world.disks[name] = Disk()
    if _rescue(world, absent).verdict is Verdict.UNDECIDED:
        return
    for _ in range(random.randint(1, 6)):
        world.session(all_steps=random.random() < 0.6)
    world.session(all_steps=True, complete=True)
    assert world.opened


def _held(session: int, low: int, last: int, local: int | None = None) -> HeldPartition:
    local = min(low, last) if local is None else local
    return HeldPartition(0, session, low, local, last, 0, readable=True, writable=True)


def _decided(
    *held: HeldPartition | None, present: PartitionMetadata | None = None
) -> RebuildDecision:
    reports = [
        ReplicaReport(name, each, _NO_ANSWER if each is None else None)
        for name, each in zip("abcde", held, strict=False)
    ]
    return rebuild(reports, present, dict.fromkeys(records_to_compare(reports), 0))


def _states(found: RebuildDecision) -> dict[str, tuple[int, int]]:
    assert found.metadata is not None
    return {n: (s.session_id, s.closing_mark) for n, s in found.metadata.replicas.items()}


def test_participants_of_last_session_vote_and_others_are_closed() -> None:
    found = _decided(_held(7, 30, 38), _held(7, 30, 36), _held(5, 26, 40))
    assert found.verdict is Verdict.REBUILT
    assert _states(found) == {"a": (7, UNRESOLVED), "b": (7, UNRESOLVED), "c": (5, 26)}
    assert found.metadata is not None
    assert found.metadata.session_id == 7 + SESSION_ROOM
    assert found.metadata.generation == NEW_PARTITION.generation


def test_session_that_never_opened_is_passed_over() -> None:
    """Session 8 has marked only c: a and c took part in session 7, and vote with what they hold."""
    found = _decided(_held(7, 30, 36), _held(6, 20, 20), _held(8, 36, 36))
    assert _states(found) == {"a": (7, UNRESOLVED), "b": (6, 20), "c": (7, UNRESOLVED)}


def test_session_whose_replicas_do_not_reach_its_mark_never_opened() -> None:
    """Session 6 marked b at 10, and a, which had left earlier, at 3: c still holds what b holds."""
    found = _decided(_held(6, 3, 3), _held(6, 10, 10), _held(5, 2, 10))
    assert {name: state[0] for name, state in _states(found).items()} == {"a": 6, "b": 5, "c": 5}


def test_replica_that_kept_copies_of_an_older_session_is_closed_at_the_mark() -> None:
    """Session 3 opened at 4 with a and b; c had received copies of 5 and 6 of session 2 before."""
    reports = [ReplicaReport(name, _held(3, 4, 6, 4)) for name in "abc"]
    checksums = {(n, i): 2 if n == "c" and i > 4 else 3 for n, i in records_to_compare(reports)}
    found = rebuild(reports, None, checksums)
    assert _states(found) == {"a": (3, UNRESOLVED), "b": (3, UNRESOLVED), "c": (3, 4)}


def test_replica_whose_record_at_the_mark_differs_is_closed_at_its_own_mark() -> None:
    """As above, but session 4 has marked a at 6 since."""
    reports = [
        ReplicaReport("a", _held(4, 6, 6)),
        ReplicaReport("b", _held(3, 4, 6, 4)),
        ReplicaReport("c", _held(3, 4, 6, 4)),
    ]
    checksums = {(n, i): 2 if n == "c" and i > 4 else 3 for n, i in records_to_compare(reports)}
    found = rebuild(reports, None, checksums)
    assert _states(found) == {"a": (3, UNRESOLVED), "b": (3, UNRESOLVED), "c": (3, 4)}


def test_replicas_that_differ_are_undecided_if_another_is_absent() -> None:
    reports = [
        ReplicaReport("a", _held(3, 4, 6, 4)),
        ReplicaReport("b", _held(3, 4, 6, 4)),
        ReplicaReport("c", None, _NO_ANSWER),
    ]
    checksums = {(n, i): 2 if n == "b" and i > 4 else 3 for n, i in records_to_compare(reports)}
    found = rebuild(reports, None, checksums)
    assert found.verdict is Verdict.UNDECIDED
    assert found.reason.startswith("the replicas differ at transaction 5")


def test_replica_that_does_not_answer_counts_as_absent() -> None:
    found = _decided(_held(7, 30, 38), _held(7, 30, 36), None)
    assert _states(found)["c"] == (7 + SESSION_ROOM, UNRESOLVED)


@pytest.mark.parametrize("third", [None, _held(-1, -1, -1), _held(9, -1, -1), _held(7, 30, 9, 20)])
def test_rescue_is_undecided_if_an_unknown_replica_may_have_opened_the_session(
    third: HeldPartition | None,
) -> None:
    found = _decided(_held(7, 30, 38), _held(6, 20, 40), third)
    assert found.verdict is Verdict.UNDECIDED
    assert found.metadata is None
    assert found.reason.startswith("session 7 may have opened: a took part; unknown: c ")


def test_valid_partition_metadata_is_kept() -> None:
    present = PartitionMetadata(1, 9, {"a": ReplicaState(9, UNRESOLVED)})
    found = _decided(_held(9, 30, 38), _held(7, 30, 36), None, present=present)
    assert (found.verdict, found.metadata) == (Verdict.KEPT, None)


def test_metadata_of_an_older_backup_are_reported_and_not_overwritten() -> None:
    present = PartitionMetadata(1, 5, {"a": ReplicaState(5, UNRESOLVED)})
    found = _decided(_held(9, 30, 38), _held(9, 30, 36), None, present=present)
    assert (found.verdict, found.metadata) == (Verdict.STALE, None)
    assert "storage a has session 9" in found.reason


def test_unused_partition_stays_new() -> None:
    unused = _held(-1, -1, -1)
    assert _decided(unused, unused, unused) == RebuildDecision(
        Verdict.NEW, None, "no replica holds anything"
    )
    begun = _decided(_held(4, -1, -1), unused, unused)
    assert begun.verdict is Verdict.NEW
    assert begun.metadata == PartitionMetadata(-1, 4 + SESSION_ROOM, {})
    assert _decided(unused, unused, None).verdict is Verdict.UNDECIDED


def test_rescue_names_an_unassigned_replica_that_has_the_session() -> None:
    reports = [
        ReplicaReport("a", _held(7, 30, 38)),
        ReplicaReport("b", _held(7, 30, 36)),
        ReplicaReport("c", _held(7, 30, 38), assigned=False),
        ReplicaReport("d", _held(-1, -1, -1)),
    ]
    found = rebuild(reports, None, dict.fromkeys(records_to_compare(reports), 0))
    assert found.verdict is Verdict.UNDECIDED
    assert "waltz storage assign c" in found.reason


def test_partition_without_assigned_storage_is_undecided() -> None:
    assert rebuild([], None, {}).verdict is Verdict.UNDECIDED


def test_rescue_is_undecided_if_no_quorum_has_the_session_of_the_backup() -> None:
    """The disks are older than the backup: they were emptied or restored."""
    reports = [ReplicaReport(name, _held(5, 26, 28)) for name in "abc"]
    found = rebuild(reports, None, dict.fromkeys(records_to_compare(reports), 0), opened_session=7)
    assert found.verdict is Verdict.UNDECIDED
    assert found.reason.startswith("session 7 of the backup is on no quorum of disks")


def test_metadata_older_than_one_of_the_disks_are_reported_with_that_storage() -> None:
    present = PartitionMetadata(1, 5, {"a": ReplicaState(5, UNRESOLVED)})
    found = _decided(_held(3, 20, 28), _held(9, 30, 36), _held(4, 20, 28), present=present)
    assert found.verdict is Verdict.STALE
    assert "storage b has session 9" in found.reason


def test_rebuilt_session_is_above_that_of_metadata_without_replicas() -> None:
    """Servers have seen this session, so that its number must not be given again."""
    present = PartitionMetadata(4, 20, {})
    found = _decided(_held(7, 30, 38), _held(7, 30, 36), _held(7, 30, 36), present=present)
    assert found.metadata is not None
    assert (found.metadata.generation, found.metadata.session_id) == (4, 20 + SESSION_ROOM)


@pytest.mark.parametrize(("session", "written"), [(4, False), (5, True)])
def test_metadata_of_an_unused_partition_are_written_if_a_disk_has_a_newer_session(
    session: int, written: bool
) -> None:
    unused, present = _held(-1, -1, -1), PartitionMetadata(1, 4, {})
    found = _decided(_held(session, -1, -1), unused, unused, present=present)
    assert found.verdict is Verdict.NEW
    assert (found.metadata is not None) is written


def test_partition_whose_last_session_is_that_of_the_backup_is_rebuilt() -> None:
    reports = [ReplicaReport(name, _held(7, 26, 28)) for name in "abc"]
    checksums = dict.fromkeys(records_to_compare(reports), 0)
    assert rebuild(reports, None, checksums, opened_session=7).verdict is Verdict.REBUILT


def test_unassigned_replica_of_an_older_session_does_not_stop_the_rescue() -> None:
    reports = [
        ReplicaReport("a", _held(7, 30, 38)),
        ReplicaReport("b", _held(7, 30, 36)),
        ReplicaReport("c", _held(6, 30, 38), assigned=False),
    ]
    found = rebuild(reports, None, dict.fromkeys(records_to_compare(reports), 0))
    assert found.verdict is Verdict.REBUILT
    assert set(_states(found)) == {"a", "b"}


def _replicas_of(*sessions: int) -> dict[str, ReplicaState]:
    """Return states that name these sessions; the last one has a closing mark."""
    marks = [UNRESOLVED] * (len(sessions) - 1) + [40]
    each = zip("abc", sessions, marks, strict=True)
    return {storage: ReplicaState(session, mark) for storage, session, mark in each}


def test_last_opened_session_is_that_of_a_quorum_of_the_replicas() -> None:
    opened = PartitionMetadata(4, 9, _replicas_of(9, 9, 7))
    assert [last_opened_session(each) for each in (opened, NEW_PARTITION)] == [9, -1]


@pytest.mark.parametrize("sessions", [(7, 7, 1007), (7, 8, 1007), (7, 7, 8)])
def test_session_of_a_rescue_is_not_the_last_opened_one(sessions: tuple[int, int, int]) -> None:
    """One replica is unknown, or a disk has a session that never opened."""
    assert last_opened_session(PartitionMetadata(4, 1007, _replicas_of(*sessions))) == 7


def test_session_that_has_begun_and_not_opened_is_not_the_last_opened_one() -> None:
    assert last_opened_session(PartitionMetadata(4, 10, _replicas_of(9, 9, 7))) == 9
