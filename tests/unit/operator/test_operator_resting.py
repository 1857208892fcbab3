"""A cluster at rest needs almost no requests, and any change of it is found in time."""

from __future__ import annotations

import asyncio
import datetime
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from tests.support.operator_faults import (
    FakeEnvironment,
    Faults,
    FaultyKube,
    RecordedEvents,
    StoredZnodes,
)
from tests.support.operator_world import NAMESPACE, World, cluster_resource, pool_resource
from waltz.testing import run
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ObservedCluster, ZooKeeperUnreachable
from waltz_operator.core.steps import EMPTY_PLAN
from waltz_operator.shell.controller import Controller, ReconcileResult
from waltz_operator.shell.kube_api import KubeError
from waltz_operator.shell.reconciler import Reconciler
from waltz_operator.shell.resting import pack

_BEGUN = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)
_MEASURED_SECONDS = 630.0
"""The time of one complete reading of the objects, and of the checks before and after it."""

_SERVERS = ObjectKey("Deployment", "log-server")


class CountingKube(FaultyKube):
    """An API server that counts the requests."""

    requests = 0

    async def get(self, kind: str, namespace: str, name: str) -> Any:
        self.requests += 1
        return await super().get(kind, namespace, name)

    async def find(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Any]:
        self.requests += 1
        return await super().find(kind, namespace, labels)

    async def patch(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any], *, part: str = ""
    ) -> None:
        self.requests += 1
        await super().patch(kind, namespace, name, change, part=part)


class Scene:
    """A cluster, and the controller that reconciles it."""

    def __init__(self) -> None:
        resource = cluster_resource(partitions=2)
        self.world = World(resource, [pool_resource(name) for name in "abc"])
        self.znodes = StoredZnodes(self.world)
        self.kube = CountingKube(self.world, Faults())
        time = asyncio.get_running_loop().time
        self.reconciler = Reconciler(
            self.kube,
            FakeEnvironment(self.znodes, Faults()),
            RecordedEvents(),
            operator_namespace="waltz-system",
            clock=lambda: _BEGUN + datetime.timedelta(seconds=time()),
        )
        self.controller = Controller(self.reconciler.reconcile, self.reconciler.check)

    async def start(self) -> None:
        """Reconcile until the cluster is at rest."""
        for _ in range(60):
            self.controller.enqueue(NAMESPACE, "log")
            await asyncio.sleep(1)
            await self.znodes.settle(self.world.desired())
            if self.condition("Healthy") == "True":
                break
        assert self.condition("Healthy") == "True"
        # The last reconcile has written a status, so another one follows by itself.
        await asyncio.sleep(3)

    def condition(self, kind: str) -> str | None:
        assert self.world.cluster is not None
        conditions = self.world.cluster.get("status", {}).get("conditions", ())
        return next((str(each["status"]) for each in conditions if each["type"] == kind), None)


def run_scene(test: Callable[[Scene], Awaitable[None]]) -> None:
    """Run a test on a started cluster, on virtual time."""

    async def act() -> None:
        scene = Scene()
        await scene.start()
        await test(scene)
        await scene.controller.close()

    run(act())


def test_cluster_at_rest_needs_fewer_than_two_requests_a_minute() -> None:
    async def rest(scene: Scene) -> None:
        before, checks = scene.kube.requests, scene.controller.metrics.reconciles
        await asyncio.sleep(_MEASURED_SECONDS)
        assert 0 < scene.kube.requests - before < 2 * _MEASURED_SECONDS / 60
        assert scene.controller.metrics.reconciles - checks >= _MEASURED_SECONDS / 15 - 1

    run_scene(rest)


def test_paused_cluster_needs_fewer_than_two_requests_a_minute() -> None:
    async def rest(scene: Scene) -> None:
        assert scene.world.cluster is not None
        scene.world.cluster["spec"]["paused"] = True
        scene.controller.enqueue(NAMESPACE, "log")
        await asyncio.sleep(60)
        before = scene.kube.requests
        await asyncio.sleep(_MEASURED_SECONDS)
        assert 0 < scene.kube.requests - before < 2 * _MEASURED_SECONDS / 60

    run_scene(rest)


def test_paused_cluster_is_at_rest_while_its_zookeeper_is_down() -> None:
    async def rest(scene: Scene) -> None:
        assert scene.world.cluster is not None
        scene.world.cluster["spec"]["paused"] = True
        scene.controller.enqueue(NAMESPACE, "log")
        scene.world.zookeeper_up = False
        await asyncio.sleep(60)
        before = scene.kube.requests
        await asyncio.sleep(_MEASURED_SECONDS)
        assert 0 < scene.kube.requests - before < 2 * _MEASURED_SECONDS / 60
        assert scene.world.pools["b"]["status"]["group"] == 1

    run_scene(rest)


