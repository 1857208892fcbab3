"""Test that storages are protected as long as partitions may have several copies.

Pools that leave the cluster and foreign storages have copies, too, and no pool of the spec.
"""

from __future__ import annotations

import pytest

from tests.support.adoption_world import AdoptionWorld
from tests.support.operator_world import World, cluster_resource, pool_resource
from waltz_operator.core import names
from waltz_operator.core.names import CLUSTER_LABEL, Component
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.planning import plan
from waltz_operator.core.planning.rolls import evictions_obstacle
from waltz_operator.core.steps import DeleteObject

_BUDGET = ObjectKey("PodDisruptionBudget", "log-storage")


def budget_of(world: World) -> int | None:
    """Perform one plan; return how many storages may be evicted then, None without a budget."""
    for step in plan(world.desired(), world.observed()).steps:
        world.perform(step)
    found = world.objects.get(_BUDGET)
    return None if found is None else found["spec"]["maxUnavailable"]


def adopting(pools: str) -> AdoptionWorld:
    """Return a cluster that adopts and has performed its first plans."""
    world = AdoptionWorld(pools=pools)
    for _ in range(4):
        budget_of(world)
        world.settle()
    return world


def test_budget_stays_while_all_pools_leave_an_adopted_cluster() -> None:
    world = adopting("abc")
    world.specify(pools=[])
    steps = plan(world.desired(), world.observed()).steps
    assert not [each for each in steps if isinstance(each, DeleteObject) and each.key == _BUDGET]
    assert _BUDGET in world.objects
    assert world.desired().has_several_copies


def test_adopted_cluster_with_one_pool_has_a_budget() -> None:
    assert budget_of(adopting("a")) is not None


def test_adopted_cluster_without_pools_has_no_budget_of_storages() -> None:
    world = adopting("")
    assert budget_of(world) is None
    assert evictions_obstacle(world.desired(), world.observed()) is None


def test_adopted_cluster_with_one_pool_and_no_foreign_storages_has_a_single_copy() -> None:
    world = adopting("a")
    assert world.cluster is not None
    condition = {
        "type": "Foreign",
        "status": "False",
        "reason": "NoForeignStorages",
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
    world.cluster["status"] = {"conditions": [condition]}
    assert not world.desired().has_several_copies
    assert budget_of(world) is None


@pytest.mark.parametrize("leaving", ["", "b", "bc"])
def test_budget_stays_while_other_pools_leave(leaving: str) -> None:
    world = World(cluster_resource(pools=["a"]), [pool_resource(name) for name in "abc"])
    for name in f"a{leaving}":
        world.pools[name]["metadata"]["labels"] = {CLUSTER_LABEL: "log"}
    for _ in range(3):
        found = budget_of(world)
        world.settle()
    assert (found is None) is (leaving == "")


@pytest.mark.parametrize("limit", [0, 1])
def test_operator_waits_for_the_budget_while_pools_leave(limit: int) -> None:
    world = adopting("abc")
    world.specify(pools=[])
    labels = names.labels("log", Component.STORAGE)
    world.objects[_BUDGET] = {
        "metadata": {"name": _BUDGET.name, "labels": labels, "uid": "x"},
        "spec": {"maxUnavailable": limit},
    }
    obstacle = evictions_obstacle(world.desired(), world.observed())
    assert (obstacle is None) is (limit == 0)
