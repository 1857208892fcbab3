"""Volumes that grow stop no pod, and the growth ends wherever the operator was killed.

Random histories enlarge volumes of several pools, while the operator is killed between its steps,
and Kubernetes resizes the volumes in small steps. `GrowthWorld` refuses what Kubernetes refuses.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.growth_world import GrowthWorld
from tests.support.operator_faults import Faults
from tests.support.operator_world import cluster_resource, pool_resource
from tests.unit.operator.test_operator_plan_properties import check_plan, follow, reach
from tests.unit.operator.test_operator_reconcile import Operation
from tests.unit.operator.test_operator_roll_properties import check_copies, check_replacement
from waltz_operator.core.objects.manifest import amount
from waltz_operator.core.planning import plan
from waltz_operator.core.steps import GrowVolume, OrphanPods

_EVENTS = 60
_SIZES = ("1Gi", "1536Mi", "2Gi", "5Gi")

Event = Callable[[GrowthWorld, random.Random], None]


def running_cluster(dice: random.Random) -> GrowthWorld:
    resource = cluster_resource(partitions=dice.randrange(1, 4), pools=list("abc"))
    pools = [pool_resource(name, storages=dice.randrange(1, 3)) for name in "abc"]
    world = GrowthWorld(resource, pools)
    reach(world)
    return world


def enlarge(world: GrowthWorld, dice: random.Random) -> None:
    """Enlarge the volumes of one pool, as the API server allows it."""
    pool = dice.choice("abc")
    old = world.pools[pool]["spec"]["volumes"]["data"]["size"]
    world.specify_size(pool, dice.choice([s for s in _SIZES if not _is_less(s, old)]))


def reconcile(world: GrowthWorld, dice: random.Random) -> None:
    """Let the operator plan and perform, maybe only its first steps."""
    decided = plan(world.desired(), world.observed())
    check_plan(decided)
    check_replacement(world, decided)
    if any(isinstance(each, OrphanPods) for each in decided.steps):
        assert len(decided.steps) == 1, "a set is deleted only when nothing else changes"
    follow(world, decided, dice)


EVENTS: tuple[Event, ...] = (
    lambda world, dice: world.resize_volumes(),
    lambda world, dice: world.process_sets(),
    lambda world, dice: world.create_pods(),
    lambda world, dice: world.start_pods(),
    lambda world, dice: world.run_servers(),
    reconcile,
    reconcile,
    reconcile,
)


def _is_less(size: str, other: str) -> bool:
    return float(amount(size)) < float(amount(other))


def check_grown(world: GrowthWorld) -> None:
    """Check that every volume, and every template, has the size of its pool."""
    for name, pool in world.pools.items():
        wanted = amount(pool["spec"]["volumes"]["data"]["size"])
        for claim_name, claim in world.claims().items():
            if claim_name.startswith(f"data-{name}-storage-"):
                assert amount(claim["status"]["capacity"]["storage"]) == wanted
    sizes = {pool["spec"]["volumes"]["data"]["size"] for pool in world.pools.values()}
    assert {amount(size) for size in world.template_sizes()} == {amount(size) for size in sizes}


def check_growth(seed: int) -> GrowthWorld:
    """Check every plan of a random history, and that all volumes get their size."""
    dice = random.Random(seed)
    world = running_cluster(dice)
    pods = world.pod_uids()
    for _ in range(_EVENTS):
        if dice.random() < 0.1:
            enlarge(world, dice)
        dice.choice(EVENTS)(world, dice)
        check_copies(world)
    reach(world)
    check_grown(world)
    assert world.pod_uids() == pods, "no pod was restarted"
    assert plan(world.desired(), world.observed()).done
    return world


@settings(max_examples=12)
@given(st.integers(0, 2**32))
def test_random_growths_restart_no_pod_and_end(seed: int) -> None:
    check_growth(seed)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_more_random_growths_restart_no_pod_and_end(seed: int) -> None:
    check_growth(seed)


@settings(max_examples=5)
@given(st.integers(0, 2**32))
def test_growths_among_rolls_and_scalings_end(seed: int) -> None:
    dice = random.Random(seed)
    world = running_cluster(dice)
    world.online = dice.random() < 0.5
    for _ in range(_EVENTS):
        if dice.random() < 0.08:
            enlarge(world, dice)
        if dice.random() < 0.04:
            spec = world.pools[dice.choice("abc")]["spec"]
            spec["restartedAt"] = f"2026-01-01T00:00:{dice.randrange(60):02}Z"
        if dice.random() < 0.02:
            world.seconds += 400
        if dice.random() < 0.02:
            spec = world.pools[dice.choice("abc")]["spec"]
            spec["storages"] = min(3, spec["storages"] + 1)
        dice.choice(EVENTS)(world, dice)
        check_copies(world)
    world.online = True
    reach(world)
    check_grown(world)


@settings(max_examples=2)
@given(st.integers(0, 2**32))
def test_class_that_cannot_grow_changes_nothing_else(seed: int) -> None:
    dice = random.Random(seed)
    world = running_cluster(dice)
    world.expandable = False
    pods, templates = world.pod_uids(), world.template_sizes()
    old = {name: pool["spec"]["volumes"]["data"]["size"] for name, pool in world.pools.items()}
    for _ in range(_EVENTS):
        if dice.random() < 0.1:
            enlarge(world, dice)
        decided = plan(world.desired(), world.observed())
        assert not any(isinstance(each, GrowVolume | OrphanPods) for each in decided.steps)
        dice.choice(EVENTS)(world, dice)
    assert (world.pod_uids(), world.template_sizes()) == (pods, templates)
    for name, size in old.items():
        world.specify_size(name, size)
    reach(world)
    assert world.pod_uids() == pods


def test_random_growths_grow_volumes_and_recreate_sets() -> None:
    """Otherwise the properties above would hold for a planner that does nothing."""
    recreated = sum(len(check_growth(seed).orphaned) for seed in range(6))
    assert recreated >= 6


async def grow(kill_at: int) -> tuple[int, int]:
    """Grow the volumes of a pool; the operator is killed after its call ``kill_at``.

    Return how often it was killed, and how many calls the growth took.
    """
    resource = cluster_resource(partitions=1, pools=list("abc"))
    world = GrowthWorld(resource, [pool_resource(name) for name in "abc"])
    faults = Faults()
    operation = Operation(faults, world=world)
    await operation.until_done()
    pods = world.pod_uids()
    world.specify_size("b", "2Gi")
    faults.calls, faults.kill_at = 0, kill_at
    await operation.until_done()
    check_grown(world)
    assert world.pod_uids() == pods
    assert world.pools["b"]["status"]["requestedSizes"]["data"] == "2Gi"
    assert operation.condition("Healthy")["status"] == "True"
    return operation.kills, faults.calls


async def test_operator_killed_after_any_call_completes_the_growth() -> None:
    _, calls = await grow(0)
    assert calls > 3
    for kill_at in range(1, calls + 1):
        assert (await grow(kill_at))[0] == 1