def test_storage_that_fails_is_noticed_without_an_event_within_the_pause() -> None:
    async def fail(scene: Scene) -> None:
        scene.world.down.add(sorted(scene.world.disks)[0])
        await asyncio.sleep(16)
        assert scene.condition("Healthy") == "False"
        scene.world.down.clear()
        await asyncio.sleep(16)
        assert scene.condition("Healthy") == "True"

    run_scene(fail)


def test_object_whose_deletion_no_watch_reports_is_created_again_within_ten_minutes() -> None:
    async def delete(scene: Scene) -> None:
        del scene.world.objects[_SERVERS]
        await asyncio.sleep(300)
        assert _SERVERS not in scene.world.objects, "the test must not prove another reconcile"
        await asyncio.sleep(320)
        assert _SERVERS in scene.world.objects

    run_scene(delete)


def test_event_of_a_cluster_at_rest_causes_a_reconcile_at_once() -> None:
    async def delete(scene: Scene) -> None:
        del scene.world.objects[_SERVERS]
        scene.controller.enqueue(NAMESPACE, "log")
        await asyncio.sleep(1)
        assert _SERVERS in scene.world.objects

    run_scene(delete)


def test_failed_check_is_followed_by_a_reconcile() -> None:
    async def fail(scene: Scene) -> None:
        environment = scene.reconciler._environment
        failures = 1

        class FailsOnce(FakeEnvironment):
            async def metadata_store(self, desired: Any) -> Any:
                nonlocal failures
                failures -= 1
                if failures >= 0:
                    raise ValueError("unexpected")
                return await environment.metadata_store(desired)

        scene.reconciler._environment = FailsOnce(scene.znodes, Faults())
        before, failed = scene.kube.requests, scene.controller.metrics.failures
        await asyncio.sleep(18)
        assert scene.controller.metrics.failures == failed + 1
        assert scene.kube.requests > before

    run_scene(fail)


def test_objects_of_200_resting_clusters_need_few_megabytes() -> None:
    async def weigh(scene: Scene) -> None:
        (resting,) = scene.reconciler._resting.values()
        assert 200 * sys.getsizeof(resting.packed_objects) < 8 << 20
        observed = resting.observed()
        assert observed.objects.keys() == scene.world.objects.keys()
        found = await scene.reconciler.check(NAMESPACE, "log")
        assert found == resting.result

    run_scene(weigh)


@pytest.mark.parametrize("minutes", [-1, 0, 9, 11])
def test_resting_cluster_is_outdated_after_ten_minutes_or_if_the_clock_went_back(
    minutes: int,
) -> None:
    desired = World(cluster_resource(), []).desired()
    observed = ObservedCluster({}, ZooKeeperUnreachable("not observed"), 12.0)
    result = ReconcileResult(15.0, ready=True)
    resting = pack(desired, EMPTY_PLAN, result, observed, _BEGUN)
    assert resting.observed() == observed
    now = _BEGUN + datetime.timedelta(minutes=minutes)
    assert resting.is_outdated(now) is (minutes not in (0, 9))


def test_managed_fields_are_not_kept_and_the_problem_of_the_authority_is() -> None:
    world = World(cluster_resource(), [])
    metadata = {"name": "x", "uid": "1", "managedFields": [{"manager": "kubectl"}]}
    objects = {ObjectKey("Service", "x"): {"metadata": metadata, "spec": {"a": [1]}}}
    observed = ObservedCluster(
        objects, ZooKeeperUnreachable("not observed"), authority_problem="it lacks tls.crt"
    )
    resting = pack(
        world.desired(),
        EMPTY_PLAN,
        ReconcileResult(15.0, ready=True),
        observed,
        _BEGUN,
    )
    assert resting.observed().authority_problem == "it lacks tls.crt"
    kept = resting.observed().objects[ObjectKey("Service", "x")]
    assert kept == {"metadata": {"name": "x", "uid": "1"}, "spec": {"a": [1]}}
    assert "managedFields" in metadata, "the observed object is unchanged"


def test_failed_reconcile_of_a_cluster_at_rest_is_followed_by_a_reconcile() -> None:
    """A check would find the cluster as it was at rest, and the event would be lost."""

    async def fail(scene: Scene) -> None:
        get, failures = scene.kube.get, 1

        async def fail_once(kind: str, namespace: str, name: str) -> Any:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise KubeError("the API server does not answer")
            return await get(kind, namespace, name)

        scene.kube.get = fail_once  # type: ignore[method-assign]
        del scene.world.objects[_SERVERS]
        scene.controller.enqueue(NAMESPACE, "log")
        await asyncio.sleep(5)
        assert failures < 0
        assert _SERVERS in scene.world.objects

    run_scene(fail)
