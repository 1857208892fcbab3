"""Volumes are replaced one at a time, only while no other replica is away, and the work ends.

Random histories interleave the operator with the controllers, kubelets and servers, with losses of
volumes, restarts of pods and requests. The operator may be killed after any of its steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.healing_world import HealingWorld
from tests.support.operator_world import Znodes, cluster_resource, pool_resource
from tests.unit.operator.test_operator_plan_properties import check_plan, follow, reach
from waltz.admin.core.replicas import LAG_ALLOWED
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.planning import plan
from waltz_operator.core.steps import ClusterPlan, DeleteObject, RecordReplacement, ReplacePod
from waltz_operator.core.volume_replacement import Phase

Event = Callable[[HealingWorld, random.Random], None]

_EVENTS = 70
_MAX_ROUNDS = 300
"""Enough for two losses with a copy of every replica."""


def running_cluster(dice: random.Random) -> HealingWorld:
    pools = "abcde"[: dice.choice((3, 3, 5))]
    volumes = {"data": {"size": "1Gi"}, "onLoss": "Replace", "lossDelaySeconds": 0}
    resource = cluster_resource(partitions=dice.randrange(1, 4), pools=list(pools))
    storages = dice.randrange(1, 3)
    world = HealingWorld(
        resource, [pool_resource(name, storages=storages, volumes=volumes) for name in pools]
    )
    reach(world)
    world.slow_shutdowns = dice.random() < 0.5
    if dice.random() < 0.5:
        world.lengthen_logs(4 * LAG_ALLOWED)
    return world


def away(world: HealingWorld, but: str) -> dict[str, list[int]]:
    """Return the replicas on other storages than that of the pod ``but`` that take no part."""
    return {
        pod: partitions
        for pod in world.storage_pods()
        if pod != but and (partitions := world.absent_partitions(world.address(pod)))
    }


def is_empty(world: HealingWorld, pod: str) -> bool:
    """Whether a storage holds nothing, or is away with a claim that is lost."""
    address = world.address(pod)
    claim = world.objects.get(ObjectKey("PersistentVolumeClaim", f"data-{pod}"))
    is_lost = claim is not None and "deletionTimestamp" in claim["metadata"]
    return not world.disks[address] or (address in world.down and is_lost)


def lose(world: HealingWorld, dice: random.Random) -> None:
    """Delete a claim; its pod goes on until it is stopped."""
    world.delete_claim(dice.choice(sorted(world.storage_pods())))


def restart(world: HealingWorld, dice: random.Random) -> None:
    """End a pod; if its claim was deleted, its volume is lost, unless that costs the quorum."""
    pod = dice.choice(sorted(world.storage_pods()))
    if ObjectKey("Pod", pod) in world.objects and not away(world, pod):
        world.stop_pod(pod)


def request(world: HealingWorld, dice: random.Random) -> None:
    world.request(dice.choice(sorted(world.storage_pods())))


def check_healing(world: HealingWorld, decided: ClusterPlan) -> None:
    """Check that a plan ends a storage or deletes its claim only while all others are well."""
    begun = [
        each
        for each in decided.steps
        if isinstance(each, RecordReplacement)
        and each.replacement is not None
        and each.replacement.phase is Phase.EMPTY
    ]
    running = [pool for pool in world.pools if world.replacement(pool) is not None]
    assert len(running) <= 1, "one volume at a time"
    assert not (begun and running), "the next replacement waits"
    for step in decided.steps:
        match step:
            case ReplacePod(pod, _):
                pass
            case DeleteObject(ObjectKey("PersistentVolumeClaim", name), _):
                pod = name.removeprefix("data-")
            case _:
                continue
        replacement = world.replacement(running[0])
        assert replacement is not None
        assert replacement.pod == pod
        absent = away(world, pod)
        if world.absent_partitions(world.address(pod)):
            # The storage has lost its replicas; others may have lost all of theirs, too.
            absent = {other: found for other, found in absent.items() if not is_empty(world, other)}
        assert not absent, f"the volume of {pod} is deleted while replicas are away: {absent}"
        budget = world.objects[ObjectKey("PodDisruptionBudget", "log-storage")]
        assert budget["spec"]["maxUnavailable"] == 0


def reconcile(world: HealingWorld, dice: random.Random) -> None:
    decided = plan(world.desired(), world.observed())
    check_plan(decided)
    check_healing(world, decided)
    follow(world, decided, dice)


EVENTS: tuple[Event, ...] = (
    lambda world, dice: world.process_sets(),
    lambda world, dice: world.create_pods(),
    lambda world, dice: world.start_pods(),
    lambda world, dice: world.end_pods(),
    lambda world, dice: world.run_servers(),
    lambda world, dice: world.run_servers(),
    reconcile,
    reconcile,
    reconcile,
)
DAMAGE: tuple[Event, ...] = (lose, restart, request)


def finish(world: HealingWorld) -> None:
    """Let everything work until the plan is empty; fail if a replacement does not end."""
    decided = ClusterPlan()
    for _ in range(_MAX_ROUNDS):
        world.settle()
        decided = plan(world.desired(), world.observed())
        if decided.done:
            return
        check_healing(world, decided)
        follow(world, decided, None)
    raise AssertionError(f"not healed after {_MAX_ROUNDS} rounds: {decided}")


def check_whole(world: HealingWorld) -> None:
    """Check that every storage has all its replicas, and that no record is left."""
    assert isinstance(world.znodes, Znodes)
    assert away(world, "") == {}
    ends = {
        held[partition].max_transaction_id for held in world.disks.values() for partition in held
    }
    if world.long_logs:
        assert min(end or 0 for end in ends) >= 3 * LAG_ALLOWED
    for pool in world.pools.values():
        assert pool["metadata"].get("annotations", {}) == {}


def run(seed: int) -> HealingWorld:
    dice = random.Random(seed)
    world = running_cluster(dice)
    for _ in range(_EVENTS):
        if dice.random() < 0.06:
            dice.choice(DAMAGE)(world, dice)
        dice.choice(EVENTS)(world, dice)
    finish(world)
    check_whole(world)
    return world


@settings(max_examples=6)
@given(st.integers(0, 2**32))
def test_lost_volumes_are_replaced_one_at_a_time_while_nothing_else_is_away(seed: int) -> None:
    run(seed)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_lost_volumes_of_more_histories_are_replaced_one_at_a_time(seed: int) -> None:
    run(seed)


@pytest.mark.slow
def test_random_histories_lose_and_replace_volumes() -> None:
    """Otherwise the property above would hold for a planner that does nothing."""
    worlds = [run(seed) for seed in range(12)]
    assert sum(len(world.emptied) for world in worlds) > 12
    assert sum(len(world.replaced) for world in worlds) > 6
    assert any(world.long_logs and world.emptied for world in worlds)
