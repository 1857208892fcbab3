"""Test the steps of orders about assignments, switches, copies and registrations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.replica_model import Model
from waltz.admin import (
    Assignment,
    AssignmentSide,
    Deregistration,
    GroupAssignment,
    Move,
    OfflineFill,
    Order,
    Registration,
    Switching,
    Synchronization,
    Unassignment,
    forecast,
)
from waltz.admin.core.dry_run import after_step
from waltz.admin.core.replicas import ReplicaObservation, StorageReplicas
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    CreateReplicas,
    Done,
    DropReplicas,
    Refuse,
    RegisterStorage,
    SetSwitch,
    Step,
    SwitchKind,
    SwitchOff,
    SwitchOn,
    UnregisterStorage,
    Wait,
)
from waltz.metadata.core.formats import ConnectionMetadata, GroupDescriptor
from waltz.metadata.core.storage_maps import ReplicaChange, StorageMaps

A, B, C, D = "a:1", "b:1", "c:1", "d:1"


@pytest.fixture
def cluster() -> Model:
    """Partitions 0 and 1 on A, B and C; D is in the group of C and holds nothing."""
    made = Model({A: 0, B: 1, C: 2, D: 2}, dict.fromkeys(range(2), frozenset({A, B, C})))
    made.append(100)
    return made


def observe(cluster: Model) -> ReplicaObservation:
    """Return the model's observation with admin ports, by which orders know a storage."""
    observation = cluster.observed()
    ports = ConnectionMetadata(dict.fromkeys(cluster.groups, 2))
    maps = StorageMaps(observation.maps.groups, ports, observation.maps.assignments)
    return ReplicaObservation(
        maps, observation.num_partitions, observation.partitions, observation.storages
    )


def steps_of(order: Order, cluster: Model) -> list[Step]:
    foreseen = forecast(order, observe(cluster))
    assert foreseen.end == Done()
    return list(foreseen.steps)


def refusal_of(order: Order, cluster: Model) -> str:
    end = forecast(order, observe(cluster)).end
    assert isinstance(end, Refuse)
    return end.reason


def test_assignment_creates_replicas_then_changes_zookeeper(cluster: Model) -> None:
    change = ReplicaChange(1, frozenset({A, B, C}), frozenset({A, B, C, D}))
    assert steps_of(Assignment(D, (1,)), cluster) == [
        CreateReplicas(D, (1,)),
        ChangeAssignment((change,)),
    ]


def test_assignment_only_at_storage_or_in_zookeeper_changes_only_that_side(cluster: Model) -> None:
    at_storage = steps_of(Assignment(D, (0, 1), AssignmentSide.STORAGE), cluster)
    assert at_storage == [CreateReplicas(D, (0, 1))]
    cluster.down = {D}
    in_zookeeper = steps_of(Assignment(D, (0, 1), AssignmentSide.ZOOKEEPER), cluster)
    assert [type(step) for step in in_zookeeper] == [ChangeAssignment]


def test_assignment_of_assigned_partition_is_refused(cluster: Model) -> None:
    assert "already has partition 0" in refusal_of(Assignment(A, (0,)), cluster)
    assert "Partition 7 does not exist" in refusal_of(Assignment(D, (7,)), cluster)
    order = Assignment("e:1", (0,), AssignmentSide.STORAGE)
    assert "Storage e:1 is not in the cluster" in refusal_of(order, cluster)


def test_assignment_waits_for_storage_that_does_not_answer(cluster: Model) -> None:
    cluster.down = {D}
    assert forecast(Assignment(D, (0,)), observe(cluster)).end == Wait(
        "storage d:1 does not answer: it is down"
    )


def test_group_assignment_deals_partitions_round_robin() -> None:
    cluster = Model({A: 0, B: 0}, {p: frozenset() for p in range(3)})
    change, *created = steps_of(GroupAssignment(0), cluster)
    assert isinstance(change, ChangeAssignment)
    assert [(c.partition, c.wanted) for c in change.changes] == [
        (0, frozenset({A})),
        (1, frozenset({B})),
        (2, frozenset({A})),
    ]
    assert created == [CreateReplicas(A, (0, 2)), CreateReplicas(B, (1,))]


