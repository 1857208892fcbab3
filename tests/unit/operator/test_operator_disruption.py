"""Which storages may be away: never so many that a partition loses its quorum or a transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.operator_world import World, Znodes, cluster_resource, pool_resource
from waltz.admin.core.replicas import (
    HeldPartition,
    PartitionView,
    ReplicaObservation,
    StorageReplicas,
)
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.metadata.core.storage_maps import StorageMaps
from waltz_operator.core.disruption import (
    count_storages_that_may_be_away,
    may_be_away,
    may_be_repaired,
)
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ClusterPresent
from waltz_operator.core.planning import plan
from waltz_operator.core.steps import ApplyObject

_STORAGES = tuple("abcde")
_SESSION = 7
_COMMITTED = 9
"""The last committed id of every partition."""
_DAMAGES = ("none", "no answer", "lost", "off", "behind", "no session", "not reached", "no server")
_BUDGET = ObjectKey("PodDisruptionBudget", "log-storage")


@st.composite
def healthy_partitions(draw: st.DrawFn) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Draw the assigned replicas of each partition, and the replicas of its last session.

    The assigned replicas are a quorum of the last session, as those of an open partition are.
    """
    partitions = []
    for _ in range(draw(st.integers(1, 3))):
        assigned = draw(st.frozensets(st.sampled_from(_STORAGES), min_size=1))
        left = draw(st.frozensets(st.sampled_from(_STORAGES), max_size=len(assigned) - 1))
        partitions.append((assigned, assigned | left))
    return partitions


def healthy_replica(partition: int) -> HeldPartition:
    return HeldPartition(
        partition,
        _SESSION,
        low_water_mark=5,
        local_low_water_mark=5,
        max_transaction_id=_COMMITTED,
        size_bytes=0,
        readable=True,
        writable=True,
    )


def cluster_of(
    partitions: list[tuple[frozenset[str], frozenset[str]]], damage: str = "none"
) -> ClusterPresent:
    """Return a cluster whose replicas are healthy, apart from a damage to one replica."""
    first = min(partitions[0][0])
    held: dict[str, dict[int, HeldPartition]] = {storage: {} for storage in _STORAGES}
    views = {}
    for partition, (assigned, last) in enumerate(partitions):
        states = {
            storage: ReplicaState(_SESSION, UNRESOLVED)
            if storage in assigned
            else ReplicaState(_SESSION - 1, 5)
            for storage in last
        }
        for storage in assigned:
            held[storage][partition] = healthy_replica(partition)
        metadata = PartitionMetadata(1, _SESSION, states)
        hit = damage if partition == 0 else "none"
        if hit == "no session":
            states[first] = ReplicaState(_SESSION - 1, 5)
        views[partition] = PartitionView(
            partition,
            assigned,
            metadata,
            "no server has it open" if hit == "no server" else None,
            frozenset({first} if hit == "not reached" else ()),
        )
    match damage:
        case "lost":
            del held[first][0]
        case "off":
            held[first][0] = replace(healthy_replica(0), writable=False)
        case "behind":
            held[first][0] = replace(healthy_replica(0), max_transaction_id=_COMMITTED - 1)
    storages = {storage: StorageReplicas(found) for storage, found in held.items()}
    if damage == "no answer":
        storages[first] = StorageReplicas(problem="connection refused")
    observed = ReplicaObservation(
        StorageMaps.empty(),
        len(views),
        views,
        storages,
        commit_bounds=dict.fromkeys(views, _COMMITTED),
    )
    return ClusterPresent("log", len(views), uuid.uuid4(), StorageMaps.empty(), observed)


def keeps_majorities(
    partitions: list[tuple[frozenset[str], frozenset[str]]], away: frozenset[str]
) -> bool:
    return all(
        2 * len(assigned - away) > len(assigned) and 2 * len(assigned - away) > len(last)
        for assigned, last in partitions
    )


@settings(max_examples=40)
@given(healthy_partitions())
def test_majorities_survive_as_many_absent_storages_as_are_allowed_and_no_more(
    partitions: list[tuple[frozenset[str], frozenset[str]]],
) -> None:
    present = cluster_of(partitions)
    count = count_storages_that_may_be_away(present)

    def has_majorities(away: frozenset[str]) -> bool:
        return keeps_majorities(partitions, away)

    for size in range(len(_STORAGES) + 1):
        sets = [frozenset(each) for each in combinations(_STORAGES, size)]
        assert [may_be_away(present, each) for each in sets] == [has_majorities(e) for e in sets]
        if has_majorities(frozenset()):
            assert all(map(has_majorities, sets)) is (size <= count)


