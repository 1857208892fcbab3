"""Partitions that hang by a thread: no plan changes their replicas before that is safe.

Their logs have transactions; they lack replicas, storages are away or have fallen out of the
session, copies lag behind. What a plan may do then is worked out here anew, from the world itself.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operator.operator_world import Log, World, cluster_resource, pool_resource
from tests.operator.test_operator_plan_properties import (
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
from waltz_operator.core.steps import Plan

_ROUNDS = 4


def worn_world(dice: random.Random) -> World:
    """Return a cluster with logs that have transactions, most of which lack replicas."""
    pools = "abcdefg"[: dice.choice((3, 5, 5, 7))]
    resource = cluster_resource(partitions=dice.randrange(1, 5), pools=list(pools))
    world = World(resource, [pool_resource(name, storages=dice.randrange(1, 3)) for name in pools])
    reach(world)
    assert isinstance(world.log, Log)
    for partition in range(world.log.num_partitions):
        for _ in range(dice.randrange(len(pools))):
            take_one_away(world, partition, dice)
            if dice.random() < 0.8:
                world.settle()
    return world


def take_one_away(world: World, partition: int, dice: random.Random) -> None:
    assert isinstance(world.log, Log)
    groups, ports, partitions = raw_maps(world.log)
    holders = sorted(storage for storage, held in partitions.items() if partition in held)
    if len(holders) > 1:
        storage = dice.choice(holders)
        partitions[storage] = tuple(p for p in partitions[storage] if p != partition)
        set_maps(world.log, groups, ports, partitions)


def wear(world: World, dice: random.Random) -> None:
    """Have storages be away, fall out of sessions, lag behind; nothing settles after that."""
    for storage, held in sorted(world.disks.items()):
        if dice.random() < 0.2:
            world.down.add(storage)
        for partition, replica in sorted(held.items()):
            match dice.randrange(8):
                case 0:
                    fallen_out = max(replica.session_id - 1, -1)
                    held[partition] = replace(replica, session_id=fallen_out)
                case 1:
                    further = (replica.max_transaction_id or 0) + 2 * LAG_ALLOWED
                    held[partition] = replace(replica, max_transaction_id=further)
                case 2:
                    held[partition] = replace(replica, readable=False, writable=False)


def healthy(world: World, partition: int) -> set[str]:
    """Return the replicas that take part in the session, and are level with the furthest."""
    assert isinstance(world.log, Log)
    metadata = world.log.metadata[partition]
    assigned = world.log.maps.assignments.storages_of(partition)
    held = {s: world.disks[s][partition] for s in assigned if partition in world.disks.get(s, {})}
    ends = {storage: replica.max_transaction_id or 0 for storage, replica in held.items()}
    reached = {storage: ends[storage] for storage in ends if world.reached(storage)}
    furthest = max(reached.values(), default=0)
    return {
        storage
        for storage, end in reached.items()
        if held[storage].available
        and (state := metadata.replicas.get(storage)) is not None
        and state.closing_mark == UNRESOLVED
        and state.session_id == held[storage].session_id == metadata.session_id
        and end >= furthest - LAG_ALLOWED
    }


def check_changes(world: World, decided: Plan) -> int:
    """Check every change of replicas in a plan; return how many add one that has nothing yet."""
    assert isinstance(world.log, Log)
    added = 0
    for change in (c for s in decided.steps if isinstance(s, ChangeAssignment) for c in s.changes):
        before, after, last = (
            change.expected,
            change.wanted,
            frozenset(world.log.metadata[change.partition].replicas),
        )
        assert before < after, "nothing is taken away"
        if after - before <= last:
            continue
        assert len(after - before) == 1, "one at a time"
        staying = healthy(world, change.partition) & before
        assert staying == before, "all that stay are well"
        assert before == last, "the last change is through"
        assert len(staying) >= max(quorum(len(after)), quorum(len(last)))
        added += 1
    return added


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
def test_a_partition_that_hangs_by_a_thread_is_not_pulled_at(seed: int) -> None:
    dice = random.Random(seed)
    world = worn_world(dice)
    for _ in range(_ROUNDS):
        wear(world, dice)
        decided = plan(world.desired(), world.observed())
        check_plan(decided)
        check_changes(world, decided)
        follow(world, decided, dice)
        if dice.random() < 0.5:
            world.settle()


def test_worn_worlds_do_have_partitions_that_get_a_replica() -> None:
    """Otherwise the test above would hold of a planner that does nothing."""
    added = 0
    for seed in range(25):
        world = worn_world(random.Random(seed))
        for _ in range(_ROUNDS):
            world.settle()
            decided = plan(world.desired(), world.observed())
            added += check_changes(world, decided)
            follow(world, decided, None)
    assert added > 20


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_a_worn_cluster_becomes_whole_once_everybody_is_back(seed: int) -> None:
    world = worn_world(random.Random(seed))
    if all(opens for _, opens in world.states_of_quorum()):
        reach(world)
        check_reached(world)
