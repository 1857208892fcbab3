"""Which replicas are healthy, which changes a quorum allows, and how a replica is filled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from waltz.admin.core.move import Move
from waltz.admin.core.replica_filling import next_fill_step
from waltz.admin.core.replica_recovery import counts_in_vote
from waltz.admin.core.replicas import (
    HeldPartition,
    PartitionView,
    ReplicaObservation,
    StorageReplicas,
    change_obstacle,
    commit_bounds,
    session_opens,
    unhealthy_reason,
)
from waltz.admin.core.steps import CopyReplica, Step, SwitchOff, Wait
from waltz.metadata.core.formats import (
    NO_SESSION,
    UNRESOLVED,
    ConnectionMetadata,
    GroupDescriptor,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaState,
)
from waltz.metadata.core.storage_maps import StorageMaps

SESSION = 5
LAG = 10
A, B, C, NEW = "a:1", "b:1", "c:1", "new:1"
GROUPS = {A: 0, B: 1, C: 2, NEW: 0}
COMPLETE = HeldPartition(0, SESSION, 80, 80, 100, None, True, True)
EMPTY = HeldPartition(0, NO_SESSION, -1, -1, -1, None, False, False)


def metadata(*storages: str) -> PartitionMetadata:
    """Return the metadata of a session in which these storages take part."""
    state = ReplicaState(SESSION, UNRESOLVED)
    return PartitionMetadata(1, SESSION, dict.fromkeys(storages, state))


VIEW = PartitionView(0, frozenset({A, B, C}), metadata(A, B, C))


def observed(held: Mapping[str, HeldPartition], view: PartitionView = VIEW) -> ReplicaObservation:
    """Return an observation; storages that are not in ``held`` are complete."""
    reports = {A: COMPLETE, B: COMPLETE, C: COMPLETE} | dict(held)
    maps = StorageMaps(
        GroupDescriptor(GROUPS),
        ConnectionMetadata(dict.fromkeys(GROUPS, 9)),
        ReplicaAssignments({s: (0,) if s in view.replicas else () for s in GROUPS}),
    )
    storages = {s: StorageReplicas({0: each}) for s, each in reports.items()}
    return ReplicaObservation(maps, 1, {0: view}, storages, lag_allowed=LAG)


@pytest.mark.parametrize(
    ("reached", "assigned", "last", "expected"),
    [
        ("ab", "abc", "abc", True),
        ("a", "abc", "abc", False),
        ("ab", "abcd", "", False),
        ("abc", "abcd", "", True),
        ("axy", "abc", "", False),
        ("ade", "ade", "abc", False),
        ("abe", "abe", "abc", True),
        ("abd", "cd", "abc", False),
    ],
)
def test_session_needs_a_quorum_of_the_assigned_and_of_the_last_replicas(
    reached: str, assigned: str, last: str, expected: bool
) -> None:
    assert session_opens(frozenset(reached), frozenset(assigned), frozenset(last)) is expected


def test_up_to_date_replica_in_the_session_is_healthy() -> None:
    assert unhealthy_reason(observed({}), VIEW, C) is None


def test_replica_with_every_transaction_committed_before_the_observation_is_healthy() -> None:
    """Other replicas have reported transactions that were appended since."""
    observation = replace(
        observed({C: replace(COMPLETE, max_transaction_id=99)}), commit_bounds={0: 99}
    )
    assert unhealthy_reason(observation, VIEW, C) is None
    assert unhealthy_reason(replace(observation, commit_bounds={0: 100}), VIEW, C) is not None


def test_longer_log_of_a_replica_outside_the_session_makes_no_other_replica_unhealthy() -> None:
    """Its last transactions may never have been committed."""
    former = replace(COMPLETE, session_id=SESSION - 1, max_transaction_id=200)
    assert unhealthy_reason(observed({C: former}), VIEW, A) is None


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({A: 100, B: 90, C: 80}, {0: 100}),
        ({B: 90, C: 80}, {0: 90}),
        ({C: 80}, {}),
        ({}, {}),
        ({A: None, B: None, C: 80}, {}),
    ],
)
def test_committed_id_is_known_if_a_quorum_of_the_session_reports(
    ends: Mapping[str, int | None], expected: Mapping[int, int]
) -> None:
    storages = {
        s: StorageReplicas({0: replace(COMPLETE, max_transaction_id=end)})
        for s, end in ends.items()
    }
    assert commit_bounds([VIEW], storages) == expected
    former = {
        s: StorageReplicas({0: replace(COMPLETE, session_id=SESSION - 1, max_transaction_id=end)})
        for s, end in ends.items()
    }
    assert commit_bounds([VIEW], former) == {}


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (replace(COMPLETE, session_id=SESSION - 1), "takes no part in session 5"),
        (replace(COMPLETE, max_transaction_id=99), "ends at 99, others at 100"),
        (replace(COMPLETE, writable=False), "switched off"),
    ],
)
def test_replica_that_lags_or_has_another_session_is_unhealthy(
    held: HeldPartition, reason: str
) -> None:
    assert reason in (unhealthy_reason(observed({C: held}), VIEW, C) or "")


def test_replica_that_the_server_does_not_reach_is_unhealthy() -> None:
    view = replace(VIEW, unreached=frozenset({C}))
    assert "not reached by the server" in (unhealthy_reason(observed({}, view), view, C) or "")


def test_replicas_are_not_changed_before_the_last_change_is_complete() -> None:
    """Two changes together could remove a quorum."""
    view = replace(VIEW, metadata=metadata(A, B, C, NEW))
    obstacle = change_obstacle(observed({}, view), view, frozenset({A, B}))
    assert "last change of the replicas of partition 0 is not complete" in (obstacle or "")


@pytest.mark.parametrize(
    ("known", "held", "expected"),
    [(SESSION, SESSION, True), (SESSION, SESSION - 1, False), (SESSION, NO_SESSION, False)],
)
def test_replica_counts_in_a_vote_unless_its_disk_has_lost_a_session(
    known: int, held: int, expected: bool
) -> None:
    view = replace(VIEW, metadata=PartitionMetadata(1, SESSION, {A: ReplicaState(known, 7)}))
    assert counts_in_vote(view, A, replace(COMPLETE, session_id=held)) is expected
    assert not counts_in_vote(view, B, COMPLETE), "it never took part"


def test_replica_is_copied_from_the_one_that_reaches_furthest() -> None:
    shorter = replace(COMPLETE, local_low_water_mark=60)
    step = next_fill_step(observed({A: shorter, C: shorter, NEW: EMPTY}), VIEW, NEW)
    assert step == CopyReplica(B, NEW, 0)


def test_replica_is_not_copied_from_one_that_is_not_healthy() -> None:
    behind = replace(COMPLETE, local_low_water_mark=60)
    off = replace(COMPLETE, readable=False, writable=False)
    found = observed({A: off, B: behind, C: behind, NEW: EMPTY})
    assert next_fill_step(found, VIEW, NEW) == CopyReplica(B, NEW, 0)
    found = observed({A: off, B: off, C: off, NEW: EMPTY})
    waiting = Wait("partition 0 has no healthy replica to copy from")
    assert next_fill_step(found, VIEW, NEW) == waiting


def test_replica_that_servers_may_write_is_switched_off_before_a_copy() -> None:
    for switched_on in (replace(EMPTY, readable=True), replace(EMPTY, writable=True)):
        found = observed({NEW: switched_on})
        assert next_fill_step(found, VIEW, NEW) == SwitchOff(NEW, (0,))


def test_filled_replica_that_is_on_may_lag_ten_times_as_much() -> None:
    """Until servers use it again, it falls behind; another copy would only begin this anew."""
    source = replace(COMPLETE, local_low_water_mark=200, max_transaction_id=300)

    def step(lag: int, on: bool) -> Step | Wait | None:
        end = source.local_low_water_mark - lag
        held = HeldPartition(0, NO_SESSION, end, end, end, None, on, on)
        return next_fill_step(observed({A: source, B: source, C: held}), VIEW, C)

    assert step(10 * LAG, on=True) is None
    assert step(10 * LAG + 1, on=True) == SwitchOff(C, (0,))
    assert step(LAG, on=False) is None
    assert step(LAG + 1, on=False) == CopyReplica(A, C, 0)


def test_new_replica_with_records_above_its_mark_is_cut_by_a_copy() -> None:
    """Servers of Waltz 0.13.2 trust all records of a new replica."""
    unsettled = replace(EMPTY, low_water_mark=50, local_low_water_mark=50, max_transaction_id=100)
    assert next_fill_step(observed({NEW: unsettled}), VIEW, NEW) == CopyReplica(
        min(A, B, C), NEW, 0
    )
    settled = replace(unsettled, low_water_mark=100, local_low_water_mark=100)
    assert next_fill_step(observed({NEW: settled}), VIEW, NEW) is None


def test_moved_replica_is_filled_before_it_is_assigned() -> None:
    """An empty replica that is assigned leaves no quorum after one more failure."""
    order = Move(0, A, NEW)
    assert order.next_step(observed({NEW: EMPTY})) == CopyReplica(A, NEW, 0)


def test_move_waits_while_a_replica_that_stays_is_behind() -> None:
    behind = replace(COMPLETE, max_transaction_id=0)
    assert isinstance(Move(0, A, NEW).next_step(observed({B: behind, NEW: EMPTY})), Wait)


@pytest.mark.parametrize(
    ("before", "wanted", "allowed"),
    [
        ({A, B, C}, {A, B, C, NEW}, True),
        ({A, B, C}, {A, B}, True),
        ({A, B, C}, {A, B, NEW}, True),
        ({A, B, C}, {A}, False),
        ({A, B, C}, {A, NEW}, False),
        ({A, B}, {A}, False),
        ({A}, {A, NEW}, False),
        ({A, B}, {A, B, C, NEW}, False),
    ],
)
def test_change_of_replicas_needs_staying_replicas_that_are_a_quorum_of_both_sets(
    before: set[str], wanted: set[str], allowed: bool
) -> None:
    view = PartitionView(0, frozenset(before), metadata(*before))
    obstacle = change_obstacle(observed({}, view), view, frozenset(wanted))
    assert (obstacle is None) is allowed
    if obstacle is not None:
        assert "a quorum of the" in obstacle


def test_change_waits_for_every_replica_that_stays_and_not_for_one_that_leaves() -> None:
    behind = {C: replace(COMPLETE, max_transaction_id=99)}
    wanted = frozenset({A, B, C, NEW})
    assert "others at 100" in (change_obstacle(observed(behind), VIEW, wanted) or "")
    assert change_obstacle(observed(behind), VIEW, frozenset({A, B})) is None
    unserved = replace(VIEW, server_problem="no server has it open")
    assert change_obstacle(observed({}, unserved), unserved, wanted) == "no server has it open"
