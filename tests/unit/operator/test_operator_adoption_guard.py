"""Test that an adoption takes no storage for its own that an operator elsewhere runs.

The adopted cluster is that of an operator in another Kubernetes, with the same namespace and the
same names of pools: the registered addresses are those of the pools here.
"""

from __future__ import annotations

import uuid

import pytest

from tests.support.adoption_world import KEY, NAME, OLD_SERVER, AdoptionWorld, foreign_storage
from tests.support.operator_world import NAMESPACE, Znodes
from tests.unit.operator.test_operator_shape_properties import finish
from waltz.metadata.core import storage_maps
from waltz.metadata.core.storage_maps import StorageMaps
from waltz_operator.core import names
from waltz_operator.core.adoption import foreign_parts
from waltz_operator.core.names import CLUSTER_LABEL, FINALIZER, Component
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ClusterIncomplete, ClusterMalformed, ClusterPresent
from waltz_operator.core.outside_steps import WriteOutsideAddresses
from waltz_operator.core.planning import plan
from waltz_operator.core.resources import Condition
from waltz_operator.core.status import cluster_status
from waltz_operator.core.steps import ApplyObject, ClusterPlan, DeleteMetadata, DeleteObject

_NOW = "2026-01-01T12:00:00Z"
_MOST_ROUNDS = 30
_SERVERS = ObjectKey("Deployment", "log-server")


def pool_storage(pool: str) -> str:
    return f"{pool}-storage-0.{pool}-storage.{NAMESPACE}.svc:6000"


def same_names(pools: str = "abc", others: str = "") -> AdoptionWorld:
    """Return a world whose adopted cluster has storages at the addresses of the pools a, b, c."""
    world = AdoptionWorld(pools=pools, others=others)
    maps = StorageMaps.empty()
    for group, pool in enumerate("abc"):
        maps = storage_maps.add_storage_node(maps, pool_storage(pool), group, 6001)
        maps = storage_maps.auto_assign(maps, group, 3)
    world.znodes = Znodes(NAME, 3, KEY, maps)
    world.disks = {}
    return world


def rounds(world: AdoptionWorld, count: int = 10) -> ClusterPlan:
    """Perform plans; return the last one."""
    for _ in range(count):
        for step in plan(world.desired(), world.observed()).steps:
            world.perform(step)
        world.settle()
    return plan(world.desired(), world.observed())


def write_status(world: AdoptionWorld) -> Condition:
    """Write the status into the WaltzCluster, as a reconcile does; return the condition Foreign."""
    decided = plan(world.desired(), world.observed())
    found = cluster_status(world.desired(), world.observed(), decided, _NOW)
    assert world.cluster is not None
    world.cluster["status"] = found.to_json()
    return next(each for each in found.conditions if each.type == "Foreign")


def add_claims(world: AdoptionWorld, pools: str = "abc") -> list[ObjectKey]:
    """Create the claims of the data volumes of pools, which Kubernetes has made for their sets."""
    keys = []
    for pool in pools:
        key = ObjectKey("PersistentVolumeClaim", f"data-{pool}-storage-0")
        labels = names.labels("log", Component.STORAGE, pool)
        world.objects[key] = {"metadata": {"name": key.name, "labels": labels, "uid": key.name}}
        keys.append(key)
    return keys


def delete(world: AdoptionWorld) -> set[type]:
    """Delete the cluster, with all its volumes; return the kinds of steps that were performed."""
    assert world.cluster is not None
    for pool in world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    world.cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    kinds: set[type] = set()
    for _ in range(_MOST_ROUNDS):
        if world.cluster is None:
            return kinds
        world.settle()
        write_status(world)
        for step in plan(world.desired(), world.observed()).steps:
            kinds.add(type(step))
            if isinstance(step, DeleteObject) and step.key.kind == "StatefulSet":
                del world.objects[step.key]  # Its pods are not scaled down, but end.
            else:
                world.perform(step)
    raise AssertionError(f"the deletion does not end: {plan(world.desired(), world.observed())}")


# ---- the beginning


