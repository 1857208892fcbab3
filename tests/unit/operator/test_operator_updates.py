"""An operator of another version restarts no pod unasked, and updates the pods when it is asked."""

from __future__ import annotations

from copy import deepcopy

import pytest

from tests.support.growth_world import GrowthWorld
from tests.support.operator_faults import Faults
from tests.support.operator_world import cluster_resource, pool_resource
from tests.support.other_rendering import render_as, rendered_by
from tests.support.rolling_world import RollingWorld
from tests.unit.operator.test_operator_plan_properties import reach
from tests.unit.operator.test_operator_reconcile import Operation
from waltz_operator.core.names import POD_TEMPLATE_ANNOTATION, UPDATE_PODS_ANNOTATION
from waltz_operator.core.objects import Manifest, ObjectKey, storage_set
from waltz_operator.core.objects.manifest import with_template
from waltz_operator.core.planning import plan
from waltz_operator.core.planning.updates import kept_workloads
from waltz_operator.core.preview import Ending, preview, report
from waltz_operator.core.preview.kubernetes import with_applied
from waltz_operator.core.resources import Condition
from waltz_operator.core.status import cluster_status
from waltz_operator.core.steps import ReplacePod

_NOW = "2026-01-01T12:00:00Z"
_MEMBERS = ["log-zookeeper-1", "log-zookeeper-2", "log-zookeeper-0"]
_STORAGES = ["a-storage-0", "b-storage-0", "c-storage-0"]
_WORKLOADS = (
    ObjectKey("StatefulSet", "log-zookeeper"),
    ObjectKey("StatefulSet", "a-storage"),
    ObjectKey("StatefulSet", "b-storage"),
    ObjectKey("StatefulSet", "c-storage"),
    ObjectKey("Deployment", "log-server"),
)


def started() -> GrowthWorld:
    resource = cluster_resource(zookeeper={"managed": {"members": 3}})
    world = GrowthWorld(resource, [pool_resource(name) for name in "abc"])
    reach(world)
    return world


def request(world: RollingWorld, value: str) -> None:
    assert world.cluster is not None
    world.cluster["metadata"]["annotations"] = {UPDATE_PODS_ANNOTATION: value}


def renderings(world: RollingWorld) -> set[str | None]:
    """Return the versions whose renderings the workloads have."""
    return {rendered_by(world.objects[key]["spec"]["template"]) for key in _WORKLOADS}


def update_condition(world: RollingWorld) -> Condition:
    desired, observed = world.desired(), world.observed()
    status = cluster_status(desired, observed, plan(desired, observed), _NOW)
    return next(each for each in status.conditions if each.type == "UpdateAvailable")


def shown(world: RollingWorld) -> list[str]:
    return list(report(preview(world.desired(), world.observed())))


def test_operator_of_another_version_plans_nothing_and_reports_the_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = started()
    assert update_condition(world).reason == "NoUpdate"
    render_as(monkeypatch, "newer")
    assert plan(world.desired(), world.observed()).done
    assert kept_workloads(world.desired(), world.observed()) == _WORKLOADS
    found = update_condition(world)
    assert (found.status, found.reason) == ("True", "PodsOfOtherVersion")
    assert found.message.startswith(
        "5 workloads run the pods that an operator of another version has specified: "
        "StatefulSet log-zookeeper, StatefulSet a-storage"
    )
    assert found.message.endswith(
        "kubectl annotate waltzcluster log --namespace logs --overwrite "
        "waltz.dev/update-pods=$(date +%s)"
    )
    assert shown(world) == [
        f"not updated: {found.message}",
        "nothing to do: the cluster is as its resources specify",
    ]


def test_requested_update_replaces_all_pods_by_the_rules_of_a_roll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = started()
    render_as(monkeypatch, "newer")
    request(world, "1")
    foreseen = preview(world.desired(), world.observed())
    assert [step.pod for step in foreseen.steps if isinstance(step, ReplacePod)] == [
        *_MEMBERS,
        *_STORAGES,
    ]
    assert (foreseen.ending, foreseen.not_updated) == (Ending.COMPLETE, "")
    reach(world)
    assert world.replaced == [*_MEMBERS, *_STORAGES]
    assert renderings(world) == {"newer"}
    assert update_condition(world).status == "False"


def test_way_back_to_the_earlier_operator_restarts_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    world = started()
    render_as(monkeypatch, "newer")
    request(world, "1")
    reach(world)
    world.replaced.clear()
    monkeypatch.undo()
    reach(world)
    assert world.replaced == []
    assert renderings(world) == {"newer"}
    request(world, "2")
    reach(world)
    assert {*world.replaced} == {*_MEMBERS, *_STORAGES}
    assert renderings(world) == {None}


def test_restart_of_one_pool_updates_its_storages_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = started()
    render_as(monkeypatch, "newer")
    world.pools["b"]["spec"]["restartedAt"] = "2026-01-31T12:00:00Z"
    reach(world)
    assert world.replaced == ["b-storage-0"]
    assert kept_workloads(world.desired(), world.observed()) == (*_WORKLOADS[:2], *_WORKLOADS[3:])


