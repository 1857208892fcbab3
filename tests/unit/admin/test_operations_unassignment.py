"""Unassignment of replicas never leaves a partition without a healthy quorum."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.replica_model import Model
from waltz.admin import Unassignment
from waltz.admin.core.assignment import AssignmentSide
from waltz.admin.core.steps import ChangeAssignment, Done, DropReplicas, Next, Refuse, Wait
from waltz.metadata.core.formats import PartitionMetadata

A, B, C = "a:1", "b:1", "c:1"


@pytest.fixture
def cluster() -> Model:
    made = Model({A: 0, B: 1, C: 2}, dict.fromkeys(range(2), frozenset({A, B, C})))
    made.append(100)
    return made


def next_of(cluster: Model, only: AssignmentSide | None = None, storage: str = A) -> Next:
    return Unassignment(storage, (0,), only=only).next_step(cluster.observed())


def test_zookeeper_changes_before_storage_drops(cluster: Model) -> None:
    change = next_of(cluster)
    assert isinstance(change, ChangeAssignment)
    assert [(c.partition, c.wanted) for c in change.changes] == [(0, frozenset({B, C}))]
    cluster.perform(change)
    assert isinstance(next_of(cluster), Wait), "no session without it has recovered"
    cluster.append(1)
    dropped = next_of(cluster)
    assert dropped == DropReplicas(A, (0,), delete_files=False)
    cluster.perform(dropped)
    assert next_of(cluster) == Done()
    assert 1 in cluster.disks[A], "the other partition stays"


def test_interrupted_unassignment_continues_and_deletes_the_files() -> None:
    cluster = Model({A: 0, B: 0, C: 1}, dict.fromkeys(range(2), frozenset({A, B, C})))
    cluster.append(100)
    order = Unassignment(A, (0, 1), delete_files=True)
    change = next_of(cluster)
    assert isinstance(change, ChangeAssignment)
    cluster.perform(change)
    assert order.refusal(cluster.observed()) is None, "partition 1 is still assigned"
    order = Unassignment(A, (0,), delete_files=True)
    assert order.refusal(cluster.observed()) is None
    cluster.append(1)
    assert order.refusal(cluster.observed()) is None
    dropped = order.next_step(cluster.observed())
    assert dropped == DropReplicas(A, (0,), delete_files=True)
    cluster.perform(dropped)
    refusal = order.refusal(cluster.observed())
    assert refusal is not None
    assert "does not have" in refusal, "there is nothing to continue"


def test_interrupted_unassignment_in_zookeeper_only_has_nothing_to_continue(
    cluster: Model,
) -> None:
    change = next_of(cluster)
    assert isinstance(change, ChangeAssignment)
    cluster.perform(change)
    refusal = Unassignment(A, (0,), only=AssignmentSide.ZOOKEEPER).refusal(cluster.observed())
    assert refusal is not None
    assert "does not have" in refusal


@pytest.mark.parametrize("force", [False, True])
def test_order_for_a_missing_partition_at_the_storage_does_not_begin(
    cluster: Model, force: bool
) -> None:
    """A refusal at the beginning suggests no --force, which could not help."""
    order = Unassignment(A, (9,), only=AssignmentSide.STORAGE, force=force)
    assert order.refusal(cluster.observed()) == "partition 9 does not exist"


def test_assignment_of_lost_storage_changes_in_zookeeper_only(cluster: Model) -> None:
    cluster.down = {A}
    change = next_of(cluster, AssignmentSide.ZOOKEEPER)
    assert isinstance(change, ChangeAssignment)
    cluster.perform(change)
    assert next_of(cluster, AssignmentSide.ZOOKEEPER) == Done()


@pytest.mark.parametrize("only", [None, *AssignmentSide])
def test_unassignment_waits_while_another_replica_is_down(
    cluster: Model, only: AssignmentSide | None
) -> None:
    cluster.down = {B}
    assert next_of(cluster, only) == Wait("storage b:1 does not answer: it is down")


@pytest.mark.parametrize("only", [None, *AssignmentSide])
def test_unassignment_waits_while_another_replica_is_empty(
    cluster: Model, only: AssignmentSide | None
) -> None:
    cluster.wipe(B)
    found = next_of(cluster, only)
    assert isinstance(found, Wait)
    assert "on storage b:1 takes no part in session 0" in found.reason


def test_second_storage_keeps_its_replica_after_the_first_has_dropped_its_own(
    cluster: Model,
) -> None:
    first = next_of(cluster, AssignmentSide.STORAGE)
    assert first == DropReplicas(A, (0,), delete_files=False)
    del cluster.disks[A][0]
    assert next_of(cluster, AssignmentSide.STORAGE) == Done()
    found = next_of(cluster, AssignmentSide.STORAGE, storage=B)
    assert found == Wait("storage a:1 does not hold partition 0")


def test_unassignment_without_remaining_quorum_is_refused() -> None:
    cluster = Model({A: 0, B: 1}, {0: frozenset({A, B})})
    cluster.append(5)
    for only in (None, *AssignmentSide):
        found = next_of(cluster, only)
        assert isinstance(found, Refuse)
        assert "quorum of" in found.reason


def test_replica_is_dropped_if_others_of_five_are_a_healthy_quorum() -> None:
    groups = {f"s{n}:1": n for n in range(5)}
    cluster = Model(groups, {0: frozenset(groups)})
    cluster.append(5)
    cluster.down = {"s1:1"}
    assert isinstance(next_of(cluster, AssignmentSide.STORAGE, "s0:1"), DropReplicas)
    assert isinstance(next_of(cluster, None, "s0:1"), Wait)
    cluster.down = {"s1:1", "s2:1"}
    assert isinstance(next_of(cluster, AssignmentSide.STORAGE, "s0:1"), Wait)


def test_replica_of_partition_without_server_is_kept(cluster: Model) -> None:
    seen = cluster.observed()
    view = replace(seen.partitions[0], server_problem="server 1 is gone")
    order = Unassignment(A, (0,), only=AssignmentSide.STORAGE)
    found = order.next_step(replace(seen, partitions={0: view}))
    assert found == Wait("server 1 is gone")


def test_replica_without_state_in_the_metadata_is_dropped(cluster: Model) -> None:
    """The files of a storage that lost the partition earlier."""
    cluster.assigned[0] = frozenset({B, C})
    session = cluster.metadata[0]
    states = {s: state for s, state in session.replicas.items() if s != A}
    cluster.metadata[0] = PartitionMetadata(session.generation, session.session_id, states)
    cluster.down = {B}
    assert isinstance(next_of(cluster, AssignmentSide.STORAGE), DropReplicas)


def test_replica_is_kept_while_another_one_lacks_a_single_transaction(cluster: Model) -> None:
    """The replica at A may have the only other copy of the transaction that C lacks."""
    cluster.down = {B}
    cluster.update(C, 0, max_transaction_id=cluster.committed[0] - 1)
    assert isinstance(next_of(cluster, AssignmentSide.STORAGE), Wait)
    cluster.down = set()
    assert isinstance(next_of(cluster, AssignmentSide.STORAGE), Wait)
    assert isinstance(next_of(cluster), Wait)
    cluster.update(C, 0, max_transaction_id=cluster.committed[0])
    assert isinstance(next_of(cluster, AssignmentSide.STORAGE), DropReplicas)
