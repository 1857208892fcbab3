"""The planner's guards: what it does not take over, delete, scale or switch on."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.operator_world import World, Znodes, cluster_resource, pool_resource
from tests.support.planned import next_plan
from waltz.admin.core.replicas import StorageReplicas
from waltz.metadata.core.storage_maps import add_storage_node
from waltz_operator.core.names import CLUSTER_LABEL, FINALIZER
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ClusterIncomplete, ClusterPresent, ZooKeeperUnreachable
from waltz_operator.core.planning import plan
from waltz_operator.core.pool_status import pool_status
from waltz_operator.core.status import cluster_status, has_quorum
from waltz_operator.core.steps import (
    AddFinalizer,
    ApplyObject,
    ClaimPool,
    CreateMetadata,
    DeleteMetadata,
    IssueCertificates,
    ReleasePool,
)

ROUNDS = 20
EXTERNAL = {"external": {"connectString": "zk:2181"}}


def new_world(**spec: Any) -> World:
    return World(cluster_resource(**spec), [pool_resource(name) for name in "abc"])


def started(**spec: Any) -> World:
    world = new_world(**spec)
    for _ in range(ROUNDS):
        world.settle()
        for step in next_plan(world).steps:
            world.perform(step)
    assert next_plan(world).done
    return world


def deleted_with_volumes() -> World:
    """Return a cluster whose servers and storages are deleted, and whose znodes are next."""
    world = started(zookeeper=EXTERNAL)
    assert world.cluster is not None
    for pool in world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    world.cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    while not any(isinstance(step, DeleteMetadata) for step in next_plan(world).steps):
        for step in next_plan(world).steps:
            world.perform(step)
    return world


def test_own_finalizer_is_added_first_beside_one_of_another_controller() -> None:
    world = new_world()
    assert world.cluster is not None
    world.cluster["metadata"]["finalizers"] = ["example.com/other"]
    assert next_plan(world).steps == (AddFinalizer(),)


def test_metadata_with_another_key_is_not_taken_over() -> None:
    world = new_world()
    name = world.desired().metadata_name
    world.znodes = Znodes(name, 4, uuid.UUID(int=9))
    for _ in range(5):
        world.settle()
        for step in next_plan(world).steps:
            world.perform(step)
    assert any("spec.clusterKey" in problem for problem in next_plan(world).problems)
    assert world.znodes.maps.groups.groups == {}


@pytest.mark.parametrize("used", [False, True])
def test_incomplete_metadata_is_deleted_only_if_it_was_never_used(used: bool) -> None:
    world = new_world(zookeeper=EXTERNAL)
    desired = world.desired()
    world.znodes = ClusterIncomplete(desired.metadata_name, desired.key, used=used)
    for _ in range(5):
        decided = next_plan(world)
        if decided.problems or any(isinstance(step, DeleteMetadata) for step in decided.steps):
            break
        for step in decided.steps:
            world.perform(step)
    assert bool(decided.problems) is used
    assert any(isinstance(step, DeleteMetadata) for step in decided.steps) is not used


@pytest.mark.parametrize("interrupted", [False, True])
def test_vanished_metadata_of_an_existing_cluster_is_never_created_again(interrupted: bool) -> None:
    """Servers of a new cluster with the same key would cut the logs of the storages."""
    world = started(zookeeper=EXTERNAL)
    desired = world.desired()
    rest = ClusterIncomplete(desired.metadata_name, desired.key, used=False)
    world.znodes = rest if interrupted else None
    for _ in range(5):
        decided = next_plan(world)
        assert not [s for s in decided.steps if isinstance(s, CreateMetadata | DeleteMetadata)]
        for step in decided.steps:
            world.perform(step)
        world.settle()
    assert "waltz cluster rescue" in next_plan(world).problems[0]
    assert world.znodes == (rest if interrupted else None)


@pytest.mark.parametrize("known_by", ["status", "spec"])
def test_absent_metadata_of_a_cluster_with_a_known_key_is_a_problem(known_by: str) -> None:
    world = new_world(zookeeper=EXTERNAL)
    assert world.cluster is not None
    world.cluster.setdefault(known_by, {})["clusterKey"] = str(uuid.UUID(int=9))
    world.cluster["metadata"]["finalizers"] = [FINALIZER]
    decided = next_plan(world)
    assert not [step for step in decided.steps if isinstance(step, CreateMetadata)]
    assert "its metadata is lost" in decided.problems[0]
    statuses = cluster_status(world.desired(), world.observed(), decided, "2026-01-01T00:00:00Z")
    ready = next(each for each in statuses.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "MetadataLost")


def test_condition_keeps_the_time_of_its_last_change() -> None:
    """With a new time at each reconcile, the status would be written each second."""
    world = started()
    observed, begun = world.observed(), "2026-01-01T00:00:00Z"
    first = cluster_status(world.desired(), observed, next_plan(world), begun)
    assert world.cluster is not None
    world.cluster["status"] = first.to_json()
    later = cluster_status(world.desired(), observed, next_plan(world), "2026-01-01T00:01:00Z")
    assert later == first
    nothing = replace(observed, metadata=ZooKeeperUnreachable("no answer"))
    lost = cluster_status(world.desired(), nothing, next_plan(world), "2026-01-01T00:02:00Z")
    (ready,) = (each for each in lost.conditions if each.type == "Ready")
    assert (ready.status, ready.last_transition_time) == ("Unknown", "2026-01-01T00:02:00Z")


def test_own_key_stays_in_the_status_while_zookeeper_does_not_answer() -> None:
    """Without the key, znodes that are missing afterwards would be created anew."""
    world = started()
    known = cluster_status(
        world.desired(), world.observed(), next_plan(world), "2026-01-01T00:00:00Z"
    )
    assert known.cluster_key
    assert world.cluster is not None
    world.cluster["status"] = known.to_json()
    away = replace(world.observed(), metadata=ZooKeeperUnreachable("no answer"))
    later = cluster_status(world.desired(), away, next_plan(world), "2026-01-01T00:01:00Z")
    assert later.cluster_key == known.cluster_key


def test_key_of_another_cluster_at_the_root_does_not_become_the_own_key() -> None:
    world = new_world(zookeeper=EXTERNAL)
    world.znodes = Znodes(world.desired().metadata_name, 4, uuid.UUID(int=9))
    desired, observed = world.desired(), world.observed()
    decided = plan(desired, observed)
    assert cluster_status(desired, observed, decided, "2026-01-01T00:00:00Z").cluster_key == ""


def test_statuses_count_nothing_of_another_cluster_at_the_root() -> None:
    world = started()
    desired, observed, now = world.desired(), world.observed(), "2026-01-01T00:00:00Z"
    present = observed.metadata
    assert isinstance(present, ClusterPresent)
    foreign = replace(observed, metadata=replace(present, key=uuid.UUID(int=9)))
    for found, counts, group in (
        (observed, ("4/4", "3/3", f"{len(present.servers)}/2"), 0),
        (foreign, ("0/4", "0/3", "0/2"), None),
    ):
        status = cluster_status(desired, found, plan(desired, found), now)
        assert (status.partitions, status.storages, status.servers) == counts
        assert pool_status(desired, found, desired.pools[0], now).group == group


def test_new_pool_gets_a_group_that_no_foreign_storage_has() -> None:
    """A partition would otherwise count two copies in one group as one."""
    world = started()
    assert world.cluster is not None
    assert isinstance(world.znodes, Znodes)
    world.znodes.maps = add_storage_node(world.znodes.maps, "elsewhere:6000", 3, 6001)
    world.disks["elsewhere:6000"] = {}
    world.pools["d"] = pool_resource("d")
    world.cluster["spec"]["pools"].append("d")
    for _ in range(ROUNDS):
        world.settle()
        for step in next_plan(world).steps:
            world.perform(step)
    groups = world.znodes.maps.groups.groups
    assert groups["d-storage-0.d-storage.logs.svc:6000"] == 4


def test_incomplete_replica_that_is_switched_off_is_reported_and_not_switched_on() -> None:
    """Switched on, it would count in a vote without the transactions that it lacks."""
    world = started()
    storage = "b-storage-0.b-storage.logs.svc:6000"
    held = world.disks[storage][2]
    world.disks[storage][2] = replace(held, session_id=-1, readable=False, writable=False)
    decided = next_plan(world)
    assert [str(step) for step in decided.steps] == ["PodDisruptionBudget log-storage is repaired"]
    assert "switched off and incomplete" in decided.problems[0]


def test_stateful_set_keeps_its_pods_while_zookeeper_does_not_answer() -> None:
    """The registered storages are unknown then, and any of the pods may hold transactions."""
    world = World(cluster_resource(pools=["a"]), [pool_resource("a", storages=3)])
    for _ in range(ROUNDS):
        world.settle()
        for step in next_plan(world).steps:
            world.perform(step)
    world.pools["a"]["spec"]["storages"] = 1
    world.zookeeper_up = False
    assert not [step for step in next_plan(world).steps if isinstance(step, ApplyObject)]


def test_object_that_is_being_deleted_is_awaited() -> None:
    world = started()
    key = ObjectKey("Deployment", "log-server")
    world.objects[key]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.objects[key]["spec"]["replicas"] = 0
    decided = next_plan(world)
    assert decided.steps == ()
    assert any("is being deleted" in reason for reason in decided.waits)


def test_deletion_keeps_znodes_with_foreign_znodes_below_them() -> None:
    world = deleted_with_volumes()
    observed = world.observed()
    assert isinstance(observed.metadata, ClusterPresent)
    foreign = replace(observed, metadata=replace(observed.metadata, foreign_znodes=True))
    steps = plan(world.desired(), foreign).steps
    assert not any(isinstance(step, DeleteMetadata) for step in steps)


def test_deletion_keeps_znodes_of_another_cluster_of_the_same_name() -> None:
    world = deleted_with_volumes()
    assert isinstance(world.znodes, Znodes)
    world.znodes.key = uuid.UUID(int=9)
    assert not any(isinstance(step, DeleteMetadata) for step in next_plan(world).steps)


def test_finalizer_is_the_last_to_be_removed() -> None:
    world = deleted_with_volumes()
    assert world.cluster is not None
    assert FINALIZER in world.cluster["metadata"]["finalizers"]


def test_certificates_are_renewed_thirty_days_before_they_expire() -> None:
    world = started(tls={"mode": "Operator"})
    observed = world.observed()
    for days, renewed in ((31.0, False), (29.0, True)):
        steps = plan(world.desired(), replace(observed, certificate_days=days)).steps
        assert [step for step in steps if isinstance(step, IssueCertificates)] == (
            [IssueCertificates(renew=True)] if renewed else []
        )


def test_lost_authority_of_certificates_in_use_is_a_problem_for_a_person() -> None:
    """Processes with certificates of a new authority could not connect to the others."""
    world = started(tls={"mode": "Operator"})
    del world.objects[ObjectKey("Secret", "log-authority")]
    for days in (None, 300.0, 29.0):
        decided = plan(world.desired(), replace(world.observed(), certificate_days=days))
        assert not [step for step in decided.steps if isinstance(step, IssueCertificates)]
        assert "secret log-authority is lost" in decided.problems[0]
        assert "delete the secret log-tls" in decided.problems[0]
    world.objects[ObjectKey("Secret", "log-tls")]["data"].pop("tls.key")
    assert not [s for s in next_plan(world).steps if isinstance(s, IssueCertificates)]
    del world.objects[ObjectKey("Secret", "log-tls")]
    assert IssueCertificates(renew=False) in next_plan(world).steps


def test_pool_of_a_cluster_that_no_longer_exists_is_released_and_claimed() -> None:
    world = new_world()
    world.pools["a"]["metadata"]["labels"] = {CLUSTER_LABEL: "other"}
    for step in next_plan(world).steps:
        world.perform(step)
    decided = next_plan(world)
    assert "belongs to WaltzCluster other" in decided.problems[0], "that cluster exists"
    assert ReleasePool("a") not in decided.steps
    decided = plan(replace(world.desired(), vanished_owners=frozenset({"other"})), world.observed())
    assert not decided.problems
    assert ReleasePool("a") in decided.steps
    assert ClaimPool("a", "log") not in decided.steps, "each patch needs the version before it"
    world.perform(ReleasePool("a"))
    assert ClaimPool("a", "log") in next_plan(world).steps


@pytest.mark.parametrize(("away", "expected"), [(0, True), (1, True), (2, False), (3, False)])
def test_partition_has_a_quorum_while_most_of_its_replicas_are_healthy(
    away: int, expected: bool
) -> None:
    present = started().observed().metadata
    assert isinstance(present, ClusterPresent)
    storages = dict(present.replicas.storages)
    for storage in sorted(storages)[:away]:
        storages[storage] = StorageReplicas(problem="connection refused")
    found = replace(present, replicas=replace(present.replicas, storages=storages))
    view = replace(found.replicas.partitions[0], server_problem=None)
    assert has_quorum(found, view) is expected


@pytest.mark.parametrize("zookeeper", [{}, {"managed": {}} | EXTERNAL])
def test_cluster_without_exactly_one_zookeeper_is_invalid(zookeeper: dict[str, Any]) -> None:
    """The API server checks that rule, but may have stored the resource before the rule existed."""
    with pytest.raises(ValidationError, match=r"exactly one of zookeeper\.managed"):
        new_world(zookeeper=zookeeper).desired()
