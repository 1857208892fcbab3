"""Changes of a cluster's shape end, harm no copy, and can be changed back half-way.

Random histories add and remove pools, scale them, and change the spec again before the operator has
finished. The operator is killed between steps, acts on observations that are outdated, and storages
fail. `ShapeWorld` checks each step.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.operator_world import Znodes, cluster_resource, pool_resource
from tests.support.shape_world import ShapeWorld, StepRefused
from tests.unit.operator.test_operator_plan_properties import check_plan
from waltz.admin.core.steps import SwitchOff
from waltz_operator.core.planning import plan
from waltz_operator.core.shape_change import ShapeChangeKind
from waltz_operator.core.steps import ApplyObject, ClaimPool, ClusterPlan, ReleasePool

_EVENTS = 40
_NAMES = "abcdef"


def running_cluster(dice: random.Random) -> ShapeWorld:
    """Return a cluster of 1, 3 or 5 copies that has transactions, and pools that it may add."""
    pools = list(_NAMES[: dice.choice((1, 3, 3, 5))])
    resource = cluster_resource(
        partitions=dice.randrange(1, 5), pools=pools, tls={"mode": "None"}, networkPolicies=False
    )
    world = ShapeWorld(
        resource, [pool_resource(name, storages=dice.randrange(1, 4)) for name in _NAMES]
    )
    finish(world)
    return world


def specify(world: ShapeWorld, dice: random.Random) -> None:
    """Change the pools of the cluster, or the storages of a pool, as the API server allows it."""
    assert world.cluster is not None
    pools: list[str] = world.cluster["spec"]["pools"]
    others = [name for name in _NAMES if name not in pools]
    match dice.randrange(4):
        case 0 if len(pools) > 1 and others:
            pools.append(dice.choice(others))
        case 0 if len(pools) == 1:
            pools += others[:2]
        case 1 if len(pools) > 3:
            pools.remove(dice.choice(pools))
        case 2 if len(pools) > 2 and others:
            pools[dice.randrange(len(pools))] = dice.choice(others)
        case _ if len(pools) > 1:
            spec = world.pools[dice.choice(_NAMES)]["spec"]
            spec["storages"] = dice.randrange(1, 4)
        case _:
            return


def follow(world: ShapeWorld, decided: ClusterPlan, dice: random.Random | None) -> bool:
    """Perform a plan's steps, maybe only the first ones; return whether none was refused."""
    for step in decided.steps:
        if dice is not None and dice.random() < 0.15:
            return True
        had_quorum = {partition for partition, opens in world.quorum_states() if opens}
        try:
            world.perform(step)
        except StepRefused:
            return False
        lost = had_quorum - {partition for partition, opens in world.quorum_states() if opens}
        assert not lost, f"partitions {lost} have lost their quorum by: {step}"
    return True


def outdated(decided: ClusterPlan) -> ClusterPlan:
    """Return the steps of a plan that a deposed operator may still perform.

    Writes to Kubernetes are left out: this world has no versions of objects. So is the step that
    switches replicas off, which an operator performs only while it has the Lease, and directly
    after the replicas were created.
    """
    left_out = (ApplyObject, ClaimPool, ReleasePool, SwitchOff)
    return ClusterPlan(tuple(s for s in decided.steps if not isinstance(s, left_out)))


def finish(world: ShapeWorld) -> ClusterPlan:
    """Perform plans until the spec is reached; fail if that takes more rounds than allowed."""
    assert world.cluster is not None
    most_moves = world.cluster["spec"]["partitions"] * len(_NAMES) * 2
    decided = ClusterPlan()
    for _ in range(60 + 8 * most_moves):
        world.settle()
        decided = plan(world.desired(), world.observed())
        check_plan(decided)
        if decided.done:
            return decided
        assert not decided.problems, decided
        assert follow(world, decided, None), decided
    raise AssertionError(f"not done: {decided}")


def check_shape(world: ShapeWorld) -> None:
    """Check that every pool of the spec has one copy of each partition, evenly spread."""
    assert isinstance(world.znodes, Znodes)
    assert world.cluster is not None
    pools = world.cluster["spec"]["pools"]
    loads: dict[str, list[int]] = {name: [] for name in pools}
    for storage, held in world.znodes.maps.assignments.partitions.items():
        name, _, ordinal = storage.partition(".")[0].rpartition("-storage-")
        assert name in pools, f"{storage} is registered and in no pool of the spec"
        assert int(ordinal) < world.pools[name]["spec"]["storages"]
        assert sorted(world.disks[storage]) == sorted(held)
        loads[name].append(len(held))
    for name, each in loads.items():
        assert sum(each) == world.znodes.num_partitions
        if len(pools) > 1:
            assert max(each) - min(each) <= 1, f"pool {name} is not spread evenly"
    for name, pool in world.pools.items():
        assert bool(pool["metadata"].get("labels")) == (name in pools)
    assert not world.unhealthy()


