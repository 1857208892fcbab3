"""From any state, plans reach the desired state, and no step costs a partition its quorum.

A random state comes from performing plans for a while. Plans are interrupted between any two steps,
and damage is injected into the objects of Kubernetes, the metadata and the storages.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.operator_world import (
    NAMESPACE,
    UID,
    World,
    Znodes,
    cluster_resource,
    fresh_replica,
    pool_resource,
)
from waltz.admin.core.replicas import quorum
from waltz.admin.core.steps import ChangeAssignment
from waltz.metadata.core.formats import ConnectionMetadata, GroupDescriptor, ReplicaAssignments
from waltz.metadata.core.storage_maps import StorageMaps
from waltz_operator.core.event_reasons import EVENT_REASONS
from waltz_operator.core.names import MANAGER_LABEL, metadata_name
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ClusterIncomplete
from waltz_operator.core.planning import plan
from waltz_operator.core.steps import ClusterPlan

MAX_ROUNDS = 150
"""Enough for the largest world below, whose partitions are repaired and moved one at a time."""

Damage = Callable[[World, random.Random], None]


def delete_object(world: World, dice: random.Random) -> None:
    """Delete an object, and the certificates together with their authority.

    The loss of the authority alone is a problem for a person: see test_operator_plan_guards.py.
    """
    if world.objects:
        lost = dice.choice(sorted(world.objects))
        del world.objects[lost]
        if lost == ObjectKey("Secret", "log-authority"):
            world.objects.pop(ObjectKey("Secret", "log-tls"), None)


def edit_object(world: World, dice: random.Random) -> None:
    specs = [key for key, live in sorted(world.objects.items()) if live.get("spec")]
    if specs:
        spec = world.objects[dice.choice(specs)]["spec"]
        # The number of replicas is damaged by scale_set.
        spec[dice.choice(sorted(spec.keys() - {"replicas"}))] = {"edited": "by hand"}


def scale_set(world: World, dice: random.Random) -> None:
    sets = [key for key in sorted(world.objects) if key.kind == "StatefulSet"]
    if sets:
        world.objects[dice.choice(sets)]["spec"]["replicas"] = dice.randrange(1, 6)


def delete_secret_part(world: World, dice: random.Random) -> None:
    secret = world.objects.get(ObjectKey("Secret", "log-tls"))
    if secret is not None:
        secret["data"].pop(dice.choice(("ca.crt", "tls.crt", "tls.key")), None)


def interrupt_creation(world: World, dice: random.Random) -> None:
    if world.znodes is None:
        key = world.desired().key
        name = metadata_name("log", NAMESPACE)
        begun = [(None, None), (name, None), (name, key)]
        world.znodes = ClusterIncomplete(*dice.choice(begun), used=False)


def half_register(world: World, dice: random.Random) -> None:
    """Register a storage without partitions in some of the three maps, or in a wrong group."""
    if not isinstance(world.znodes, Znodes):
        return
    pool = world.desired().pools[0].metadata.name
    storage = f"{pool}-storage-0.{pool}-storage.{NAMESPACE}.svc:6000"
    groups, ports, partitions = raw_maps(world.znodes)
    if partitions.get(storage):
        return
    for each in (groups, ports, partitions):
        each.pop(storage, None)
    if dice.random() < 0.7:
        groups[storage] = dice.randrange(5)
    if dice.random() < 0.5:
        ports[storage] = dice.choice((6001, 7001))
    if dice.random() < 0.5:
        partitions[storage] = ()
    set_maps(world.znodes, groups, ports, partitions)


def take_replica_away(world: World, dice: random.Random) -> None:
    """Unassign a replica, as long as a majority of the pools keeps one."""
    if not isinstance(world.znodes, Znodes):
        return
    assert world.cluster is not None
    pools = len(world.cluster["spec"]["pools"])
    groups, ports, partitions = raw_maps(world.znodes)
    partition = dice.randrange(world.znodes.num_partitions)
    holders = [storage for storage, held in partitions.items() if partition in held]
    if len(holders) > quorum(pools):
        storage = dice.choice(holders)
        partitions[storage] = tuple(p for p in partitions[storage] if p != partition)
        set_maps(world.znodes, groups, ports, partitions)
        world.settle()


def add_foreign_storage(world: World, dice: random.Random) -> None:
    """Register a storage that is in no pool."""
    if isinstance(world.znodes, Znodes):
        groups, ports, partitions = raw_maps(world.znodes)
        foreign = f"foreign-{dice.randrange(3)}:6000"
        groups[foreign], ports[foreign], partitions[foreign] = 7, 6001, ()
        set_maps(world.znodes, groups, ports, partitions)


def switch_off(world: World, dice: random.Random) -> None:
    """Switch a replica off, if its partition keeps a quorum without it."""
    for storage, held in sorted(world.disks.items()):
        for partition in sorted(held):
            if dice.random() < 0.3 and isinstance(world.znodes, Znodes):
                before = held[partition]
                held[partition] = replace(before, readable=False, writable=False)
                if world.view(partition).metadata.replicas and not world.opens(partition):
                    world.disks[storage][partition] = before


def forget_unused(world: World, dice: random.Random) -> None:
    """Delete replicas that were never in a session."""
    for held in world.disks.values():
        for partition in sorted(held):
            if held[partition].session_id < 0 and dice.random() < 0.5:
                del held[partition]


def hold_more(world: World, dice: random.Random) -> None:
    """Add a replica that is not assigned to its storage."""
    if isinstance(world.znodes, Znodes):
        for storage in sorted(world.disks):
            partition = dice.randrange(world.znodes.num_partitions)
            world.disks[storage].setdefault(partition, fresh_replica(partition))


def take_down(world: World, dice: random.Random) -> None:
    """Make a storage unreachable until the world settles."""
    if world.disks:
        world.down.add(dice.choice(sorted(world.disks)))


def lower_spec(world: World, dice: random.Random) -> None:
    """Specify fewer storages; not for a single copy, whose partitions cannot move."""
    if len(world.pools) == 1:
        return
    pool = world.pools[dice.choice(sorted(world.pools))]
    pool["spec"]["storages"] = dice.randrange(1, pool["spec"]["storages"] + 1)


def toggle_zookeeper(world: World, dice: random.Random) -> None:
    world.zookeeper_up = not world.zookeeper_up


DAMAGES: tuple[Damage, ...] = (
    delete_object,
    edit_object,
    scale_set,
    delete_secret_part,
    interrupt_creation,
    half_register,
    take_replica_away,
    add_foreign_storage,
    switch_off,
    forget_unused,
    hold_more,
    take_down,
    lower_spec,
    toggle_zookeeper,
)


def raw_maps(
    log: Znodes,
) -> tuple[dict[str, int], dict[str, int], dict[str, tuple[int, ...]]]:
    maps = log.maps
    groups, ports = dict(maps.groups.groups), dict(maps.connections.admin_ports)
    return groups, ports, dict(maps.assignments.partitions)


def set_maps(
    log: Znodes,
    groups: dict[str, int],
    ports: dict[str, int],
    partitions: dict[str, tuple[int, ...]],
) -> None:
    log.maps = StorageMaps(
        GroupDescriptor(groups), ConnectionMetadata(ports), ReplicaAssignments(partitions)
    )


def random_world(dice: random.Random) -> World:
    pools = [
        pool_resource(name, storages=dice.randrange(1, 4))
        for name in "abcde"[: dice.choice((1, 3, 3, 5))]
    ]
    external = {"external": {"connectString": "zk:2181"}}
    cluster = cluster_resource(
        partitions=dice.randrange(1, 6),
        pools=[pool["metadata"]["name"] for pool in pools],
        zookeeper=dice.choice(({"managed": {"members": 1}}, external)),
        tls={"mode": dice.choice(("None", "Operator"))},
    )
    return World(cluster, pools)


def follow(world: World, decided: ClusterPlan, dice: random.Random | None) -> None:
    """Perform a plan's steps, maybe only the first ones; check that no quorum is lost."""
    for step in decided.steps:
        if dice is not None and dice.random() < 0.15:
            return
        assert type(step) in EVENT_REASONS
        if isinstance(step, ChangeAssignment):
            check_that_replicas_exist(world, step)
        had_quorum = {partition for partition, opens in world.quorum_states() if opens}
        world.perform(step)
        have_quorum = {partition for partition, opens in world.quorum_states() if opens}
        lost = had_quorum - have_quorum
        assert not lost, f"partitions {lost} have lost their quorum by: {step}"