def test_change_that_is_not_applied_yet_is_no_update_of_the_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = started()
    render_as(monkeypatch, "newer")
    world.pools["b"]["spec"]["restartedAt"] = "2026-01-31T12:00:00Z"
    expected = (*_WORKLOADS[:2], *_WORKLOADS[3:])
    assert kept_workloads(world.desired(), world.observed()) == expected, "before any step"


def test_change_that_no_pod_depends_on_restarts_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    world = started()
    render_as(monkeypatch, "newer")
    assert world.cluster is not None
    world.cluster["spec"]["servers"] = {"replicas": 3}
    reach(world)
    assert world.replaced == []
    assert renderings(world) == {None}
    assert world.objects[ObjectKey("Deployment", "log-server")]["spec"]["replicas"] == 3


def test_edited_template_gets_back_what_the_earlier_operator_has_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = started()
    key = ObjectKey("StatefulSet", "a-storage")
    before = world.objects[key]["spec"]["template"]["spec"]["containers"][0]["env"]
    render_as(monkeypatch, "newer")
    world.objects[key]["spec"]["template"]["spec"]["containers"][0]["env"] = []
    (step,) = plan(world.desired(), world.observed()).steps
    world.perform(step)
    assert world.objects[key]["spec"]["template"]["spec"]["containers"][0]["env"] == before


def test_removed_record_is_written_again_without_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    world = started()
    assert world.cluster is not None
    world.cluster["status"] = {"observedGeneration": world.cluster["metadata"]["generation"]}
    render_as(monkeypatch, "newer")
    for key in _WORKLOADS:
        del world.objects[key]["metadata"]["annotations"][POD_TEMPLATE_ANNOTATION]
        # What the operators of two versions apply differs, because the record was never written.
        world.objects[key]["metadata"]["annotations"]["waltz.dev/manifest"] = "earlier"
    assert shown(world)[-1] == "then the cluster is as its resources specify"
    assert not any("replaced" in line for line in shown(world))
    reach(world)
    assert world.replaced == []
    assert kept_workloads(world.desired(), world.observed()) == _WORKLOADS


def test_set_with_pods_of_another_version_is_not_created_again_for_larger_volumes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the StatefulSet, the template of its pods would not be known."""
    world = started()
    render_as(monkeypatch, "newer")
    for pool in world.pools.values():
        pool["spec"]["volumes"]["data"]["size"] = "2Gi"
    reach(world)
    assert (world.orphaned, world.replaced) == ([], [])
    assert (world.capacities(), world.template_sizes()) == ({"2Gi"}, {"1Gi"})
    request(world, "1")
    reach(world)
    assert world.orphaned == ["a-storage", "b-storage", "c-storage"]
    assert world.template_sizes() == {"2Gi"}
    assert world.replaced == [*_MEMBERS, *_STORAGES]


async def test_reconcile_writes_the_condition_and_repairs_with_the_kept_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operation = Operation(Faults())
    await operation.until_done()
    key = ObjectKey("StatefulSet", "a-storage")
    live = operation.world.objects[key]
    kept = live["metadata"]["annotations"][POD_TEMPLATE_ANNOTATION]
    render_as(monkeypatch, "newer")
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "of a person"
    await operation.until_done()
    assert operation.condition("UpdateAvailable")["status"] == "True"
    assert operation.condition("Healthy")["status"] == "True"
    live = operation.world.objects[key]
    assert live["metadata"]["annotations"][POD_TEMPLATE_ANNOTATION] == kept
    (container,) = live["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "waltz-storage:0.1.0"
    assert rendered_by(live["spec"]["template"]) is None
    assert operation.world.cluster is not None
    operation.world.cluster["metadata"]["annotations"] = {UPDATE_PODS_ANNOTATION: "1"}
    await operation.until_done()
    assert operation.condition("UpdateAvailable")["status"] == "False"
    assert rendered_by(operation.world.objects[key]["spec"]["template"]) == "newer"


def applied_without(world: RollingWorld, *path: str) -> bool:
    """Whether the preview of an apply without one field of a StatefulSet replaces its pods."""
    desired, key = world.desired(), ObjectKey("StatefulSet", "a-storage")
    rendered = storage_set(desired.cluster, desired.own_pools[0], 1)
    body = deepcopy(dict(rendered.body))
    parent = body["spec"]
    for name in path[:-1]:
        parent = parent[name]
    del parent[path[-1]]
    wanted = with_template(Manifest(key, body), body["spec"]["template"], "")
    after = with_applied(world.objects, wanted)
    revisions = {each[key]["status"]["updateRevision"] for each in (world.objects, after)}
    return len(revisions) > 1


def test_preview_of_a_removed_field_replaces_pods_only_if_it_is_one_of_the_template() -> None:
    world = started()
    assert applied_without(world, "template", "spec", "enableServiceLinks")
    assert not applied_without(world, "revisionHistoryLimit")