def check_random_changes(seed: int) -> None:
    """Check every plan of a random history, and that the last spec is reached."""
    dice = random.Random(seed)
    world = running_cluster(dice)
    kept = ClusterPlan()
    for _ in range(_EVENTS):
        if dice.random() < 0.15:
            specify(world, dice)
        if dice.random() < 0.7:
            world.settle()
        if dice.random() < 0.05:
            world.down.add(dice.choice(sorted(world.disks)))
        decided = plan(world.desired(), world.observed())
        check_plan(decided)
        follow(world, decided, dice)
        if dice.random() < 0.1:
            world.acts_late = True
            follow(world, outdated(kept), dice)
            world.acts_late = False
        if dice.random() < 0.3:
            kept = decided
    finish(world)
    check_shape(world)


@settings(max_examples=12)
@given(st.integers(0, 2**32))
def test_random_changes_of_shape_end_without_harm_to_copies(seed: int) -> None:
    check_random_changes(seed)


@pytest.mark.slow
@settings(max_examples=48)
@given(st.integers(0, 2**32))
def test_more_random_changes_of_shape_end_without_harm_to_copies(seed: int) -> None:
    check_random_changes(seed)


@pytest.mark.slow
def test_random_changes_of_shape_give_copies_up_and_copy() -> None:
    """Otherwise the property above would hold for a planner that does nothing."""
    given_up = copied = 0
    kinds = set()
    for seed in range(12):
        dice = random.Random(seed)
        world = running_cluster(dice)
        for _ in range(_EVENTS):
            if dice.random() < 0.15:
                specify(world, dice)
            world.settle()
            decided = plan(world.desired(), world.observed())
            kinds |= {decided.change.kind} if decided.change is not None else set()
            follow(world, decided, dice)
        given_up += world.given_up
        copied += world.copied
    assert given_up > 10
    assert copied > 10
    # Rebalances are those of test_operator_rebalance_properties, foreign groups those of
    # test_operator_adoption_properties.
    elsewhere = {ShapeChangeKind.REBALANCING, ShapeChangeKind.RETIRING_FOREIGN_GROUP}
    assert kinds == {*ShapeChangeKind} - elsewhere


def test_replaced_pool_leaves_after_the_new_one_has_its_copy() -> None:
    resource = cluster_resource(partitions=3, pools=list("abcde"), tls={"mode": "None"})
    world = ShapeWorld(resource, [pool_resource(name) for name in _NAMES])
    finish(world)
    assert world.cluster is not None
    world.cluster["spec"]["pools"] = list("abcdf")
    decided = ClusterPlan((), ("not planned yet",))
    for _ in range(100):
        if decided.done:
            break
        decided = plan(world.desired(), world.observed())
        follow(world, decided, None)
        assert all(len(world.view(p).replicas) >= 5 for p in range(3))
        world.settle()
    assert decided.done
    check_shape(world)


@settings(max_examples=6)
@given(st.integers(0, 2**32))
def test_copy_that_differs_stops_a_removal_and_stays(seed: int) -> None:
    dice = random.Random(seed)
    resource = cluster_resource(partitions=3, pools=list("abcd")[:3], tls={"mode": "None"})
    world = ShapeWorld(resource, [pool_resource(name) for name in "abcd"])
    finish(world)
    assert world.cluster is not None
    world.cluster["spec"]["pools"] = list("abcd")
    finish(world)
    wrong = dice.choice("abc")
    partition = dice.randrange(3)
    world.corrupt.add((f"{wrong}-storage-0.{wrong}-storage.logs.svc:6000", partition))
    world.cluster["spec"]["pools"] = list("abc")
    for _ in range(60):
        world.settle()
        follow(world, plan(world.desired(), world.observed()), dice)
    assert len(world.view(partition).replicas) == 4
    assert isinstance(world.znodes, Znodes)
    assert len(world.znodes.maps.assignments.partitions) == 4