def check_that_replicas_exist(world: World, step: ChangeAssignment) -> None:
    """A server would open a session with replicas that their storages refuse."""
    for change in step.changes:
        for storage in change.wanted - change.expected:
            assert change.partition in world.disks[storage], f"assigned before it exists: {change}"


def check_plan(decided: ClusterPlan) -> None:
    places = [place for place, s in enumerate(decided.steps) if isinstance(s, ChangeAssignment)]
    assert places in ([], [len(decided.steps) - 1]), "one change of assignments, as the last step"


def broken_world(dice: random.Random) -> World:
    world = random_world(dice)
    if dice.random() < 0.6:
        reach(world)
    for _ in range(dice.randrange(1, 14)):
        if dice.random() < 0.8:
            world.settle()
        decided = plan(world.desired(), world.observed())
        check_plan(decided)
        follow(world, decided, dice)
        while dice.random() < 0.4:
            dice.choice(DAMAGES)(world, dice)
    return world


def reach(world: World) -> None:
    """Perform plans until the desired state is reached."""
    world.zookeeper_up = True
    decided = ClusterPlan()
    for _ in range(MAX_ROUNDS):
        world.settle()
        decided = plan(world.desired(), world.observed())
        check_plan(decided)
        if decided.done:
            return
        assert not decided.problems, decided
        follow(world, decided, None)
    raise AssertionError(f"not done after {MAX_ROUNDS} rounds: {decided}")


