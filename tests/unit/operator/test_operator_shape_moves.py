"""Which storage keeps a moved replica, and which files of it stay on the other one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.operator_world import Znodes, cluster_resource, pool_resource
from tests.support.planned import follow_until, next_plan
from tests.support.shape_world import ShapeWorld
from tests.unit.operator.test_operator_shape import storage
from tests.unit.operator.test_operator_shape_properties import finish
from waltz.admin.core.steps import ChangeAssignment, DropReplicas
from waltz.metadata.core.formats import ConnectionMetadata, GroupDescriptor
from waltz.metadata.core.storage_maps import StorageMaps
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.steps import Step


class RecordingWorld(ShapeWorld):
    """A world that records which replicas are dropped."""

    dropped: list[DropReplicas]

    def perform(self, step: Step) -> None:
        super().perform(step)
        if isinstance(step, DropReplicas):
            self.dropped.append(step)


def test_files_stay_only_on_a_drained_storage_whose_volume_is_kept() -> None:
    """The files on a storage that stays would take up its disk for ever."""
    resource = cluster_resource(partitions=4, tls={"mode": "None"}, networkPolicies=False)
    world = RecordingWorld(resource, [pool_resource(name) for name in "abc"])
    world.dropped = []
    finish(world)
    world.pools["a"]["spec"]["storages"] = 2
    finish(world)
    grown, world.dropped = world.dropped, []
    assert {(each.storage.partition(".")[0], each.delete_files) for each in grown} == {
        ("a-storage-0", True)
    }
    world.pools["a"]["spec"]["storages"] = 1
    finish(world)
    assert {(each.storage.partition(".")[0], each.delete_files) for each in world.dropped} == {
        ("a-storage-1", False)
    }


def test_empty_storage_of_a_single_pool_is_removed_although_no_partition_can_move() -> None:
    """A single copy cannot be spread; that must not keep a drained, empty storage registered."""
    resource = cluster_resource(
        partitions=4, pools=["a"], tls={"mode": "None"}, networkPolicies=False
    )
    world = ShapeWorld(resource, [pool_resource("a")])
    finish(world)
    world.pools["a"]["spec"]["storages"] = 3
    finish(world)
    assert isinstance(world.znodes, Znodes)
    assert {*world.znodes.maps.groups.groups} == {storage("a", n) for n in range(3)}
    world.pools["a"]["spec"]["storages"] = 2
    finish(world)
    assert {*world.znodes.maps.groups.groups} == {storage("a", n) for n in range(2)}


def with_wrong_port(maps: StorageMaps, storage: str) -> StorageMaps:
    ports = {**maps.connections.admin_ports, storage: 7777}
    return replace(maps, connections=ConnectionMetadata(ports))


def without_group(maps: StorageMaps, storage: str) -> StorageMaps:
    groups = {each: group for each, group in maps.groups.groups.items() if each != storage}
    return replace(maps, groups=GroupDescriptor(groups))


@pytest.mark.parametrize("damaged", [with_wrong_port, without_group])
def test_half_done_move_ends_at_the_storage_that_is_registered(
    damaged: Callable[[StorageMaps, str], StorageMaps],
) -> None:
    """A move must not empty a registered storage in favour of one that the operator cannot use."""
    resource = cluster_resource(partitions=3, tls={"mode": "None"}, networkPolicies=False)
    world = ShapeWorld(resource, [pool_resource(name) for name in "abc"])
    finish(world)
    world.pools["a"]["spec"]["storages"] = 2
    for step in follow_until(world, ChangeAssignment).steps:
        world.perform(step)
    world.settle()
    assert isinstance(world.znodes, Znodes)
    world.znodes.maps = damaged(world.znodes.maps, storage("a", 1))
    (removal,) = follow_until(world, ChangeAssignment).steps
    assert isinstance(removal, ChangeAssignment)
    (change,) = removal.changes
    assert change.expected - change.wanted == {storage("a", 1)}


def test_pod_of_a_drained_storage_without_a_group_stays_until_its_partitions_have_moved() -> None:
    """The storage maps were changed by hand: the storage has partitions, and is in no group."""
    resource = cluster_resource(partitions=4, tls={"mode": "None"}, networkPolicies=False)
    world = ShapeWorld(resource, [pool_resource(name, storages=2) for name in "abc"])
    finish(world)
    assert isinstance(world.znodes, Znodes)
    drained = storage("a", 1)
    groups = world.znodes.maps.groups.groups.items()
    without = GroupDescriptor({each: group for each, group in groups if each != drained})
    world.znodes.maps = replace(world.znodes.maps, groups=without)
    world.pools["a"]["spec"]["storages"] = 1
    replicas = []
    while world.znodes.maps.assignments.partitions.get(drained):
        for step in next_plan(world).steps:
            world.perform(step)
        replicas.append(world.objects[ObjectKey("StatefulSet", "a-storage")]["spec"]["replicas"])
        world.settle()
    assert len(replicas) > 2
    assert {*replicas} == {2}
