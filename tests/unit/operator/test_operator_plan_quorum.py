"""Test that plans change the replicas of a partition only if its quorum stays safe.

The partitions have transactions. They lack replicas, their storages are unreachable or have left
the session, or their replicas lag. The tests decide from the simulated world what a plan may do.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.operator_world import World, Znodes, cluster_resource, pool_resource
from tests.unit.operator.test_operator_plan_properties import (
    check_plan,
    check_reached,
    follow,
    raw_maps,
    reach,
    set_maps,
)
from waltz.admin.core.replicas import LAG_ALLOWED, quorum
from waltz.admin.core.steps import ChangeAssignment
from waltz.metadata.core.formats import UNRESOLVED
from waltz_operator.core.planning import plan
from waltz_operator.core.steps import ClusterPlan

_ROUNDS = 4


def damaged_world(dice: random.Random) -> World:
    """Return a cluster whose partitions have transactions, and most of them too few replicas."""
    pools = "abcdefg"[: dice.choice((3, 5, 5, 7))]
    resource = cluster_resource(partitions=dice.randrange(1, 5), pools=list(pools))
    world = World(resource, [pool_resource(name, storages=dice.randrange(1, 3)) for name in pools])
    reach(world)
    assert isinstance(world.znodes, Znodes)
    for partition in range(world.znodes.num_partitions):
        for _ in range(dice.randrange(len(pools))):
            unassign_replica(world, partition, dice)
            if dice.random() < 0.8:
                world.settle()
    return world


def unassign_replica(world: World, partition: int, dice: random.Random) -> None:
    assert isinstance(world.znodes, Znodes)
    groups, ports, partitions = raw_maps(world.znodes)
    holders = sorted(storage for storage, held in partitions.items() if partition in held)
    if len(holders) > 1:
        storage = dice.choice(holders)
        partitions[storage] = tuple(p for p in partitions[storage] if p != partition)
        set_maps(world.znodes, groups, ports, partitions)


def damage(world: World, dice: random.Random) -> None:
    """Make storages unreachable; make replicas leave the session, lag behind or switched off."""
    for storage, held in sorted(world.disks.items()):
        if dice.random() < 0.2:
            world.down.add(storage)
        for partition, replica in sorted(held.items()):
            match dice.randrange(8):
                case 0:
                    earlier = max(replica.session_id - 1, -1)
                    held[partition] = replace(replica, session_id=earlier)
                case 1:
                    ahead = (replica.max_transaction_id or 0) + 2 * LAG_ALLOWED
                    held[partition] = replace(replica, max_transaction_id=ahead)
                case 2:
                    held[partition] = replace(replica, readable=False, writable=False)


def healthy(world: World, partition: int) -> set[str]:
    """Return the replicas that are in the session and not behind the most advanced one."""
    assert isinstance(world.znodes, Znodes)
    metadata = world.znodes.metadata[partition]
    assigned = world.znodes.maps.assignments.storages_of(partition)
    held = {s: world.disks[s][partition] for s in assigned if partition in world.disks.get(s, {})}
    ends = {storage: replica.max_transaction_id or 0 for storage, replica in held.items()}
    reached = {
        storage: ends[storage]
        for storage in ends
        if world.is_reachable(storage)
        and (state := metadata.replicas.get(storage)) is not None
        and state.closing_mark == UNRESOLVED
        and state.session_id == held[storage].session_id == metadata.session_id
    }
    furthest = max(reached.values(), default=0)
    return {
        storage for storage, end in reached.items() if held[storage].available and end >= furthest
    }


def check_changes(world: World, decided: ClusterPlan) -> int:
    """Check every change of assignments in a plan; return how many add an empty replica."""
    assert isinstance(world.znodes, Znodes)
    added = 0
    for change in (c for s in decided.steps if isinstance(s, ChangeAssignment) for c in s.changes):
        before, after, last = (
            change.expected,
            change.wanted,
            frozenset(world.znodes.metadata[change.partition].replicas),
        )
        assert before < after, "no replica is removed"
        if after - before <= last:
            continue
        assert len(after - before) == 1, "one replica at a time"
        staying = healthy(world, change.partition) & before
        assert staying == before, "all replicas that stay are healthy"
        assert before == last, "the previous change is complete"
        (new,) = after - before
        assert change.partition in world.disks[new], "a replica exists before it is assigned"
        assert len(staying) >= max(quorum(len(after)), quorum(len(last)))
        added += 1
    return added


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_plan_adds_an_empty_replica_only_if_all_others_are_healthy(seed: int) -> None:
    dice = random.Random(seed)
    world = damaged_world(dice)
    for _ in range(_ROUNDS):
        damage(world, dice)
        decided = plan(world.desired(), world.observed())
        check_plan(decided)
        check_changes(world, decided)
        follow(world, decided, dice)
        if dice.random() < 0.5:
            world.settle()


def test_plan_gives_each_damaged_partition_replicas_that_exist() -> None:
    """Otherwise the test above would pass with a planner that does nothing."""
    added = 0
    for seed in range(25):
        world = damaged_world(random.Random(seed))
        for _ in range(_ROUNDS):
            world.settle()
            decided = plan(world.desired(), world.observed())
            added += check_changes(world, decided)
            follow(world, decided, None)
    assert added > 20


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_damaged_cluster_reaches_the_desired_state_once_all_storages_are_back(seed: int) -> None:
    world = damaged_world(random.Random(seed))
    if all(opens for _, opens in world.quorum_states()):
        reach(world)
        check_reached(world)
