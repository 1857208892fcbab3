"""Test the orders that add replicas, and a retirement that changes one partition at a time.

`Model` fails if a session begins without a committed transaction.
"""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from tests.support.replica_model import Model
from tests.unit.admin.test_operations_plans import follow_to_end, stays_open
from waltz.admin import Refuse, ReplicaAddition, Retirement, Wait
from waltz.admin.core.steps import ChangeAssignment, EqualReplicas


def model(copies: int, new: int, partitions: int = 1) -> Model:
    """Return a cluster with ``copies`` replicas of each partition, and ``new`` empty storages."""
    storages = {f"s{number}:1": number for number in range(copies + new)}
    holders = frozenset(list(storages)[:copies])
    made = Model(storages, dict.fromkeys(range(partitions), holders))
    made.append(100)
    return made


@given(st.integers(2, 4), st.integers(0, 8), st.integers(0, 5), st.data())
def test_addition_completes_despite_one_failure(
    copies: int, when: int, rounds: int, data: st.DataObject
) -> None:
    cluster = model(copies, 1)
    victim = data.draw(st.sampled_from(sorted(cluster.groups)))

    def inject_failure(round_number: int) -> None:
        cluster.down = {victim} if when <= round_number < when + rounds else set()

    check = (lambda: None) if rounds else partial(stays_open, cluster)
    follow_to_end(cluster, ReplicaAddition(0, frozenset({f"s{copies}:1"})), inject_failure, check)
    assert len(cluster.assigned[0]) == copies + 1


def test_addition_proves_the_new_replica_equal_before_it_counts() -> None:
    cluster = model(3, 1)
    taken = follow_to_end(cluster, ReplicaAddition(0, frozenset({"s3:1"})))
    change = taken[-1]
    assert isinstance(change, ChangeAssignment)
    assert change.proofs == (EqualReplicas(0, frozenset({"s0:1", "s1:1", "s2:1", "s3:1"})),)


def test_addition_waits_for_unhealthy_replica_and_names_it() -> None:
    cluster = model(3, 1)
    cluster.down = {"s1:1"}
    found = ReplicaAddition(0, frozenset({"s3:1"})).next_step(cluster.observed())
    assert found == Wait("storage s1:1 does not answer: it is down")


def test_single_copy_becomes_three_by_one_change_and_stays_open_if_a_new_one_fails() -> None:
    cluster = model(1, 2)
    taken = follow_to_end(cluster, ReplicaAddition(0, frozenset({"s1:1", "s2:1"})))
    changes = [step for step in taken if isinstance(step, ChangeAssignment)]
    assert len(changes) == 1
    cluster.down = {"s2:1"}
    cluster.append(1)
    assert cluster.is_open(0)


def test_single_copy_does_not_become_two() -> None:
    found = ReplicaAddition(0, frozenset({"s1:1"})).next_step(model(1, 1).observed())
    assert isinstance(found, Refuse)
    assert "a quorum of the 1 replicas before" in found.reason


def test_adding_two_replicas_at_once_to_a_replicated_partition_is_refused() -> None:
    found = ReplicaAddition(0, frozenset({"s2:1", "s3:1"})).next_step(model(2, 2).observed())
    assert isinstance(found, Refuse)


def test_retirement_of_one_partition_at_once_waits_for_the_one_before() -> None:
    cluster = model(4, 0, partitions=3)
    order = Retirement(1, at_once=1, prove=True)
    first = order.next_step(cluster.observed())
    assert isinstance(first, ChangeAssignment)
    assert [change.partition for change in first.changes] == [0]
    assert first.proofs == (EqualReplicas(0, frozenset({"s0:1", "s2:1", "s3:1"})),)
    cluster.perform(first)
    assert order.next_step(cluster.observed()) == Wait(
        "no session of partition 0 without storage s1:1 has recovered yet"
    )
    cluster.append(1)
    second = order.next_step(cluster.observed())
    assert isinstance(second, ChangeAssignment)
    assert [change.partition for change in second.changes] == [1]