def test_cluster_with_addresses_of_pools_is_not_adopted_and_nothing_starts() -> None:
    world = same_names()
    before = world.maps
    decided = rounds(world)
    assert len(decided.problems) == 3
    assert f"storage {pool_storage('a')} has the address of StoragePool a" in decided.problems[0]
    assert "volume claim data-a-storage-0 here" in decided.problems[0]
    assert "Name StoragePools of other names" in decided.problems[0]
    assert not {key.kind for key in world.objects} & {"StatefulSet", "Deployment"}
    assert world.maps == before
    assert world.disks == {}


def test_storages_at_addresses_of_pools_are_foreign_in_the_status() -> None:
    world = same_names()
    rounds(world)
    foreign = write_status(world)
    assert foreign.status == "True"
    assert pool_storage("b") in foreign.message


@pytest.mark.parametrize("present", ["claims", "set"])
def test_cluster_that_is_created_again_with_its_volumes_starts(present: str) -> None:
    world = same_names()
    if present == "claims":
        add_claims(world)
    else:
        for pool in "abc":
            name = f"{pool}-storage"
            world.objects[ObjectKey("StatefulSet", name)] = {
                "metadata": {
                    "name": name,
                    "uid": name,
                    "labels": names.labels("log", Component.STORAGE, pool),
                },
                "spec": {"replicas": 1},
            }
    decided = rounds(world, 3)
    assert not [each for each in decided.problems if "has the address of" in each]
    assert ObjectKey("StatefulSet", "a-storage") in world.objects
    assert write_status(world).status == "False"


def test_set_of_another_cluster_does_not_show_that_the_storage_runs_here() -> None:
    world = same_names()
    labels = names.labels("invoices", Component.STORAGE, "a")
    world.objects[ObjectKey("StatefulSet", "a-storage")] = {
        "metadata": {"name": "a-storage", "uid": "x", "labels": labels},
        "spec": {"replicas": 1},
    }
    assert any("has the address of StoragePool a" in each for each in rounds(world, 3).problems)


@pytest.mark.parametrize("has_foreign_claims", [False, True])
def test_other_pools_in_place_of_those_with_the_addresses_continue_the_adoption(
    has_foreign_claims: bool,
) -> None:
    world = same_names(others="xyz")
    for key in add_claims(world) if has_foreign_claims else ():
        world.objects[key]["metadata"]["labels"][CLUSTER_LABEL] = "invoices"
    rounds(world)
    world.specify(pools=["x", "y", "z"])
    world.foreign = frozenset(map(pool_storage, "abc"))
    world.disks |= {storage: {} for storage in world.foreign}
    rounds(world)
    for pool in "abc":
        assert world.pools[pool]["metadata"]["labels"] == {}
        assert ObjectKey("Service", f"{pool}-storage") not in world.objects
    assert world.foreign < {*world.maps.groups.groups}
    assert pool_storage("x") in world.maps.groups.groups
    assert _SERVERS in world.objects


# ---- the deletion


def test_deletion_keeps_znodes_of_storages_with_the_addresses_of_pools() -> None:
    world = same_names()
    rounds(world)
    before = world.maps
    assert DeleteMetadata not in delete(world)
    assert world.maps == before


def test_deletion_without_a_status_keeps_znodes_of_storages_with_addresses_of_pools() -> None:
    world = same_names()
    assert world.cluster is not None
    world.cluster["metadata"]["finalizers"] = [FINALIZER]
    for pool in world.pools.values():
        pool["metadata"] |= {"labels": {CLUSTER_LABEL: "log"}, "finalizers": [FINALIZER]}
    assert DeleteMetadata not in delete(world)


def adopted(*, retired: bool) -> AdoptionWorld:
    """Return a cluster whose pools have copies, with its status; beside foreign groups or not."""
    world = AdoptionWorld(groups=(1,), partitions=1)
    rounds(world, 4)
    world.old_servers = frozenset()
    if retired:
        world.retire()
        finish(world)
    assert write_status(world).status == ("False" if retired else "True")
    return world


@pytest.mark.parametrize(
    "rest",
    [
        None,
        ClusterMalformed("bad"),
        ClusterIncomplete(NAME, KEY, used=True),
        ClusterIncomplete(NAME, KEY, used=False),
    ],
    ids=["absent", "malformed", "used", "unused"],
)
def test_deletion_keeps_volumes_if_metadata_with_foreign_storages_are_damaged(
    rest: ClusterMalformed | ClusterIncomplete | None,
) -> None:
    world = adopted(retired=False)
    claims = add_claims(world)
    world.znodes = rest
    write_status(world)
    assert DeleteMetadata not in delete(world)
    assert {*claims} <= {*world.objects}
    assert world.znodes == rest


