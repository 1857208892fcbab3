"""A rebalance by bytes harms no copy, ends, and leaves no volume fuller than the fullest before.

Random histories request rebalances and withdraw them half-way, while partitions grow, pools are
scaled, storages fail, and operators are killed or act on outdated observations. The world of the
changes of shape checks each step.
"""

from __future__ import annotations

import random
from copy import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.operator_world import Znodes, cluster_resource, pool_resource
from tests.support.rebalance_world import RebalanceWorld
from tests.unit.operator.test_operator_plan_properties import check_plan
from tests.unit.operator.test_operator_shape_properties import finish, follow, outdated
from waltz_operator.core.desired import addresses_of
from waltz_operator.core.names import REBALANCE_ANNOTATION
from waltz_operator.core.planning import plan
from waltz_operator.core.preview import preview
from waltz_operator.core.rebalance import open_request
from waltz_operator.core.shape_change import ShapeChangeKind
from waltz_operator.core.steps import ClusterPlan

_EVENTS = 30
_POOLS = "abc"


def running_world(dice: random.Random) -> RebalanceWorld:
    """Return a cluster of three copies whose partitions and volumes have other sizes."""
    resource = cluster_resource(
        partitions=dice.randrange(3, 9), tls={"mode": "None"}, networkPolicies=False
    )
    pools = [pool_resource(name, storages=dice.choice((1, 2, 2, 3))) for name in _POOLS]
    world = RebalanceWorld(resource, pools)
    finish(world)
    for pool in _POOLS:
        for ordinal in range(3):
            world.enlarge(pool, ordinal, dice.choice(("1Gi", "1Gi", "2Gi", "3Gi")))
    grow(world, dice)
    return world


def grow(world: RebalanceWorld, dice: random.Random) -> None:
    """Append to some partitions."""
    assert isinstance(world.znodes, Znodes)
    for partition in range(world.znodes.num_partitions):
        world.sizes[partition] += dice.choice((0, 1, 10, 50, 400)) << 20


def disturb(world: RebalanceWorld, dice: random.Random) -> None:
    """Change requests, sizes, the number of storages, or stop a storage."""
    pool = dice.choice(_POOLS)
    if dice.random() < 0.12:
        world.request(pool, dice.choice((None, "first", "second", "third")))
    if dice.random() < 0.2:
        grow(world, dice)
    if dice.random() < 0.04:
        world.pools[pool]["spec"]["storages"] = dice.randrange(1, 4)
        world.versions[pool] += 1
    if dice.random() < 0.04:
        world.down.add(dice.choice(sorted(world.disks)))


def check_random_requests(seed: int) -> None:
    """Check every plan of a random history, and that each pool is at rest in the end."""
    dice = random.Random(seed)
    world = running_world(dice)
    kept, versions = ClusterPlan(), copy(world.versions)
    for _ in range(_EVENTS):
        disturb(world, dice)
        if dice.random() < 0.7:
            world.settle()
        before = copy(world.versions)
        decided = plan(world.desired(), world.observed())
        check_plan(decided)
        follow(world, decided, dice)
        if dice.random() < 0.1:
            world.acts_late, world.planned_versions = True, versions
            follow(world, outdated(kept), dice)
            world.acts_late = False
        if dice.random() < 0.3:
            kept, versions = decided, before
    finish(world)
    check_at_rest(world)


def check_at_rest(world: RebalanceWorld) -> None:
    """Check that every pool has each partition once, and that no request is open."""
    assert isinstance(world.znodes, Znodes)
    assert not world.unhealthy()
    assigned = world.znodes.maps.assignments.partitions
    for pool in world.desired().pools:
        name, held = pool.metadata.name, [assigned[each] for each in addresses_of(pool)]
        listed = [partition for each in held for partition in each]
        assert sorted(listed) == list(range(world.znodes.num_partitions))
        for storage in addresses_of(pool):
            assert sorted(world.disks[storage]) == sorted(assigned[storage])
        record = world.record(name)
        assert (record.request, record.moves) == ("", ())
        assert open_request(pool, record) == ""
        if record.storages != pool.spec.storages:
            loads = [len(each) for each in held]
            assert max(loads) - min(loads) <= 1, f"pool {name} is spread by count"


@settings(max_examples=3)
@given(st.integers(0, 2**32))
def test_random_requests_to_rebalance_harm_no_copy_and_end(seed: int) -> None:
    check_random_requests(seed)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_more_random_requests_to_rebalance_harm_no_copy_and_end(seed: int) -> None:
    check_random_requests(seed)


def check_one_request(seed: int) -> int:
    """Check the moves of one request, and that the preview has named them; return their number."""
    dice = random.Random(seed)
    world = running_world(dice)
    before = {pool: world.shares(pool) for pool in _POOLS}
    for pool in _POOLS:
        world.request(pool, "now")
    shown = preview(world.desired(), world.observed())
    given_up = world.given_up
    finish(world)
    check_at_rest(world)
    assert isinstance(world.znodes, Znodes)
    moves = world.given_up - given_up
    assert moves == sum(len(step.record.moves) for step in world.begins), "no other move follows"
    assert moves == len(shown.losses) == len(shown.gains) <= 3 * world.znodes.num_partitions
    assigned = world.znodes.maps.assignments.partitions
    assert all(gain.partition in assigned[gain.storage] for gain in shown.gains)
    for pool in _POOLS:
        assert max(world.shares(pool)) <= max(before[pool])
        assert min(world.shares(pool)) >= min(before[pool])
    return moves


@settings(max_examples=3)
@given(st.integers(0, 2**32))
def test_rebalance_makes_no_spread_worse_and_its_preview_names_its_moves(seed: int) -> None:
    check_one_request(seed)


@pytest.mark.slow
def test_rebalances_move_partitions() -> None:
    """Otherwise the properties above would hold for a planner that moves nothing."""
    assert sum(check_one_request(seed) for seed in range(20)) > 15


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_withdrawn_request_completes_the_move_under_way_only(seed: int) -> None:
    dice = random.Random(seed)
    world = running_world(dice)
    pool = dice.choice(_POOLS)
    world.request(pool, "now")
    for _ in range(dice.randrange(8)):
        world.settle()
        follow(world, plan(world.desired(), world.observed()), dice)
    world.settle()
    decided = plan(world.desired(), world.observed())
    under_way = decided.change is not None and decided.change.kind is ShapeChangeKind.REBALANCING
    given_up = world.given_up
    world.annotate(pool, REBALANCE_ANNOTATION, None)
    finish(world)
    check_at_rest(world)
    assert world.given_up - given_up <= under_way
