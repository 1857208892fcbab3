"""Volumes grow without a restart, and the status follows each of them to the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.growth_world import REFUSAL, GrowthWorld
from tests.support.operator_faults import FakeEnvironment, Faults, FaultyKube, StoredZnodes
from tests.support.operator_world import cluster_resource, pool_resource
from tests.unit.operator.test_operator_plan_properties import reach
from waltz.admin.core.steps import CreateReplicas
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.planning import plan
from waltz_operator.core.pool_status import pool_status
from waltz_operator.core.preview import Ending, preview
from waltz_operator.core.resources import PoolStatus, VolumeSizes
from waltz_operator.core.steps import (
    AddFinalizer,
    ApplyObject,
    ClusterPlan,
    DeleteObject,
    GrowVolume,
    OrphanPods,
    ReplacePod,
    stops,
)
from waltz_operator.core.volume_growth import RESTART_SECONDS, UNCHECKED
from waltz_operator.shell.clock import utc_now
from waltz_operator.shell.executor import Executor, StepFailed
from waltz_operator.shell.kube_api import KubeError
from waltz_operator.shell.observer import observe

_NOW = "2026-01-01T12:00:00Z"
_SET = ObjectKey("StatefulSet", "a-storage")
_CLAIM = "data-a-storage-0"


def started(*, storages: int = 2, **volumes: object) -> GrowthWorld:
    sizes = {"data": {"size": "1Gi"}} | volumes
    pools = [pool_resource(name, storages=storages, volumes=sizes) for name in "abc"]
    world = GrowthWorld(cluster_resource(pools=list("abc")), pools)
    reach(world)
    return world


def planned(world: GrowthWorld) -> ClusterPlan:
    return plan(world.desired(), world.observed())


def step(world: GrowthWorld) -> ClusterPlan:
    decided = planned(world)
    for each in decided.steps:
        world.perform(each)
    return decided


def status_of(world: GrowthWorld, name: str = "a") -> PoolStatus:
    desired = world.desired()
    (pool,) = (each for each in desired.own_pools if each.metadata.name == name)
    return pool_status(desired, world.observed(), pool, _NOW)


def resized(world: GrowthWorld) -> tuple[str, str, str]:
    """Return the status, the reason and the message of the condition Resized of pool a."""
    (found,) = (each for each in status_of(world).conditions if each.type == "Resized")
    return found.status, found.reason, found.message


def test_larger_size_patches_the_claims_and_then_recreates_the_set_without_its_pods() -> None:
    world = started()
    pods = world.pod_uids()
    world.specify_size("a", "3Gi")
    grown = step(world).steps
    assert [each.claim for each in grown if isinstance(each, GrowVolume)] == [
        "data-a-storage-0",
        "data-a-storage-1",
    ]
    assert len(grown) == 2
    (orphaned,) = step(world).steps
    assert isinstance(orphaned, OrphanPods)
    assert _SET not in world.objects
    (created,) = step(world).steps
    assert isinstance(created, ApplyObject)
    assert (created.manifest.key, created.new) == (_SET, True)
    world.settle()
    assert planned(world).done
    assert world.pod_uids() == pods
    assert (world.replaced, world.orphaned) == ([], ["a-storage"])
    assert world.template_sizes() == {"1Gi", "3Gi"}
    assert world.claims()[_CLAIM]["status"]["capacity"]["storage"] == "3Gi"


def test_same_size_in_another_unit_changes_nothing() -> None:
    world = started()
    world.specify_size("a", "1024Mi")
    assert planned(world).done


def test_each_kind_of_volume_grows() -> None:
    world = started(meta={"size": "10Mi"}, wal={"size": "1Gi"})
    volumes = world.pools["b"]["spec"]["volumes"]
    volumes["meta"]["size"], volumes["wal"]["size"] = "20Mi", "2Gi"
    grown = [each for each in step(world).steps if isinstance(each, GrowVolume)]
    assert {(each.claim, each.size) for each in grown} == {
        (f"{kind}-b-storage-{ordinal}", size)
        for kind, size in (("meta", "20Mi"), ("wal", "2Gi"))
        for ordinal in range(2)
    }


def test_status_follows_each_volume_until_it_has_its_size() -> None:
    world = started(storages=1)
    assert resized(world) == ("True", "AllResized", "")
    assert status_of(world).requested_sizes == VolumeSizes(data="1Gi")
    world.specify_size("a", "3Gi")
    assert resized(world)[2] == f"volume {_CLAIM}: 1Gi of 3Gi, the larger size is not requested yet"
    step(world)
    assert status_of(world).requested_sizes == VolumeSizes(data="3Gi")
    for text in (
        "waits for its resize to begin",
        "is being resized",
        "waits for the file system to be resized",
    ):
        sentence = f"volume {_CLAIM}: 1Gi of 3Gi, {text}"
        assert resized(world) == ("False", "Resizing", sentence)
        assert status_of(world).message == sentence
        assert sentence in planned(world).waits
        world.resize_volumes()
    assert resized(world) == ("True", "AllResized", "")
    assert status_of(world).message == ""


@pytest.mark.parametrize("sizes", [("1Gi", "3Gi"), ("3Gi", "1Gi")])
def test_status_has_the_largest_size_that_a_claim_of_the_pool_requests(
    sizes: tuple[str, str],
) -> None:
    """The pool may not be made smaller than that, because no volume can shrink."""
    world = started()
    for ordinal, size in enumerate(sizes):
        claim = world.claims()[f"data-a-storage-{ordinal}"]
        claim["spec"]["resources"]["requests"]["storage"] = size
    assert status_of(world).requested_sizes == VolumeSizes(data="3Gi")


def test_failing_resize_is_reported_with_the_message_of_kubernetes() -> None:
    world = started(storages=1)
    world.specify_size("a", "3Gi")
    step(world)
    failing = {"type": "ControllerResizeError", "status": "True", "message": "no space left"}
    world.claims()[_CLAIM]["status"]["conditions"] = [failing]
    assert resized(world)[2] == (
        f"volume {_CLAIM}: 1Gi of 3Gi, the resize fails, Kubernetes retries it: no space left"
    )


def test_class_that_cannot_grow_is_reported_with_the_way_to_replace_the_copy() -> None:
    world = started()
    world.expandable = False
    world.specify_size("a", "3Gi")
    decided = planned(world)
    assert (decided.steps, decided.problems, decided.change) == ((), (), None)
    (reason,) = decided.waits
    assert f"volume {_CLAIM}: 1Gi of 3Gi, cannot grow: {REFUSAL}" in reason
    assert "add a StoragePool with 3Gi to spec.pools, wait until it has its copy" in reason
    assert "then remove a (the number of copies goes up by one and back, as 3, 4, 3)" in reason
    assert "set volumes.data.size of a back to 1Gi" in reason
    assert resized(world)[:2] == ("False", "ResizeRefused")
    world.specify_size("a", "1Gi")
    assert planned(world).done


def test_quota_that_some_claims_have_exhausted_is_reported_without_setting_the_size_back() -> None:
    """The API server refuses a size below the largest request, because no volume shrinks."""
    world = started()
    world.specify_size("a", "3Gi")
    world.claims()[_CLAIM]["spec"]["resources"]["requests"]["storage"] = "3Gi"
    world.expandable = False
    (reason,) = planned(world).waits
    assert f"volume data-a-storage-1: 1Gi of 3Gi, cannot grow: {REFUSAL}" in reason
    assert "other claims of a request 3Gi already, so its size cannot be set back" in reason
    assert "raise the quota" in reason
    assert "nothing was changed" not in reason
    assert "back to" not in reason
    assert resized(world) == ("False", "ResizeRefused", reason)


def test_class_that_cannot_grow_does_not_stop_other_changes_of_the_pool() -> None:
    world = started()
    world.expandable = False
    world.specify_size("a", "3Gi")
    world.pools["a"]["spec"]["storages"] = 3
    world.pools["a"]["spec"]["restartedAt"] = "2026-01-01T00:00:00Z"
    for _ in range(60):
        world.settle()
        decided = step(world)
    assert decided.steps == ()
    assert len(decided.waits) == 1
    assert sorted(world.replaced) == ["a-storage-0", "a-storage-1"]
    assert world.objects[_SET]["spec"]["replicas"] == 3
    assert (world.template_sizes(), world.orphaned) == ({"1Gi"}, [])


def test_class_that_cannot_grow_is_replaced_by_another_pool_meanwhile() -> None:
    world = started(storages=1)
    world.expandable = False
    world.specify_size("a", "3Gi")
    assert world.cluster is not None
    volumes = {"data": {"size": "3Gi"}}
    world.pools["d"] = pool_resource("d", volumes=volumes)
    world.cluster["spec"]["pools"] = ["b", "c", "d"]
    reach(world)
    assert not world.pools["a"]["metadata"]["labels"]


def test_new_storages_have_the_new_size_after_the_growth() -> None:
    world = started()
    world.specify_size("a", "3Gi")
    reach(world)
    world.pools["a"]["spec"]["storages"] = 3
    reach(world)
    claim = world.claims()["data-a-storage-2"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "3Gi"


def test_claim_without_a_volume_is_not_patched() -> None:
    world = started(storages=1)
    world.specify_size("a", "3Gi")
    world.claims()[_CLAIM]["status"] = {"phase": "Pending"}
    decided = planned(world)
    assert decided.steps == ()
    assert decided.waits == (f"volume {_CLAIM}: 1Gi of 3Gi, is enlarged as soon as it is bound",)


def test_claims_that_no_pod_uses_or_that_are_deleted_stay() -> None:
    world = started()
    claims = world.claims()
    claims[_CLAIM]["metadata"]["deletionTimestamp"] = _NOW
    world.pools["a"]["spec"]["storages"] = 1
    for _ in range(20):
        world.settle()
        step(world)
    assert world.objects[_SET]["spec"]["replicas"] == 1
    world.specify_size("a", "3Gi")
    assert not any(isinstance(each, GrowVolume) for each in planned(world).steps)


@pytest.mark.parametrize("status", [{}, {"replicas": 0, "availableReplicas": 0}])
def test_pods_of_a_recreated_set_count_as_ready_before_kubernetes_has_processed_it(
    status: dict[str, int],
) -> None:
    world = started()
    live = world.objects[_SET]
    live["metadata"]["generation"], live["status"] = 1, status
    assert status_of(world).storages == "2/2"


def test_stateful_set_is_recreated_only_while_all_pods_run_and_are_current() -> None:
    world = started(storages=1)
    world.specify_size("a", "3Gi")
    step(world)
    pod = world.objects[ObjectKey("Pod", "a-storage-0")]
    state, pod["status"]["containerStatuses"] = pod["status"]["containerStatuses"], []
    later = "StatefulSet a-storage gets the new size of its volumes later:"
    assert f"{later} pod a-storage-0 does not run" in planned(world).waits
    pod["status"]["containerStatuses"] = state
    world.objects[_SET]["metadata"]["generation"] = 7
    decided = planned(world)
    assert f"{later} Kubernetes has not processed its current version yet" in decided.waits
    world.settle()
    world.pools["b"]["spec"]["restartedAt"] = "2026-01-01T00:00:00Z"
    step(world)
    world.settle()
    step(world)
    decided = planned(world)
    assert f"{later} pods of storages are outdated" in decided.waits
    assert not any(isinstance(each, OrphanPods) for each in decided.steps)
    reach(world)
    assert (world.orphaned, world.replaced) == (["a-storage"], ["b-storage-0"])


def test_set_without_pods_is_created_again_while_zookeeper_does_not_answer() -> None:
    world = started()
    world.specify_size("a", "3Gi")
    step(world)
    step(world)
    world.pools["a"]["spec"]["storages"] = 1
    world.zookeeper_up = False
    applied = [each.manifest for each in planned(world).steps if isinstance(each, ApplyObject)]
    (created,) = (each for each in applied if each.key == _SET)
    assert created.body["spec"]["replicas"] == 2, "no pod ends"


def test_ready_pods_are_counted_while_their_set_does_not_exist() -> None:
    world = started()
    world.specify_size("a", "3Gi")
    step(world)
    step(world)
    assert _SET not in world.objects
    assert status_of(world).storages == "2/2"


def waiting_for_file_system() -> GrowthWorld:
    """Return a world in which the file system of a volume of the pool a waits for its resize."""
    world = started(storages=1)
    world.online = False
    world.specify_size("a", "3Gi")
    for _ in range(10):
        world.settle()
        step(world)
    return world


def test_pod_is_restarted_once_if_its_file_system_waits_too_long() -> None:
    world = waiting_for_file_system()
    assert world.replaced == []
    world.seconds += int(RESTART_SECONDS)
    for _ in range(10):
        world.settle()
        step(world)
    assert world.replaced == ["a-storage-0"]
    assert planned(world).done


def test_pod_whose_restart_has_not_resized_its_file_system_is_not_restarted_again() -> None:
    world = waiting_for_file_system()
    world.seconds += int(RESTART_SECONDS)
    (pod,) = (each for each in world.pods() if each["metadata"]["name"] == "a-storage-0")
    (pending,) = world.claims()[_CLAIM]["status"]["conditions"]
    pod["metadata"]["creationTimestamp"] = pending["lastTransitionTime"]
    decided = planned(world)
    assert decided.steps == ()
    assert decided.waits == (
        f"volume {_CLAIM}: 1Gi of 3Gi, waits for the file system to be resized",
    )


def test_restart_for_a_file_system_waits_until_all_other_replicas_are_healthy() -> None:
    world = waiting_for_file_system()
    world.seconds += int(RESTART_SECONDS)
    world.down.add(world.address("b-storage-0"))
    assert not any(isinstance(each, ReplacePod) for each in planned(world).steps)


def test_pods_without_their_set_are_deleted_with_the_cluster() -> None:
    world = started(storages=1)
    world.specify_size("a", "3Gi")
    step(world)
    step(world)
    assert _SET not in world.objects
    assert world.cluster is not None
    world.cluster["metadata"]["deletionTimestamp"] = _NOW
    deleted: set[ObjectKey] = set()
    for _ in range(4):
        steps = step(world).steps
        deleted |= {each.key for each in steps if isinstance(each, DeleteObject)}
    assert ObjectKey("Pod", "a-storage-0") in deleted


def test_pods_without_their_set_are_deleted_with_their_pool() -> None:
    world = started(storages=1)
    world.pools["d"] = pool_resource("d")
    assert world.cluster is not None
    world.cluster["spec"]["pools"] = ["b", "c", "d"]
    for _ in range(80):
        world.settle()
        decided = planned(world)
        if any(isinstance(each, DeleteObject) and each.key == _SET for each in decided.steps):
            break
        step(world)
    world.orphan(_SET)
    pod = ObjectKey("Pod", "a-storage-0")
    deleted = [
        each.key
        for _ in range(2)
        for each in step(world).steps
        if isinstance(each, DeleteObject) and each.key.kind == "Pod"
    ]
    assert deleted == [pod]
    reach(world)
    assert not world.pools["a"]["metadata"]["labels"]


def test_preview_names_the_growth_and_ends_complete() -> None:
    world = started(storages=1)
    world.specify_size("a", "3Gi")
    shown = preview(world.desired(), world.observed())
    assert shown.ending is Ending.COMPLETE
    assert [str(each) for each in shown.steps] == [
        f"volume {_CLAIM} grows to 3Gi",
        "StatefulSet a-storage is deleted without its pods; it is created again with the new size "
        "of its volumes",
        "StatefulSet a-storage is created",
    ]


def test_preview_of_a_class_that_cannot_grow_has_no_step_and_says_why() -> None:
    world = started(storages=1)
    world.expandable = False
    world.specify_size("a", "3Gi")
    shown = preview(world.desired(), world.observed())
    assert shown.rounds == ()
    assert REFUSAL in shown.waits[0]


async def test_observer_asks_about_one_claim_of_each_kind_and_changes_nothing() -> None:
    world = started()
    world.expandable = False
    world.specify_size("a", "3Gi")
    before = {name: claim["metadata"]["resourceVersion"] for name, claim in world.claims().items()}
    environment = FakeEnvironment(StoredZnodes(world), Faults())
    desired = world.desired()
    observed = await observe(desired, FaultyKube(world, Faults()), environment, utc_now())
    assert observed.growth_refusals == {_CLAIM: REFUSAL}
    after = {name: claim["metadata"]["resourceVersion"] for name, claim in world.claims().items()}
    assert after == before


class UncheckedKube(FaultyKube):
    """An API server whose dry runs fail, as while a webhook for volume claims is down."""

    async def patch_refusal(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any]
    ) -> str | None:
        raise KubeError("500 failed calling webhook")


async def test_dry_run_that_fails_delays_only_the_growth() -> None:
    world = started()
    world.specify_size("a", "3Gi")
    del world.objects[ObjectKey("StatefulSet", "b-storage")]
    environment, kube = (
        FakeEnvironment(StoredZnodes(world), Faults()),
        UncheckedKube(world, Faults()),
    )
    desired = world.desired()
    observed = await observe(desired, kube, environment, utc_now())
    assert observed.growth_refusals == {_CLAIM: UNCHECKED}
    decided = plan(desired, observed)
    assert not any(isinstance(each, GrowVolume) for each in decided.steps)
    assert any(isinstance(each, ApplyObject) for each in decided.steps), "the set is repaired"
    (pool,) = (each for each in desired.own_pools if each.metadata.name == "a")
    conditions = pool_status(desired, observed, pool, _NOW).conditions
    (found,) = (each for each in conditions if each.type == "Resized")
    assert (found.status, found.reason) == ("False", "Resizing")
    assert f"{_CLAIM}: 1Gi of 3Gi, is enlarged as soon as the API server can check" in found.message
    assert found.message in decided.waits


def test_growth_that_fails_stops_only_other_growths() -> None:
    growth = GrowVolume(_CLAIM, "1", "3Gi")
    assert stops(growth, GrowVolume("data-a-storage-1", "1", "3Gi"))
    assert not stops(growth, CreateReplicas("a-storage-0:6101", (0,)))
    assert stops(AddFinalizer(), growth)


async def test_growth_of_a_claim_that_has_changed_is_refused() -> None:
    world = started(storages=1)
    world.specify_size("a", "3Gi")
    (grow,) = planned(world).steps
    assert isinstance(grow, GrowVolume)
    executor = Executor(
        world.desired(),
        FaultyKube(world, Faults()),
        FakeEnvironment(StoredZnodes(world), Faults()),
    )
    await executor.perform(grow)
    assert world.claims()[_CLAIM]["spec"]["resources"]["requests"]["storage"] == "3Gi"
    with pytest.raises(StepFailed, match="has changed"):
        await executor.perform(grow)


async def test_set_is_deleted_without_its_pods_and_only_with_its_uid() -> None:
    world = started(storages=1)
    executor = Executor(
        world.desired(),
        FaultyKube(world, Faults()),
        FakeEnvironment(StoredZnodes(world), Faults()),
    )
    await executor.perform(OrphanPods("a-storage", "another"))
    assert _SET in world.objects
    await executor.perform(OrphanPods("a-storage", world.objects[_SET]["metadata"]["uid"]))
    assert _SET not in world.objects
    assert ObjectKey("Pod", "a-storage-0") in world.objects


def test_claim_without_the_labels_is_not_enlarged_and_the_status_says_how_to_label_it() -> None:
    world = started()
    claim = world.claims()[_CLAIM]
    own, claim["metadata"]["labels"] = claim["metadata"]["labels"], {}
    world.specify_size("a", "3Gi")
    grown = [each.claim for each in step(world).steps if isinstance(each, GrowVolume)]
    assert grown == ["data-a-storage-1"]
    world.settle()
    decided = planned(world)
    assert decided.steps == ()
    text = (
        f"volume {_CLAIM}: 1Gi of 3Gi, is not enlarged, because its claim lacks labels of this "
        "cluster; if it belongs to the cluster, run: kubectl label persistentvolumeclaim "
        f"{_CLAIM} --namespace logs --overwrite app.kubernetes.io/name=waltz "
        "app.kubernetes.io/managed-by=waltz-operator waltz.dev/cluster=log "
        "waltz.dev/component=storage waltz.dev/pool=a"
    )
    assert text in decided.waits
    assert resized(world) == ("False", "Resizing", text)
    claim["metadata"]["labels"] = own
    assert [each.claim for each in step(world).steps if isinstance(each, GrowVolume)] == [_CLAIM]


def test_claim_without_the_labels_that_a_user_has_enlarged_is_followed_as_others() -> None:
    world = started(storages=1)
    world.specify_size("a", "3Gi")
    claim = world.claims()[_CLAIM]
    claim["metadata"]["labels"] = {}
    claim["spec"]["resources"]["requests"]["storage"] = "3Gi"
    assert "waits for its resize to begin" in resized(world)[2]
    assert status_of(world).requested_sizes == VolumeSizes()