def test_group_assignment_continues_after_interruption() -> None:
    cluster = Model({A: 0, B: 0}, {p: frozenset() for p in range(3)})
    observation = observe(cluster)
    for expected in (ChangeAssignment, CreateReplicas, CreateReplicas):
        step = GroupAssignment(0).next_step(observation)
        assert isinstance(step, expected)
        observation = after_step(observation, step)
    assert GroupAssignment(0).next_step(observation) == Done()


def test_group_assignment_changes_nothing_before_all_storages_answer() -> None:
    cluster = Model({A: 0, B: 0}, {0: frozenset()}, down={B})
    foreseen = forecast(GroupAssignment(0), observe(cluster))
    assert foreseen.steps == ()
    assert foreseen.end == Wait("storage b:1 does not answer: it is down")


def test_group_assignment_of_group_with_partitions_is_refused(cluster: Model) -> None:
    assert "already has partitions 0, 1" in refusal_of(GroupAssignment(0), cluster)


def test_synchronization_creates_missing_and_drops_extra_replicas(cluster: Model) -> None:
    cluster.assigned[1] -= {A}
    del cluster.disks[A][0]
    assert steps_of(Synchronization(A), cluster) == [
        CreateReplicas(A, (0,)),
        DropReplicas(A, (1,), delete_files=False),
    ]


def test_synchronization_of_correct_storage_does_nothing(cluster: Model) -> None:
    assert steps_of(Synchronization(A), cluster) == []
    assert "Storage e:1 is not in the cluster" in refusal_of(Synchronization("e:1"), cluster)


def test_switching_read_and_write_together_uses_one_request(cluster: Model) -> None:
    off = Switching(A, (0, 1), read=False, write=False, together=True)
    assert steps_of(off, cluster) == [SwitchOff(A, (0, 1))]
    cluster.update(A, 1, readable=False)
    on = Switching(A, (0, 1), read=True, write=True, together=True)
    assert steps_of(on, cluster) == [SwitchOn(A, (1,))]


def test_switching_read_or_write_leaves_the_other_switch_unchanged(cluster: Model) -> None:
    writing = Switching(A, (0, 1), read=None, write=False)
    assert steps_of(writing, cluster) == [SetSwitch(A, (0, 1), SwitchKind.WRITE, on=False)]
    cluster.update(A, 0, readable=False, writable=False)
    both = Switching(A, (0, 1), read=True, write=True)
    assert steps_of(both, cluster) == [
        SetSwitch(A, (0,), SwitchKind.READ, on=True),
        SetSwitch(A, (0,), SwitchKind.WRITE, on=True),
    ]


def test_switching_of_partition_that_is_not_held_is_refused(cluster: Model) -> None:
    order = Switching(A, (1, 5), read=True, write=None)
    assert refusal_of(order, cluster) == (
        "storage a:1 does not hold partition 5; it holds partitions 0-1"
    )


def test_offline_fill_copies_without_overwriting(cluster: Model) -> None:
    cluster.wipe(B)
    cluster.update(B, 0, readable=False, writable=False)
    cluster.update(A, 0, local_low_water_mark=50)
    assert steps_of(OfflineFill(0, A, B), cluster) == [CopyReplica(A, B, 0, overwrite=False)]


def test_offline_fill_of_replica_that_reaches_far_enough_does_nothing(cluster: Model) -> None:
    cluster.update(B, 0, readable=False, writable=False)
    assert steps_of(OfflineFill(0, A, B), cluster) == []


def test_offline_fill_of_replica_that_servers_may_write_is_refused(cluster: Model) -> None:
    assert "is switched on at the destination" in refusal_of(OfflineFill(0, A, B), cluster)
    assert "does not hold partition 0" in refusal_of(OfflineFill(0, A, D), cluster)


def test_forced_unassignment_drops_without_healthy_peers(cluster: Model) -> None:
    cluster.down = {B}
    order = Unassignment(C, (0,), only=AssignmentSide.STORAGE, force=True)
    assert steps_of(order, cluster) == [DropReplicas(C, (0,), delete_files=False, final=True)]