def check_reached(world: World) -> None:
    assert isinstance(world.znodes, Znodes)
    assert world.znodes.key == world.desired().key
    assert world.servers
    assert world.cluster is not None
    for partition in range(world.znodes.num_partitions):
        view = world.view(partition)
        own = {s for s in view.replicas if not s.startswith("foreign")}
        assert len(own) == len(world.cluster["spec"]["pools"])
        assert world.opens(partition)
        assert view.session_replicas == view.replicas
    for live in world.objects.values():
        assert live["metadata"]["labels"][MANAGER_LABEL]


def check_any_state(seed: int) -> None:
    """Check that plans from a random state reach the desired state."""
    world = broken_world(random.Random(seed))
    reach(world)
    check_reached(world)


@settings(max_examples=40)
@given(st.integers(0, 2**32))
@example(523)
@example(1050)
def test_plan_from_any_state_reaches_the_desired_state(seed: int) -> None:
    check_any_state(seed)


@pytest.mark.slow
@settings(max_examples=170)
@given(st.integers(0, 2**32))
def test_plan_from_any_state_reaches_the_desired_state_slow(seed: int) -> None:
    check_any_state(seed)


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_cluster_in_any_state_can_be_deleted(seed: int) -> None:
    world = broken_world(random.Random(seed))
    assert world.cluster is not None
    log = world.znodes
    world.cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.deleting_seconds = 61.0
    for _ in range(MAX_ROUNDS):
        decided = plan(world.desired(), world.observed())
        if decided.done:
            break
        for step in decided.steps:
            world.perform(step)
        if world.cluster is None:
            break
    else:
        raise AssertionError(f"not deleted: {decided}")
    assert world.znodes is log, "volumes are kept by default, and with them the metadata"
    assert not any(pool["metadata"].get("finalizers") for pool in world.pools.values())


@pytest.mark.parametrize("seed", range(20))
def test_plan_depends_only_on_the_observed_state(seed: int) -> None:
    world = broken_world(random.Random(seed))
    first = plan(world.desired(), world.observed())
    assert plan(world.desired(), world.observed()) == first
    assert UID in str(world.desired().key)