def test_deletion_keeps_volumes_at_the_root_of_another_cluster() -> None:
    world = adopted(retired=False)
    claims = add_claims(world)
    world.znodes = Znodes("invoices", 3, uuid.UUID(int=9))
    assert DeleteMetadata not in delete(world)
    assert {*claims} <= {*world.objects}


def test_deletion_after_the_retirement_deletes_znodes_and_volumes() -> None:
    world = adopted(retired=True)
    claims = add_claims(world)
    assert DeleteMetadata in delete(world)
    assert world.znodes is None
    assert not {*claims} & {*world.objects}


def test_deletion_after_the_retirement_keeps_volumes_of_malformed_metadata() -> None:
    world = adopted(retired=True)
    claims = add_claims(world)
    world.znodes = ClusterMalformed("bad")
    delete(world)
    assert {*claims} <= {*world.objects}


def test_condition_foreign_stays_while_a_deletion_cannot_read_the_maps() -> None:
    world = adopted(retired=True)
    world.zookeeper_up = False
    assert write_status(world).status == "Unknown"
    world.zookeeper_up = True
    assert write_status(world).status == "False"
    assert world.cluster is not None
    world.cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.zookeeper_up = False
    assert write_status(world).status == "False"


# ---- servers


def test_own_server_with_the_port_of_an_earlier_version_is_not_foreign() -> None:
    world = AdoptionWorld()
    rounds(world, 4)
    containers = [{"ports": [{"name": "waltz", "containerPort": 6100}]}]
    for key, live in world.objects.items():
        if key.kind == "Pod":
            live["spec"] = {"containers": containers}
    world.specify(servers={"port": 6200})
    observed = world.observed()
    assert isinstance(observed.metadata, ClusterPresent)
    assert len(observed.metadata.servers) > 1
    assert foreign_parts(world.desired(), observed, observed.metadata).servers == {OLD_SERVER}


# ---- outside addresses


def written(world: AdoptionWorld) -> list[dict[str, str]]:
    """Return the outside addresses that the next plan writes, no or one time."""
    steps = plan(world.desired(), world.observed()).steps
    return [dict(each.addresses) for each in steps if isinstance(each, WriteOutsideAddresses)]


def test_outside_addresses_of_foreign_processes_stay() -> None:
    world = AdoptionWorld()
    rounds(world, 4)
    host = foreign_storage(0).partition(":")[0]
    foreign = {foreign_storage(0): "old:1", f"{host}:5001": "old:2", OLD_SERVER: "old:3"}
    assert isinstance(world.znodes, Znodes)
    world.znodes.outside = foreign | {"gone:1": "old:4"}
    world.specify(access={"outside": {"type": "NodePort", "host": "node.example"}})
    assert written(world) == [], "the operator has no Service yet"
    for step in plan(world.desired(), world.observed()).steps:
        if isinstance(step, ApplyObject):
            world.perform(step)
    assert written(world) == [foreign], "its Services have no ports yet"
    for key, live in world.objects.items():
        if key.kind == "Service":
            for number, port in enumerate(live["spec"]["ports"]):
                port["nodePort"] = 30_000 + number
    (addresses,) = written(world)
    assert foreign.items() < addresses.items()
    assert addresses[pool_storage("a")] == "node.example:30000"
    world.znodes.outside = addresses
    assert written(world) == []
    world.specify(access={})
    assert written(world) == [foreign], "the access is removed"


def test_outside_addresses_of_storages_with_addresses_of_pools_stay() -> None:
    world = same_names()
    rounds(world, 2)
    assert isinstance(world.znodes, Znodes)
    world.znodes.outside = {pool_storage("a"): "old:1"}
    world.specify(access={"outside": {"type": "NodePort", "host": "node.example"}})
    for step in plan(world.desired(), world.observed()).steps:
        if isinstance(step, ApplyObject):
            world.perform(step)
    assert written(world) == []
