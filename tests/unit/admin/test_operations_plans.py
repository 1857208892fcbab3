"""Test that moves, retirements and recoveries complete and never cost a partition its quorum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.replica_model import Down, Model
from waltz.admin.core.move import Move
from waltz.admin.core.replica_recovery import ReplicaRecovery
from waltz.admin.core.replicas import LAG_ALLOWED, HeldPartition
from waltz.admin.core.retirement import Retirement
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    Done,
    Next,
    Order,
    Refuse,
    SwitchOff,
    Wait,
)

MANY_STEPS = 20
"""More than any plan needs: at most six steps, of which a disturbance may repeat some."""

S, D = "s:1", "d:1"
MOVE = Move(0, S, D)


def model(others: int, partitions: int = 1) -> Model:
    """Return a cluster with the source, an empty destination in its group, and other groups."""
    groups = {S: 0, D: 0} | {f"other{i}:1": i for i in range(1, others + 1)}
    holding = frozenset(groups) - {D}
    cluster = Model(groups, dict.fromkeys(range(partitions), holding))
    cluster.append(100)
    return cluster


def follow_to_end(
    cluster: Model,
    plan: Order,
    inject_failure: Callable[[int], None] = lambda _: None,
    check: Callable[[], None] = lambda: None,
) -> list[Next]:
    """Follow the plan to its end; return the steps."""
    taken: list[Next] = []
    for round_number in range(MANY_STEPS):
        inject_failure(round_number)
        found = plan.next_step(cluster.observed())
        match found:
            case Done():
                return taken
            case Refuse(reason):
                raise AssertionError(reason)
            case Wait():
                pass
            case step:
                taken.append(step)
                try:
                    cluster.perform(step)
                except Down:
                    taken.pop()
        cluster.append(1)
        check()
    raise AssertionError(f"the plan does not complete: {taken}, {found}")


def stays_open(cluster: Model) -> None:
    for partition in cluster.assigned:
        assert cluster.is_open(partition), f"partition {partition} is without a quorum"


@dataclass(frozen=True)
class OldReplica:
    """The state that an earlier assignment or an interrupted attempt left at the destination."""

    end: int
    mark: int
    on: bool


leftovers = st.none() | st.builds(
    OldReplica, st.integers(-1, 120), st.integers(-1, 90), st.booleans()
)


def put_old_replica(cluster: Model, left: OldReplica | None) -> None:
    if left is not None:
        end = max(left.end, left.mark)
        cluster.disks[D][0] = HeldPartition(
            0, -1, left.mark, left.mark, end, None, left.on, left.on
        )


@given(st.integers(1, 5), leftovers, st.integers(0, 3 * LAG_ALLOWED))
def test_move_completes_and_partition_stays_open(
    others: int, left: OldReplica | None, more: int
) -> None:
    cluster = model(others)
    cluster.append(more)
    put_old_replica(cluster, left)
    follow_to_end(cluster, MOVE, check=partial(stays_open, cluster))
    assert cluster.assigned[0] == frozenset(cluster.groups) - {S}
    assert 0 not in cluster.disks[S]


@given(st.integers(2, 4), leftovers, st.integers(0, 12), st.integers(1, 6), st.data())
def test_move_completes_despite_one_failure_at_any_time(
    others: int, left: OldReplica | None, when: int, rounds: int, data: st.DataObject
) -> None:
    cluster = model(others)
    put_old_replica(cluster, left)
    victim = data.draw(st.sampled_from(sorted(cluster.groups)))
    late = data.draw(st.booleans(), "the server is slower than the failure")

    def inject_failure(round_number: int) -> None:
        cluster.down = {victim} if when <= round_number < when + rounds else set()
        if not late:
            cluster.serve()

    # One round after the failure the plan has assigned needed replicas again.
    follow_to_end(cluster, MOVE, inject_failure)
    assert cluster.assigned[0] == frozenset(cluster.groups) - {S}


@given(st.integers(2, 4), st.integers(0, 12), st.booleans(), st.data())
def test_partition_opens_after_storage_is_lost_during_move(
    others: int, when: int, late: bool, data: st.DataObject
) -> None:
    cluster = model(others)
    victim = data.draw(st.sampled_from(sorted(cluster.groups)))
    plan = MOVE
    for round_number in range(MANY_STEPS):
        if round_number == when:
            cluster.down = {victim}
        if not late:
            cluster.serve()
        step = plan.next_step(cluster.observed())
        if not isinstance(step, Wait | Done | Refuse):
            try:
                cluster.perform(step)
            except Down:
                continue
        if round_number > when:
            cluster.append(1)
            stays_open(cluster)
        elif not late:
            cluster.append(1)


def test_move_of_distant_replica_takes_all_steps() -> None:
    cluster = model(2)
    cluster.append(2 * LAG_ALLOWED)
    cluster.wipe("other1:1")
    cluster.serve()
    taken = follow_to_end(cluster, MOVE)
    kinds = [type(step).__name__ for step in taken]
    assert kinds == [
        "CreateReplicas",
        "SwitchOff",
        "CopyReplica",
        "SwitchOn",
        "ChangeAssignment",
        "ChangeAssignment",
        "DropReplicas",
    ]


def test_move_source_is_assigned_again_when_other_replicas_cannot_open() -> None:
    cluster = model(2)
    plan = MOVE
    while S in cluster.assigned[0]:
        cluster.serve()
        step = plan.next_step(cluster.observed())
        assert not isinstance(step, Wait | Done | Refuse)
        cluster.perform(step)
    cluster.down = {"other1:1"}
    assert not cluster.is_open(0)
    back = plan.next_step(cluster.observed())
    assert isinstance(back, ChangeAssignment)
    cluster.perform(back)
    assert cluster.is_open(0)
    cluster.serve()
    assert isinstance(plan.next_step(cluster.observed()), Wait)
    cluster.down = set()
    follow_to_end(cluster, plan, check=partial(stays_open, cluster))


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (Move(9, S, D), "partition 9 does not exist"),
        (Move(0, S, S), "cannot be moved to the storage that it is on"),
        (Move(0, S, "other1:1"), "is in group 0, other1:1 in group 1|neither"),
        (Move(0, S, "unknown:1"), "storage unknown:1 is in no group"),
        (Move(0, D, "unknown:1"), "neither on d:1 nor on unknown:1; it is on other1:1, s:1"),
    ],
)
def test_impossible_move_is_refused(order: Move, why: str) -> None:
    cluster = model(1)
    if order.destination == "other1:1":
        cluster.assigned[0] -= {"other1:1"}
    found = order.next_step(cluster.observed())
    assert isinstance(found, Refuse)
    assert any(part in found.reason for part in why.split("|"))


def test_move_to_a_replica_of_another_group_is_refused() -> None:
    """Otherwise the source would drop its replica, and its group would have none."""
    cluster = model(2)
    found = Move(0, S, "other1:1").next_step(cluster.observed())
    assert isinstance(found, Refuse)
    assert "s:1 is in group 0, other1:1 in group 1" in found.reason


def test_move_of_single_replica_is_refused() -> None:
    found = MOVE.next_step(model(0).observed())
    assert isinstance(found, Refuse)
    assert "only 1 would stay" in found.reason


def test_move_waits_for_unhealthy_replica_and_names_it() -> None:
    cluster = model(2)
    cluster.down = {"other2:1"}
    found = MOVE.next_step(cluster.observed())
    assert found == Wait("storage other2:1 does not answer: it is down")


@given(st.integers(3, 5), st.integers(1, 3), st.integers(0, 8), st.integers(0, 5), st.data())
def test_retirement_completes_despite_one_failure(
    copies: int, partitions: int, when: int, rounds: int, data: st.DataObject
) -> None:
    cluster = model(copies - 1, partitions)
    victim = data.draw(st.sampled_from(sorted(cluster.groups)))

    def inject_failure(round_number: int) -> None:
        cluster.down = {victim} if when <= round_number < when + rounds else set()

    group = data.draw(st.integers(0, copies - 1))
    check = (lambda: None) if rounds else partial(stays_open, cluster)
    follow_to_end(cluster, Retirement(group), inject_failure, check)
    retired = {storage for storage, g in cluster.groups.items() if g == group}
    assert not any(replicas & retired for replicas in cluster.assigned.values())
    assert not any(cluster.disks[storage] for storage in retired)


def test_retirement_changes_all_partitions_at_once() -> None:
    cluster = model(2, 3)
    taken = follow_to_end(cluster, Retirement(1))
    assert [type(step).__name__ for step in taken] == ["ChangeAssignment", "DropReplicas"]
    assert isinstance(taken[0], ChangeAssignment)
    assert [change.partition for change in taken[0].changes] == [0, 1, 2]


def test_retirement_of_group_needed_for_quorum_is_refused() -> None:
    found = Retirement(1).next_step(model(1).observed())
    assert isinstance(found, Refuse)
    assert "a quorum of the 2 replicas before" in found.reason
    assert isinstance(Retirement(7).next_step(model(1).observed()), Refuse)


@given(st.integers(2, 4), st.integers(0, 3 * LAG_ALLOWED), st.booleans(), st.booleans())
def test_emptied_replica_is_recovered_by_its_order(
    others: int, more: int, switched_off: bool, served: bool
) -> None:
    cluster = model(others)
    cluster.append(more)
    cluster.wipe(S)
    if switched_off:
        cluster.update(S, 0, readable=False, writable=False)
    if served:
        cluster.append(1)
    plan = ReplicaRecovery(0, S)
    follow_to_end(cluster, plan, check=partial(stays_open, cluster))
    assert cluster.disks[S][0].max_transaction_id == cluster.committed[0]


@given(st.integers(2, 4), st.booleans())
def test_intact_replica_is_never_cut(others: int, behind: bool) -> None:
    cluster = model(others)
    cluster.append(3 * LAG_ALLOWED)
    cluster.update(S, 0, readable=False, writable=False)
    if behind:
        cluster.append(3 * LAG_ALLOWED)
    taken = follow_to_end(cluster, ReplicaRecovery(0, S))
    assert not any(isinstance(step, CopyReplica) for step in taken)


def test_unassigned_replica_is_filled() -> None:
    cluster = model(2)
    cluster.append(3 * LAG_ALLOWED)
    cluster.metadata[0] = replace(cluster.metadata[0])
    cluster.update("other1:1", 0, local_low_water_mark=3 * LAG_ALLOWED)
    taken = follow_to_end(cluster, ReplicaRecovery(0, D, "other1:1"))
    assert [type(step).__name__ for step in taken] == [
        "CreateReplicas",
        "SwitchOff",
        "CopyReplica",
        "SwitchOn",
    ]
    assert cluster.disks[D][0].max_transaction_id == 3 * LAG_ALLOWED


def test_replica_is_not_switched_off_without_quorum_of_others() -> None:
    cluster = model(2)
    cluster.append(3 * LAG_ALLOWED)
    cluster.wipe("other1:1")
    cluster.serve()
    cluster.wipe(S)
    cluster.down = {"other2:1"}
    found = ReplicaRecovery(0, S, "other1:1").next_step(cluster.observed())
    assert not isinstance(found, SwitchOff)
    assert isinstance(found, Wait)
