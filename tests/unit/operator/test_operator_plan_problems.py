"""Plans for states that the operator must not change: it waits, or names a problem for a person."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.operator_world import World, Znodes, cluster_resource, pool_resource
from tests.support.planned import next_plan
from tests.unit.operator.test_operator_plan import delete, run, started
from waltz.admin.core.steps import RegisterStorage, UnregisterStorage
from waltz.metadata.core import storage_maps
from waltz.metadata.core.formats import ConnectionMetadata, GroupDescriptor
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ClusterIncomplete, ClusterMalformed
from waltz_operator.core.planning.znodes import groups_of
from waltz_operator.core.status import cluster_status
from waltz_operator.core.steps import (
    ClusterPlan,
    DeleteMetadata,
    IssueCertificates,
)

EXTERNAL = {"external": {"connectString": "zk:2181"}}
STORAGE = "a-storage-0.a-storage.logs.svc:6000"


def after_rounds(world: World) -> ClusterPlan:
    """Return the plan after a few rounds; each step is performed."""
    for _ in range(5):
        world.settle()
        for step in next_plan(world).steps:
            world.perform(step)
    return next_plan(world)


def deploys_processes(world: World) -> bool:
    return any(key.kind in ("StatefulSet", "Deployment") for key in world.objects)


def new_world(**spec: Any) -> World:
    return World(
        cluster_resource(zookeeper=EXTERNAL, **spec), [pool_resource(name) for name in "abc"]
    )


def test_malformed_metadata_is_a_problem_and_stays() -> None:
    world = new_world()
    world.znodes = ClusterMalformed("3 bytes at the end")
    decided = after_rounds(world)
    assert any("cannot be decoded: 3 bytes at the end" in each for each in decided.problems)
    assert world.znodes == ClusterMalformed("3 bytes at the end")
    assert not deploys_processes(world)


def test_metadata_with_another_number_of_partitions_is_a_problem() -> None:
    world = new_world()
    desired = world.desired()
    assert desired.key is not None
    world.znodes = Znodes(desired.metadata_name, 7, desired.key)
    decided = after_rounds(world)
    assert any("create a new WaltzCluster with spec.partitions 7" in e for e in decided.problems)
    assert world.znodes.num_partitions == 7
    assert not deploys_processes(world)


def test_storage_with_partitions_and_another_registration_is_a_problem() -> None:
    world = started(zookeeper=EXTERNAL)
    znodes = world.znodes
    assert isinstance(znodes, Znodes)
    ports = {**znodes.maps.connections.admin_ports, STORAGE: 7777}
    znodes.maps = replace(znodes.maps, connections=ConnectionMetadata(ports))
    decided = next_plan(world)
    assert any(f"storage {STORAGE} has partitions" in each for each in decided.problems)
    changes = (RegisterStorage, UnregisterStorage)
    assert not [step for step in decided.steps if isinstance(step, changes)]


def test_storage_without_partitions_and_with_another_registration_is_registered_again() -> None:
    world = started(zookeeper=EXTERNAL)
    znodes = world.znodes
    assert isinstance(znodes, Znodes)
    world.pools["a"]["spec"]["storages"] = 2
    second = STORAGE.replace("storage-0", "storage-1")
    znodes.maps = storage_maps.add_storage_node(znodes.maps, second, 0, 7777)
    steps = [
        s for s in next_plan(world).steps if isinstance(s, RegisterStorage | UnregisterStorage)
    ]
    assert [type(step) for step in steps] == [UnregisterStorage, RegisterStorage]
    assert [step.storage for step in steps] == [second, second]


def test_pool_whose_storages_are_in_several_groups_is_a_problem() -> None:
    world = new_world()
    world.pools["a"]["spec"]["storages"] = 2
    run(world)
    znodes = world.znodes
    assert isinstance(znodes, Znodes)
    groups = {**znodes.maps.groups.groups, STORAGE: 9}
    znodes.maps = replace(znodes.maps, groups=GroupDescriptor(groups))
    assert any(
        "StoragePool a have partitions in several groups" in each
        for each in next_plan(world).problems
    )


def world_with_pool_a_in_two_groups() -> World:
    """Return a cluster whose pool a has partitions in the groups 0 and 9, and a new pool d."""
    world = new_world()
    world.pools["a"]["spec"]["storages"] = 2
    run(world)
    znodes = world.znodes
    assert isinstance(znodes, Znodes)
    second = STORAGE.replace("storage-0", "storage-1")
    assert all(znodes.maps.assignments.partitions[each] for each in (STORAGE, second))
    groups = {**znodes.maps.groups.groups, STORAGE: 9}
    znodes.maps = replace(znodes.maps, groups=GroupDescriptor(groups))
    assert world.cluster is not None
    world.cluster["spec"]["pools"].append("d")
    world.pools["d"] = pool_resource("d")
    for step in next_plan(world).steps:
        world.perform(step)
    return world


def test_new_pool_gets_no_group_of_a_pool_in_several_groups() -> None:
    """Two copies of a partition would share the group, and count as one copy."""
    world = world_with_pool_a_in_two_groups()
    assert isinstance(world.znodes, Znodes)
    groups = groups_of(world.desired(), world.znodes.maps)
    assert groups == {"b": 1, "c": 2, "d": 3}


@pytest.mark.parametrize("group", [0, 7, 9])
def test_pool_without_partitions_leaves_a_group_that_others_use(group: int) -> None:
    """The groups 0 and 9 have partitions of pool a, group 7 has a storage of no pool."""
    world = world_with_pool_a_in_two_groups()
    assert isinstance(world.znodes, Znodes)
    maps = storage_maps.add_storage_node(world.znodes.maps, "elsewhere:6000", 7, 6001)
    new = STORAGE.replace("a-storage", "d-storage")
    maps = storage_maps.add_storage_node(maps, new, group, 6001)
    assert groups_of(world.desired(), maps)["d"] == 3


def cluster_with_certificates(**tls: Any) -> World:
    return World(
        cluster_resource(zookeeper=EXTERNAL, tls=tls), [pool_resource(name) for name in "abc"]
    )


def add_secret(world: World, name: str, *parts: str) -> None:
    world.objects[ObjectKey("Secret", name)] = {
        "metadata": {"name": name, "uid": name},
        "data": dict.fromkeys(parts, ""),
    }


def test_processes_wait_for_the_secret_that_cert_manager_creates() -> None:
    world = cluster_with_certificates(mode="CertManager", issuerRef={"name": "x", "kind": "Issuer"})
    decided = after_rounds(world)
    assert "cert-manager has not created the secret log-tls yet" in decided.waits
    assert not deploys_processes(world)
    add_secret(world, "log-tls", "ca.crt", "tls.crt")
    assert "cert-manager has not created the secret log-tls yet" in after_rounds(world).waits
    add_secret(world, "log-tls", "ca.crt", "tls.crt", "tls.key")
    assert not any("cert-manager" in each for each in after_rounds(world).waits)
    assert deploys_processes(world)


def test_processes_wait_for_the_secret_of_the_spec_and_its_parts() -> None:
    world = cluster_with_certificates(mode="Secret", secretName="mine")
    decided = after_rounds(world)
    assert any("the secret mine, which spec.tls.secretName names" in each for each in decided.waits)
    assert not deploys_processes(world)
    add_secret(world, "mine", "tls.crt")
    decided = after_rounds(world)
    assert "the secret mine lacks ca.crt, tls.key: add it" in decided.problems
    assert not deploys_processes(world)
    add_secret(world, "mine", "ca.crt", "tls.crt", "tls.key")
    after_rounds(world)
    assert deploys_processes(world)


@pytest.mark.parametrize("existed", [True, False])
def test_missing_secret_of_the_spec_is_not_reconciled_and_leaves_a_running_cluster_ready(
    *, existed: bool
) -> None:
    world = cluster_with_certificates(mode="Secret", secretName="mine")
    assert world.cluster is not None
    if existed:
        add_secret(world, "mine", "ca.crt", "tls.crt", "tls.key")
    for _ in range(3):
        after_rounds(world)
    world.objects.pop(ObjectKey("Secret", "mine"), None)
    world.cluster["metadata"]["generation"] = 2
    status = cluster_status(
        world.desired(),
        world.observed(),
        after_rounds(world),
        "2026-01-01T12:00:00Z",
    )
    conditions = {each.type: each for each in status.conditions}
    reconciled = conditions["Reconciled"]
    assert (reconciled.status, reconciled.reason) == ("False", "SecretMissing")
    assert reconciled.message.startswith("the secret mine, which spec.tls.secretName names, does")
    assert conditions["Ready"].status == str(existed), conditions["Ready"]
    assert conditions["Healthy"].status == "False"
    assert (status.observed_generation == 2) == existed


@pytest.mark.parametrize("name", ["log-authority", "log-tls", "log-tls-client"])
def test_secret_of_another_owner_is_not_replaced_by_certificates(name: str) -> None:
    world = cluster_with_certificates(mode="Operator")
    add_secret(world, name, "ca.crt")
    foreign = world.objects[ObjectKey("Secret", name)]
    decided = after_rounds(world)
    assert any(f"Secret {name} exists already" in each for each in decided.problems)
    assert not [step for step in decided.steps if isinstance(step, IssueCertificates)]
    assert world.objects[ObjectKey("Secret", name)] is foreign


def deleted_with_volumes() -> World:
    """Return a deleted cluster whose volumes and znodes are deleted, too."""
    world = new_world()
    for pool in world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    run(world)
    delete(world)
    return world


@pytest.mark.parametrize("used", [False, True])
def test_deletion_deletes_incomplete_metadata_only_if_it_was_never_used(used: bool) -> None:
    world = deleted_with_volumes()
    desired = world.desired()
    rest = ClusterIncomplete(desired.metadata_name, desired.key, used=used)
    world.znodes = rest
    steps = [step for step in run(world) if isinstance(step, DeleteMetadata)]
    expected = DeleteMetadata(desired.metadata_name, desired.key, complete=False)
    assert steps == ([] if used else [expected])
    assert world.znodes == (rest if used else None)


@pytest.mark.parametrize(("seconds", "waits"), [(0.0, True), (59.0, True), (60.0, False)])
def test_deletion_waits_a_minute_for_a_zookeeper_that_does_not_answer(
    seconds: float, waits: bool
) -> None:
    world = deleted_with_volumes()
    world.zookeeper_up = False
    world.deleting_seconds = seconds
    for _ in range(5):
        for step in next_plan(world).steps:
            world.perform(step)
        if world.cluster is None:
            break
    assert (world.cluster is not None) is waits
    if waits:
        assert any("ZooKeeper at zk:2181 does not answer" in e for e in next_plan(world).waits)
