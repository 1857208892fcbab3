"""A rolling change never takes a second copy away, stops at one broken pod, and ends.

Random histories interleave the operator with the controllers, kubelets and servers, with evictions,
and with further changes of the resources. The operator may be killed after any of its steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.operator_world import Znodes, cluster_resource, pool_resource
from tests.support.rolling_world import RollingWorld
from tests.unit.operator.test_operator_plan_properties import check_plan, follow, reach
from waltz_operator.core.names import Component
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.planning import plan
from waltz_operator.core.planning.rolls import is_rolling
from waltz_operator.core.steps import ClusterPlan, ReplacePod

Event = Callable[[RollingWorld, random.Random], None]

_EVENTS = 80
_MAX_ROUNDS = 120
"""Enough to replace all pods of the largest cluster below, each in a few rounds."""

_IMAGES = ("waltz-storage:2", "waltz-storage:3", "broken")


def running_cluster(dice: random.Random) -> RollingWorld:
    pools = "abcde"[: dice.choice((3, 3, 5))]
    resource = cluster_resource(
        partitions=dice.randrange(1, 5),
        pools=list(pools),
        zookeeper={"managed": {"members": 3}},
    )
    storages = dice.randrange(1, 3)
    world = RollingWorld(resource, [pool_resource(name, storages=storages) for name in pools])
    reach(world)
    assert world.outdated() == []
    return world


def specify(world: RollingWorld, dice: random.Random) -> None:
    """Change the version of the storages, of ZooKeeper, or of one pool."""
    assert world.cluster is not None
    match dice.randrange(4):
        case 0:
            pool = world.pools[dice.choice(sorted(world.pools))]
            pool["spec"]["restartedAt"] = f"2026-01-01T00:00:{dice.randrange(60):02}Z"
        case 1:
            images = world.cluster["spec"].setdefault("images", {})
            images["zookeeper"] = dice.choice(_IMAGES)
        case _:
            images = world.cluster["spec"].setdefault("images", {})
            images["storage"] = dice.choice(_IMAGES)


def evict(world: RollingWorld, dice: random.Random) -> None:
    """Evict a storage if its disruption budget allows it, as `kubectl drain` does."""
    world.evict_storage(dice.choice(sorted(world.storage_pods())))


def reconcile(world: RollingWorld, dice: random.Random) -> None:
    """Let the operator plan and perform."""
    decided = plan(world.desired(), world.observed())
    check_plan(decided)
    check_replacement(world, decided)
    follow(world, decided, dice)


def reconcile_and_evict(world: RollingWorld, dice: random.Random) -> None:
    """Evict a storage, if that is allowed, after the operator has observed and before it acts."""
    decided = plan(world.desired(), world.observed())
    check_plan(decided)
    check_replacement(world, decided)
    evict(world, dice)
    follow(world, decided, dice)


def check_replacement(world: RollingWorld, decided: ClusterPlan) -> None:
    """Check that a plan replaces one pod, and only if no other copy is away or can be evicted."""
    replaced = [step.pod for step in decided.steps if isinstance(step, ReplacePod)]
    assert len(replaced) <= 1, "one pod at a time"
    if not replaced:
        return
    assert len(decided.steps) == 1, "a pod is replaced only when nothing else changes"
    (pod,) = replaced
    if "zookeeper" in pod:
        ready = [name for name, member in world._zookeeper_members() if world.is_ready(member)]
        if pod in ready:
            assert len(ready) == 3, "all members are ready"
        return
    if not world.is_reachable(world.address(pod)):
        return
    absent = {
        other: partitions
        for other in world.storage_pods()
        if other != pod and (partitions := world.absent_partitions(world.address(other)))
    }
    assert not absent, f"{pod} is replaced while other replicas are away: {absent}"
    budget = world.objects[ObjectKey("PodDisruptionBudget", "log-storage")]
    assert budget["spec"]["maxUnavailable"] == 0
    assert is_rolling(world.desired(), world.observed(), Component.STORAGE)


ORDINARY_EVENTS: tuple[Event, ...] = (
    lambda world, dice: world.process_sets(),
    lambda world, dice: world.create_pods(),
    lambda world, dice: world.start_pods(),
    lambda world, dice: world.run_servers(),
    reconcile,
    reconcile,
)
EVENTS: tuple[Event, ...] = (*ORDINARY_EVENTS, reconcile_and_evict, evict)


def check_copies(world: RollingWorld) -> None:
    """Check that every partition opens, and that at most as many copies are away as may be."""
    assert isinstance(world.znodes, Znodes)
    assert world.cluster is not None
    spare = (len(world.cluster["spec"]["pools"]) - 1) // 2
    for partition in range(world.znodes.num_partitions):
        assigned = world.znodes.maps.assignments.storages_of(partition)
        away = [storage for storage in assigned if not world.is_reachable(storage)]
        assert len(away) <= spare, f"copies of partition {partition} are away: {away}"
        assert world.opens(partition)
    unready = [name for name, pod in world._zookeeper_members() if not world.is_ready(pod)]
    assert len(unready) <= 1, f"members of ZooKeeper are away: {unready}"


def specify_good_images(world: RollingWorld) -> None:
    assert world.cluster is not None
    images = world.cluster["spec"].setdefault("images", {})
    images |= {"storage": "waltz-storage:9", "zookeeper": "waltz-zookeeper:9"}


def finish(world: RollingWorld) -> None:
    """Let everything work until the plan is empty; fail if the roll does not end."""
    decided = ClusterPlan()
    for _ in range(_MAX_ROUNDS):
        world.settle()
        check_copies(world)
        decided = plan(world.desired(), world.observed())
        if decided.done:
            return
        check_replacement(world, decided)
        follow(world, decided, None)
    raise AssertionError(f"the roll has not ended after {_MAX_ROUNDS} rounds: {decided}")


def check_roll(seed: int) -> None:
    """Check that no second copy is away in a random history, and that its last roll ends."""
    dice = random.Random(seed)
    world = running_cluster(dice)
    for _ in range(_EVENTS):
        if dice.random() < 0.06:
            specify(world, dice)
        dice.choice(EVENTS)(world, dice)
        check_copies(world)
    specify_good_images(world)
    finish(world)
    assert world.outdated() == []


@settings(max_examples=6)
@given(st.integers(0, 2**32))
def test_roll_takes_no_second_copy_away_and_ends(seed: int) -> None:
    check_roll(seed)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_more_rolls_end_and_take_no_second_copy_away(seed: int) -> None:
    check_roll(seed)


def check_broken_version(seed: int) -> None:
    """Check that a version which does not start is tried on one pod only, until it is corrected."""
    dice = random.Random(seed)
    world = running_cluster(dice)
    assert world.cluster is not None
    component = dice.choice(("storage", "zookeeper"))
    world.cluster["spec"]["images"] = {component: "broken"}
    for _ in range(_EVENTS):
        dice.choice(ORDINARY_EVENTS)(world, dice)
        check_copies(world)
    for _ in range(10):
        world.settle()
        follow(world, plan(world.desired(), world.observed()), None)
        world.settle()
    stopped = [
        pod["metadata"]["name"]
        for pod in world.pods()
        if pod["spec"]["containers"][0]["image"] == "broken"
    ]
    assert len(stopped) == 1
    decided = plan(world.desired(), world.observed())
    assert decided.steps == ()
    assert f"pod {stopped[0]} of the current version does not start" in decided.waits[0]
    world.cluster["spec"]["images"] = {component: "corrected"}
    world.replaced.clear()
    finish(world)
    assert world.replaced[0] == stopped[0]
    assert world.outdated() == []


@settings(max_examples=5)
@given(st.integers(0, 2**32))
def test_broken_version_stops_at_one_pod_which_is_replaced_first_after_a_correction(
    seed: int,
) -> None:
    check_broken_version(seed)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_broken_version_of_more_histories_stops_at_one_pod(seed: int) -> None:
    check_broken_version(seed)


@pytest.mark.slow
def test_random_rolls_replace_pods_and_evict_storages() -> None:
    """Otherwise the properties above would hold for a planner that does nothing."""
    replaced = evicted = 0
    for seed in range(20):
        dice = random.Random(seed)
        world = running_cluster(dice)
        for _ in range(_EVENTS):
            if dice.random() < 0.06:
                specify(world, dice)
            dice.choice(EVENTS)(world, dice)
        replaced += len(world.replaced)
        evicted += len(world.evicted)
    assert replaced > 20
    assert evicted > 5
