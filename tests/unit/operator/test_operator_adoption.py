"""Test the adoption of a cluster that runs elsewhere: what it requires, what it says, its undo."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.adoption_world import (
    KEY,
    NAME,
    OLD_SERVER,
    AdoptionWorld,
    adopting_resource,
    foreign_storage,
)
from tests.support.operator_world import NAMESPACE, Znodes, pool_resource
from tests.support.planned import follow_until, next_plan
from tests.support.shape_world import ShapeWorld
from tests.unit.operator.test_operator_shape_properties import check_shape, finish
from waltz.admin.core.steps import (
    ChangeAssignment,
    CreateReplicas,
    DropReplicas,
    UnregisterStorage,
)
from waltz.metadata.core import storage_maps
from waltz.metadata.core.formats import ConnectionMetadata, GroupDescriptor
from waltz.metadata.core.storage_maps import ReplicaChange
from waltz_operator.core.names import FINALIZER
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ClusterIncomplete
from waltz_operator.core.preview import Ending, preview, report
from waltz_operator.core.resources import ClusterStatus, Condition, WaltzCluster
from waltz_operator.core.status import cluster_status
from waltz_operator.core.steps import (
    ClusterPlan,
    CreateMetadata,
    DeleteMetadata,
    DeleteObject,
)

_NOW = "2026-01-01T12:00:00Z"
_SERVERS = ObjectKey("Deployment", "log-server")


def pool_storage(pool: str) -> str:
    return f"{pool}-storage-0.{pool}-storage.{NAMESPACE}.svc:6000"


def rounds(world: AdoptionWorld, count: int = 30) -> ClusterPlan:
    """Perform plans; return the last one."""
    for _ in range(count):
        for step in next_plan(world).steps:
            world.perform(step)
        world.settle()
    return next_plan(world)


def adopted(**more: Any) -> AdoptionWorld:
    """Return a cluster whose pools have their copies, beside the foreign groups."""
    world = AdoptionWorld(**more)
    rounds(world)
    world.old_servers = frozenset()
    finish(world)
    return world


def status(world: AdoptionWorld) -> tuple[ClusterStatus, dict[str, Condition]]:
    found = cluster_status(world.desired(), world.observed(), next_plan(world), _NOW)
    return found, {each.type: each for each in found.conditions}


# ---- what is taken over


def test_cluster_of_another_key_is_not_adopted() -> None:
    world = AdoptionWorld(clusterKey=str(uuid.UUID(int=9)))
    before = world.maps
    decided = rounds(world)
    assert f"has the key {KEY}, but spec.clusterKey is {uuid.UUID(int=9)}" in decided.problems[0]
    assert world.maps == before
    assert _SERVERS not in world.objects


def test_cluster_of_another_name_is_not_adopted() -> None:
    world = AdoptionWorld(adopt={"clusterName": "invoices"})
    before = world.maps
    decided = rounds(world)
    assert f"has another cluster, {NAME}" in decided.problems[0]
    assert f"spec.adopt.clusterName {NAME}" in decided.problems[0]
    assert world.maps == before
    assert _SERVERS not in world.objects


def test_key_without_adopt_takes_over_no_cluster_of_another_name() -> None:
    world = AdoptionWorld()
    assert world.cluster is not None
    del world.cluster["spec"]["adopt"]
    before = world.maps
    assert f"has another cluster, {NAME}" in rounds(world).problems[0]
    assert world.maps == before


@pytest.mark.parametrize("incomplete", [False, True])
def test_root_without_a_cluster_is_a_problem_and_nothing_is_created(incomplete: bool) -> None:
    world = AdoptionWorld()
    rest = ClusterIncomplete(NAME, KEY, used=False) if incomplete else None
    world.znodes = rest
    for _ in range(5):
        decided = next_plan(world)
        assert not [s for s in decided.steps if isinstance(s, CreateMetadata | DeleteMetadata)]
        for step in decided.steps:
            world.perform(step)
        world.settle()
    assert f"spec.adopt names the cluster {NAME}: nothing is created" in decided.problems[0]
    assert world.znodes == rest


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"clusterKey": None}, "spec.adopt needs spec.clusterKey"),
        ({"zookeeper": {"managed": {}}}, "spec.adopt needs spec.clusterKey and spec.zookeeper"),
        ({"adopt": None, "pools": []}, "spec.pools is empty"),
    ],
)
def test_spec_that_cannot_adopt_is_invalid(spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        WaltzCluster.model_validate(adopting_resource(3, spec.pop("pools", ["a"]), **spec))


# ---- servers first


def test_servers_join_before_pools_get_copies_and_foreign_servers_are_named() -> None:
    world = AdoptionWorld()
    decided = rounds(world)
    assert _SERVERS in world.objects
    assert len(world.servers) == 3
    assert decided.steps == ()
    assert decided.change is not None
    (waiting,) = (each for each in decided.waits if OLD_SERVER in each)
    assert "pool a: partition 1 of 3 waits" in waiting
    assert "stop them when the servers of this cluster are ready" in waiting
    assert world.copies_on(foreign=False) == [0, 0, 0]


def test_servers_do_not_start_while_a_foreign_storage_is_unreached_and_it_is_named() -> None:
    world = AdoptionWorld()
    silent = foreign_storage(1)
    world.down.add(silent)
    decided = rounds(world)
    assert _SERVERS not in world.objects
    assert any(f"storage {silent} does not answer" in each for each in decided.waits)
    assert any("every storage of the adopted cluster answers" in each for each in decided.waits)
    world.down.clear()
    rounds(world)
    assert _SERVERS in world.objects


def test_cluster_without_pools_gets_servers_only() -> None:
    world = AdoptionWorld(pools="")
    decided = rounds(world)
    assert decided.done
    assert _SERVERS in world.objects
    assert world.copies_on(foreign=True) == [3, 3, 3]


def test_partition_that_foreign_servers_never_opened_gets_no_empty_copies() -> None:
    """Its metadata may be lost: empty copies would count in a vote about what it holds."""
    world = AdoptionWorld()
    assert isinstance(world.znodes, Znodes)
    world.znodes.metadata.clear()
    world.old_servers = frozenset()
    for _ in range(10):
        for step in next_plan(world).steps:
            assert not isinstance(step, ChangeAssignment), step
            world.perform(step)
    assert _SERVERS in world.objects, "its servers may open it"


def test_foreign_server_after_the_adoption_is_a_wait() -> None:
    world = adopted()
    world.old_servers = frozenset({OLD_SERVER})
    world.settle()
    decided = next_plan(world)
    assert decided.change is None
    assert any(OLD_SERVER in each for each in decided.waits)


# ---- copies in the pools


def test_pools_get_copies_beside_the_foreign_groups_and_the_cluster_rests() -> None:
    world = adopted()
    assert world.copies_on(foreign=True) == [3, 3, 3]
    assert world.copies_on(foreign=False) == [3, 3, 3]
    groups = world.maps.groups.groups
    assert len({*groups.values()}) == 6, "no pool shares a group with foreign storages"
    assert next_plan(world).done
    found, conditions = status(world)
    assert conditions["Healthy"].status == "True"
    foreign = conditions["Foreign"]
    assert (foreign.status, foreign.reason) == ("True", "ForeignStoragesKept")
    assert foreign.message == f"storages that no pool here runs: {'; '.join(sorted(world.foreign))}"
    assert found.cluster_key == str(KEY)


def test_single_foreign_copy_becomes_three_at_once() -> None:
    world = AdoptionWorld(groups=(1,), partitions=1)
    rounds(world)
    world.old_servers = frozenset()
    decided = follow_until(world, ChangeAssignment)
    (change,) = (each for each in decided.steps if isinstance(each, ChangeAssignment))
    assert len(change.changes[0].wanted) == 3
    finish(world)
    assert world.copies_on(foreign=False) == [3]


def test_foreign_replica_that_is_switched_off_stops_the_adoption_and_stays_off() -> None:
    world = AdoptionWorld()
    rounds(world)
    world.old_servers = frozenset()
    silent = foreign_storage(2)
    held = world.disks[silent][1]
    world.disks[silent][1] = replace(held, readable=False, writable=False)
    decided = rounds(world)
    assert world.copies_on(foreign=False) == [0, 0, 0]
    assert any(f"partition 1 is switched off at storage {silent}" in w for w in decided.waits)
    assert not world.disks[silent][1].available


def test_removed_pools_return_the_cluster_to_the_foreign_groups() -> None:
    world = adopted()
    world.specify(pools=[])
    finish(world)
    assert world.copies_on(foreign=True) == [3, 3, 3]
    assert world.copies_on(foreign=False) == [0, 0, 0]
    assert {*world.maps.groups.groups} == world.foreign


@pytest.mark.parametrize("num_changes", [1, 4, 8])
def test_pools_removed_half_way_return_the_cluster_to_the_foreign_groups(num_changes: int) -> None:
    world = AdoptionWorld()
    rounds(world)
    world.old_servers = frozenset()
    for _ in range(num_changes):
        for step in follow_until(world, ChangeAssignment).steps:
            world.perform(step)
    world.specify(pools=[])
    finish(world)
    assert world.copies_on(foreign=False) == [0, 0, 0]
    assert {*world.maps.groups.groups} == world.foreign


# ---- the retirement


def test_retired_groups_leave_one_after_the_other_and_keep_their_files() -> None:
    world = adopted()
    world.retire()
    decided = follow_until(world, ChangeAssignment)
    assert decided.change is not None
    assert decided.change.progress == "foreign group 0: partition 1 of 3"
    found, conditions = status(world)
    assert found.change == "foreign group 0: partition 1 of 3"
    assert conditions["Changing"].reason == "RetiringForeignGroup"
    assert "of 5 copies, 3 are a quorum and 2 may fail" in conditions["Changing"].message
    assert conditions["Foreign"].reason == "RetiringForeignStorages"
    (drop,) = follow_until(world, DropReplicas).steps
    assert drop == DropReplicas(foreign_storage(0), (0, 1, 2), delete_files=False)
    (unregister,) = follow_until(world, UnregisterStorage).steps
    assert unregister == UnregisterStorage(foreign_storage(0))
    assert {foreign_storage(1), foreign_storage(2)} < {*world.maps.groups.groups}
    finish(world)
    check_shape(world)
    _, conditions = status(world)
    assert (conditions["Foreign"].status, conditions["Foreign"].reason) == (
        "False",
        "NoForeignStorages",
    )


def test_groups_are_not_retired_before_every_pool_has_its_copy() -> None:
    world = AdoptionWorld(adopt={"clusterName": NAME, "foreignGroups": "Retire"})
    rounds(world)
    world.old_servers = frozenset()
    for _ in range(9):
        (change,) = (
            each
            for each in follow_until(world, ChangeAssignment).steps
            if isinstance(each, ChangeAssignment)
        )
        assert change.changes[0].expected < change.changes[0].wanted
        for step in next_plan(world).steps:
            world.perform(step)
    assert world.copies_on(foreign=False) == [3, 3, 3]
    finish(world)
    check_shape(world)


@pytest.mark.parametrize("fewer", [False, True])
def test_groups_are_not_retired_with_fewer_than_three_copies_in_pools(fewer: bool) -> None:
    world = adopted(pools="ab", allowFewerCopies=fewer)
    world.retire()
    decided = next_plan(world)
    assert decided.steps == ()
    assert (
        "foreign group 0 is not retired: the pools would have only 2 copies" in decided.problems[0]
    )
    assert "name at least 3 pools in spec.pools" in decided.problems[0]


def test_unreached_foreign_storage_stops_the_retirement_and_is_named() -> None:
    world = adopted()
    world.retire()
    world.down.add(foreign_storage(2))
    decided = rounds(world, 10)
    assert world.copies_on(foreign=True) == [3, 3, 3]
    reason = (
        f"foreign group 0: partition 1 of 3 waits: storage {foreign_storage(2)} does not answer"
    )
    assert any(reason in each for each in decided.waits)
    _, conditions = status(world)
    assert f"{foreign_storage(2)}, which does not answer" in conditions["Foreign"].message
    world.down.clear()
    finish(world)
    check_shape(world)


def test_storage_that_leaves_and_does_not_answer_stays_registered() -> None:
    world = adopted()
    world.retire()
    follow_until(world, DropReplicas)
    world.down.add(foreign_storage(0))
    decided = rounds(world, 10)
    assert foreign_storage(0) in world.maps.groups.groups
    assert any(f"storage {foreign_storage(0)} does not answer" in each for each in decided.waits)


def test_copy_that_differs_stops_the_retirement() -> None:
    world = adopted()
    world.corrupt.add((pool_storage("b"), 1))
    world.retire()
    for _ in range(40):
        world.settle()
        for step in next_plan(world).steps:
            if isinstance(step, ChangeAssignment):
                partitions = [change.partition for change in step.changes]
                if partitions == [1]:
                    with pytest.raises(Exception, match="partition 1 differs"):
                        world.perform(step)
                    break
            world.perform(step)
    assert world.copies_on(foreign=True)[1] == 3


def test_retirement_that_is_withdrawn_stops_where_it_is() -> None:
    world = adopted()
    world.retire()
    for step in follow_until(world, ChangeAssignment).steps:
        world.perform(step)
    world.retire("Keep")
    decided = finish(world)
    assert decided.done
    assert world.copies_on(foreign=True) == [2, 3, 3]


def test_foreign_copy_is_assigned_again_if_a_partition_opens_only_with_it() -> None:
    """The user has withdrawn the retirement directly after a copy was given up."""
    world = adopted(groups=(1,), partitions=1)
    world.retire()
    for step in follow_until(world, ChangeAssignment).steps:
        world.perform(step)
    world.retire("Keep")
    world.old_servers = frozenset()
    # The session of four copies needs three of them, and two of the assigned three answer.
    world.down.add(pool_storage("a"))
    assert not world.opens(0)
    back = ReplicaChange(
        0,
        frozenset(map(pool_storage, "abc")),
        frozenset({*map(pool_storage, "abc"), foreign_storage(0)}),
    )
    decided = next_plan(world)
    assert ChangeAssignment((back,)) in decided.steps
    world.perform(ChangeAssignment((back,)))
    assert world.opens(0)


def test_foreign_group_with_a_storage_of_a_pool_is_not_retired() -> None:
    world = adopted()
    maps = world.maps
    groups = {**maps.groups.groups, foreign_storage(0): maps.groups.groups[pool_storage("a")]}
    assert isinstance(world.znodes, Znodes)
    world.znodes.maps = replace(maps, groups=GroupDescriptor(groups))
    world.retire()
    problems = " ".join(next_plan(world).problems)
    assert "it has storages of pools, too" in problems


@pytest.mark.parametrize("has_partitions", [False, True])
def test_foreign_storage_in_no_group_leaves_only_without_partitions(has_partitions: bool) -> None:
    world = adopted(partitions=1)
    world.retire()
    lost = foreign_storage(0) if has_partitions else "spare:5000"
    maps = world.maps
    if has_partitions:
        groups = {s: g for s, g in maps.groups.groups.items() if s != lost}
        maps = replace(maps, groups=GroupDescriptor(groups))
    else:
        ports = {**maps.connections.admin_ports, lost: 5001}
        maps = replace(maps, connections=ConnectionMetadata(ports))
    assert isinstance(world.znodes, Znodes)
    world.znodes.maps = maps
    decided = next_plan(world)
    if has_partitions:
        assert any(
            f"storage {lost} has partitions, but is in no group" in p for p in decided.problems
        )
    else:
        assert UnregisterStorage(lost) in decided.steps


def test_spare_foreign_storage_is_unregistered_with_its_group() -> None:
    world = AdoptionWorld()
    assert isinstance(world.znodes, Znodes)
    world.znodes.maps = storage_maps.add_storage_node(world.maps, "spare:5000", 0, 5001)
    world.disks["spare:5000"] = {}
    world.foreign |= {"spare:5000"}
    rounds(world)
    world.old_servers = frozenset()
    world.retire()
    finish(world)
    check_shape(world)


# ---- deletion, and clusters without adoption


@pytest.mark.parametrize("retired", [False, True])
def test_deletion_keeps_znodes_and_volumes_while_foreign_storages_are_registered(
    retired: bool,
) -> None:
    world = adopted()
    assert world.cluster is not None
    if retired:
        world.retire()
        finish(world)
    world.cluster["status"] = status(world)[0].to_json()
    for pool in world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    claim = ObjectKey("PersistentVolumeClaim", "data-a-storage-0")
    labels = world.objects[ObjectKey("StatefulSet", "a-storage")]["metadata"]["labels"]
    world.objects[claim] = {"metadata": {"name": claim.name, "labels": labels, "uid": "claim"}}
    world.cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    kinds = set()
    while world.cluster is not None:
        world.settle()
        for step in next_plan(world).steps:
            kinds.add(type(step))
            if isinstance(step, DeleteObject) and step.key.kind == "StatefulSet":
                del world.objects[step.key]  # Its pods are not scaled down, but end.
            else:
                world.perform(step)
    assert (DeleteMetadata in kinds) is retired
    assert (claim not in world.objects) is retired


def test_storages_in_no_pool_are_not_retired_without_adopt() -> None:
    world = ShapeWorld(
        adopting_resource(1, ["a", "b", "c"], adopt=None, clusterKey=None),
        [pool_resource(name) for name in "abc"],
    )
    finish(world)
    assert isinstance(world.znodes, Znodes)
    world.znodes.maps = storage_maps.add_storage_node(world.znodes.maps, "other:1", 7, 2)
    world.disks["other:1"] = {}
    decided = next_plan(world)
    assert decided.done
    found = cluster_status(world.desired(), world.observed(), decided, _NOW)
    (foreign,) = (each for each in found.conditions if each.type == "Foreign")
    assert (foreign.status, foreign.reason) == ("True", "ForeignStoragesKept")


def test_storages_of_a_pool_that_is_not_claimed_yet_are_not_foreign() -> None:
    """A WaltzCluster that is created again claims its pools in its first reconcile."""
    world = adopted()
    world.retire()
    finish(world)
    for pool in world.pools.values():
        pool["metadata"] |= {"labels": {}, "finalizers": []}
    assert world.cluster is not None
    world.cluster["metadata"]["finalizers"] = [FINALIZER]
    world.old_servers = frozenset()
    decided = next_plan(world)
    assert not [s for s in decided.steps if isinstance(s, ChangeAssignment | UnregisterStorage)]
    assert status(world)[1]["Foreign"].status == "False"


# ---- the preview


def test_preview_of_a_retirement_shows_which_groups_leave() -> None:
    world = adopted()
    world.retire()
    shown = preview(world.desired(), world.observed())
    assert shown.ending is Ending.COMPLETE
    lines = list(report(shown))
    for group in range(3):
        assert any(f"foreign group {group} leaves the cluster" in line for line in lines)
    assert {loss.storage for loss in shown.losses} == world.foreign
    assert not [step for step in shown.steps if isinstance(step, CreateReplicas)]


def test_preview_of_an_adoption_waits_for_the_end_of_foreign_servers() -> None:
    world = AdoptionWorld()
    shown = preview(world.desired(), world.observed())
    assert shown.ending is Ending.WAITS
    assert any(OLD_SERVER in each for each in shown.waits)