def test_forced_unassignment_waits_for_sessions_without_the_storage(cluster: Model) -> None:
    cluster.assigned[0] |= {D}
    foreseen = forecast(Unassignment(C, (0,), force=True), observe(cluster))
    assert [type(step) for step in foreseen.steps] == [ChangeAssignment]
    assert isinstance(foreseen.end, Wait)
    assert "no session without storage c:1 has begun" in foreseen.end.reason
    assert foreseen.end.reason.endswith(": waltz storage unassign c:1 0 --only storage --force")
    for step in foreseen.steps:
        cluster.perform(step)
    cluster.append(1)
    last = Unassignment(C, (0,), force=True).next_step(observe(cluster))
    assert last == DropReplicas(C, (0,), delete_files=False, final=True)


def test_forced_unassignment_names_a_command_that_drops_the_replicas_later(cluster: Model) -> None:
    """`waltz storage sync` would not drop a replica whose control entry is damaged."""
    cluster.assigned[0] |= {D}
    foreseen = forecast(Unassignment(C, (0,), delete_files=True, force=True), observe(cluster))
    assert isinstance(foreseen.end, Wait)
    assert foreseen.end.reason.endswith(" c:1 0 --only storage --force --delete-files")
    for step in foreseen.steps:
        cluster.perform(step)
    del cluster.disks[C][0]
    named = Unassignment(C, (0,), delete_files=True, only=AssignmentSide.STORAGE, force=True)
    dropped = DropReplicas(C, (0,), delete_files=True, final=True)
    assert named.refusal(observe(cluster)) is None
    assert named.next_step(observe(cluster)) == dropped


def test_unassignment_of_only_replica_in_group_is_refused(cluster: Model) -> None:
    for force in (False, True):
        reason = refusal_of(Unassignment(C, (0,), force=force), cluster)
        assert "holds the only replica of partition 0 in group 2" in reason


def test_registration_and_deregistration_change_the_storage_maps(cluster: Model) -> None:
    assert steps_of(Registration("e:1", 5, 2), cluster) == [RegisterStorage("e:1", 5, 2)]
    assert "already in the cluster, in group 0" in refusal_of(Registration(A, 5, 2), cluster)
    assert steps_of(Deregistration(D), cluster) == [UnregisterStorage(D)]
    assert "still has partitions 0, 1 assigned" in refusal_of(Deregistration(A), cluster)


@pytest.mark.parametrize("written", [(0,), (0, 1), (2,)], ids=str)
def test_registration_that_was_interrupted_is_made_again(
    cluster: Model, written: tuple[int, ...]
) -> None:
    before = observe(cluster)
    complete = after_step(before, RegisterStorage("e:1", 3, 2)).maps
    groups, assignments, connections = (place in written for place in range(3))
    maps = StorageMaps(
        complete.groups if groups else before.maps.groups,
        complete.connections if connections else before.maps.connections,
        complete.assignments if assignments else before.maps.assignments,
    )
    foreseen = forecast(Registration("e:1", 5, 2), replace(before, maps=maps))
    assert foreseen.end == Done()
    assert list(foreseen.steps) == [UnregisterStorage("e:1"), RegisterStorage("e:1", 5, 2)]


def test_registration_of_storage_without_group_that_has_partitions_is_refused(
    cluster: Model,
) -> None:
    before = observe(cluster)
    groups = GroupDescriptor({s: g for s, g in before.groups.items() if s != A})
    observation = replace(before, maps=replace(before.maps, groups=groups))
    reason = Registration(A, 0, 2).refusal(observation)
    assert "still has partitions 0, 1 assigned" in (reason or "")


def test_dry_run_of_move_ends_where_servers_must_act(cluster: Model) -> None:
    foreseen = forecast(Move(0, C, D), observe(cluster))
    assert [type(step) for step in foreseen.steps] == [CreateReplicas, ChangeAssignment]
    assert isinstance(foreseen.end, Wait)
    assert "replica of partition 0 on storage d:1 takes no part in session" in foreseen.end.reason


def test_step_applied_to_observation_changes_only_its_storage(cluster: Model) -> None:
    before = observe(cluster)
    after = after_step(before, DropReplicas(A, (0,), delete_files=True))
    assert after.storages == {
        **before.storages,
        A: StorageReplicas({1: cluster.disks[A][1]}),
    }