@settings(max_examples=40)
@given(healthy_partitions(), st.sampled_from(_DAMAGES[1:]))
def test_no_storage_may_be_away_while_any_replica_is_unhealthy(
    partitions: list[tuple[frozenset[str], frozenset[str]]], damage: str
) -> None:
    present = cluster_of(partitions, damage)
    assert count_storages_that_may_be_away(present) == 0
    assert not may_be_away(present, frozenset())
    assert not any(may_be_away(present, frozenset({each})) for each in _STORAGES)


@settings(max_examples=40)
@given(healthy_partitions(), st.sampled_from(_DAMAGES[1:]))
def test_unhealthy_storage_may_be_repaired_only_if_the_others_are_healthy_and_have_quorums(
    partitions: list[tuple[frozenset[str], frozenset[str]]], damage: str
) -> None:
    present = cluster_of(partitions, damage)
    damaged = frozenset({min(partitions[0][0])})
    expected = damage != "no server" and keeps_majorities(partitions, damaged)
    assert may_be_repaired(present, damaged) is expected
    for other in {*_STORAGES} - damaged:
        assert not may_be_repaired(present, frozenset({other}))


def test_one_of_three_and_two_of_five_storages_may_be_away() -> None:
    three, five = frozenset("abc"), frozenset("abcde")
    assert count_storages_that_may_be_away(cluster_of([(three, three)])) == 1
    assert count_storages_that_may_be_away(cluster_of([(five, five)])) == 2
    assert count_storages_that_may_be_away(cluster_of([(five, five), (three, three)])) == 1
    assert count_storages_that_may_be_away(cluster_of([(three, five)])) == 0, (
        "a replica has just left"
    )


def started(pools: str) -> World:
    world = World(cluster_resource(pools=list(pools)), [pool_resource(name) for name in pools])
    reconcile(world)
    return world


def reconcile(world: World) -> None:
    for _ in range(20):
        world.settle()
        decided = plan(world.desired(), world.observed())
        if decided.done:
            return
        for step in decided.steps:
            world.perform(step)
    raise AssertionError("not done")


def next_budget(world: World) -> int:
    """Return the budget after the steps of the next plan."""
    for step in plan(world.desired(), world.observed()).steps:
        world.perform(step)
    allowed = world.objects[_BUDGET]["spec"]["maxUnavailable"]
    assert isinstance(allowed, int)
    return allowed


def test_budget_is_zero_from_the_start_until_every_replica_is_healthy() -> None:
    world = World(cluster_resource(pools=list("abc")), [pool_resource(name) for name in "abc"])
    budgets = []
    for _ in range(20):
        world.settle()
        decided = plan(world.desired(), world.observed())
        for step in decided.steps:
            world.perform(step)
        if _BUDGET in world.objects:
            budgets.append((decided.done, world.objects[_BUDGET]["spec"]["maxUnavailable"]))
    assert budgets[0] == (False, 0)
    assert budgets[-1] == (True, 1)
    assert all(allowed == 1 for done, allowed in budgets if done)


def stop_storage(world: World) -> None:
    world.down.add(min(world.disks))


def empty_storage(world: World) -> None:
    world.disks[min(world.disks)] = {}


def stop_zookeeper(world: World) -> None:
    world.zookeeper_up = False


def replace_cluster(world: World) -> None:
    assert isinstance(world.znodes, Znodes)
    world.znodes.key = uuid.uuid4()


@pytest.mark.parametrize("damage", [stop_storage, empty_storage, stop_zookeeper, replace_cluster])
def test_budget_becomes_zero_when_replicas_are_away_or_unknown(
    damage: Callable[[World], None],
) -> None:
    world = started("abc")
    assert next_budget(world) == 1
    damage(world)
    assert next_budget(world) == 0


def test_cluster_is_not_healthy_before_its_budget_allows_evictions() -> None:
    """Otherwise a drain that begins when the cluster is Healthy would be refused at first."""
    world = started("abc")
    world.objects[_BUDGET]["spec"]["maxUnavailable"] = 0
    decided = plan(world.desired(), world.observed())
    assert decided.waits == (f"{_BUDGET} still allows 0 evictions, not 1",)
    assert [type(step) for step in decided.steps] == [ApplyObject]
    assert next_budget(world) == 1
    assert plan(world.desired(), world.observed()).done


def test_budget_counts_existing_copies() -> None:
    """Two pools that were added hold no copies yet, so a second eviction would lose quorums."""
    world = started("abc")
    assert world.cluster is not None
    world.cluster["spec"]["pools"] = list("abcde")
    for name in "de":
        world.pools[name] = pool_resource(name)
    assert next_budget(world) == 1
    reconcile(world)
    assert next_budget(world) == 2
