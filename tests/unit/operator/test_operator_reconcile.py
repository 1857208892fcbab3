"""The operator's shell against an API server that fails, loses answers and returns old lists."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.operator_faults import (
    FakeEnvironment,
    Faults,
    FaultyKube,
    Killed,
    RecordedEvents,
    StoredZnodes,
    delete_by_user,
)
from tests.support.operator_world import NAMESPACE, World, Znodes, cluster_resource, pool_resource
from waltz.metadata import MetadataStore
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import CLUSTER_LABEL, FINALIZER
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.status import cluster_status
from waltz_operator.core.steps import AddFinalizer, ClusterPlan
from waltz_operator.shell.kube_api import KubeError
from waltz_operator.shell.reconciler import IDLE_REQUEUE_SECONDS, Reconciler

MAX_RECONCILES = 400
_KUBERNETES_PAGE = Path(__file__).parents[3] / "docs" / "kubernetes.md"
_NOW = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)


class Operation:
    """A simulated world, and operators that reconcile it until they are killed."""

    def __init__(
        self, faults: Faults, *, pools: int = 3, partitions: int = 3, world: World | None = None
    ) -> None:
        if world is None:
            names = list("abcde"[:pools])
            resource = cluster_resource(pools=names, partitions=partitions)
            world = World(resource, [pool_resource(name) for name in names])
        self.world = world
        self.znodes = StoredZnodes(self.world)
        self.kube = FaultyKube(self.world, faults)
        self.environment = FakeEnvironment(self.znodes, faults)
        self.events = RecordedEvents()
        self.kills = 0
        self.reported_ready = False

    async def reconcile(self) -> float | None:
        """Reconcile once with a new operator, which may be killed; return when to do so again."""
        reconciler = Reconciler(
            self.kube,
            self.environment,
            self.events,
            operator_namespace="waltz-system",
            clock=lambda: _NOW,
        )
        try:
            result = await reconciler.reconcile(NAMESPACE, "log")
            self.reported_ready = result is not None and result.ready
            return None if result is None else result.requeue_seconds
        except KubeError:
            return 0.0
        except Killed:
            self.kills += 1
            return 0.0

    async def until_done(self) -> int:
        """Reconcile until an operator has nothing to do; return the number of reconciles."""
        for count in range(MAX_RECONCILES):
            if self.world.cluster is not None:
                await self.znodes.settle(self.world.desired())
            had_quorum = {p for p, opens in self.world.quorum_states() if opens}
            requeue = await self.reconcile()
            if self.world.cluster is not None:
                await self.znodes.load(self.world.desired())
            have_quorum = {p for p, opens in self.world.quorum_states() if opens}
            assert had_quorum <= have_quorum
            if requeue in (None, IDLE_REQUEUE_SECONDS):
                return count
        raise AssertionError(f"not done: {self.events.done[-5:]} {self.events.failures[-3:]}")

    def condition(self, kind: str) -> dict[str, object]:
        assert self.world.cluster is not None
        found = self.world.cluster["status"]["conditions"]
        return next(each for each in found if each["type"] == kind)


async def test_first_start_reaches_ready_and_status_matches_the_state() -> None:
    operation = Operation(Faults())
    await operation.reconcile()
    assert operation.world.cluster is not None
    await operation.reconcile()
    assert operation.condition("Ready")["status"] == "False"
    assert not operation.reported_ready
    await operation.until_done()
    status = operation.world.cluster["status"]
    assert operation.condition("Ready")["status"] == "True"
    assert operation.reported_ready
    assert operation.condition("Healthy")["status"] == "True"
    assert status["observedGeneration"] == 1
    assert (status["partitions"], status["storages"], status["servers"]) == ("3/3", "3/3", "2/2")
    assert operation.world.pools["b"]["status"]["group"] == 1
    assert operation.world.pools["b"]["status"]["cluster"] == "log"


async def test_cluster_whose_finalizer_a_user_removed_is_disconnected_when_it_is_gone() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    assert operation.environment.disconnected == []
    operation.world.cluster = None
    assert await operation.reconcile() is None
    assert operation.environment.disconnected == [(NAMESPACE, "log")]


class RecordingKube(FaultyKube):
    """Keeps the kinds of the objects whose status was written, in this order."""

    def __init__(self, world: World, faults: Faults) -> None:
        super().__init__(world, faults)
        self.statuses: list[str] = []

    async def patch(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any], *, part: str = ""
    ) -> None:
        if part == "status":
            self.statuses.append(kind)
        await super().patch(kind, namespace, name, change, part=part)


async def test_status_of_the_cluster_is_written_after_those_of_its_pools() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    operation.kube = kube = RecordingKube(operation.world, Faults())
    operation.world.down.update(sorted(operation.world.disks))
    for pool in "abc":
        operation.world.objects[ObjectKey("StatefulSet", f"{pool}-storage")]["status"] = {}
    await operation.reconcile()
    assert kube.statuses == ["StoragePool", "StoragePool", "StoragePool", "WaltzCluster"]


async def test_ready_is_false_without_quorum_and_before_a_new_generation_is_reconciled() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    world = operation.world
    for storage in sorted(world.disks)[:1]:
        world.down.add(storage)
    await operation.reconcile()
    assert operation.condition("Ready")["status"] == "True", "two of three are a quorum"
    assert operation.condition("Healthy")["status"] == "False"
    world.down.update(sorted(world.disks)[:2])
    await operation.reconcile()
    assert operation.condition("Ready") == {
        "type": "Ready",
        "status": "False",
        "reason": "NoQuorum",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T12:00:00Z",
        "message": operation.condition("Ready")["message"],
    }
    await operation.until_done()
    assert world.cluster is not None
    world.cluster["metadata"]["generation"] = 2
    world.cluster["spec"]["servers"] = {"replicas": 3}
    await operation.reconcile()
    assert operation.condition("Ready")["status"] == "False"
    assert world.cluster["status"]["observedGeneration"] == 1
    await operation.until_done()
    assert operation.condition("Ready")["observedGeneration"] == 2


async def test_reconciled_is_false_with_its_own_reason_while_a_ready_cluster_is_repaired() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    del operation.world.objects[ObjectKey("Deployment", "log-server")]
    await operation.reconcile()
    assert operation.condition("Ready")["reason"] == "AllPartitionsServed"
    reconciled = operation.condition("Reconciled")
    assert (reconciled["status"], reconciled["reason"]) == ("False", "Reconciling")


async def test_paused_cluster_does_not_observe_a_new_generation() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    cluster = operation.world.cluster
    assert cluster is not None
    cluster["metadata"]["generation"] = 2
    cluster["spec"] |= {"paused": True, "servers": {"replicas": 3}}
    await operation.reconcile()
    ready = operation.condition("Ready")
    assert (ready["status"], ready["reason"], ready["observedGeneration"]) == ("False", "Paused", 1)
    assert "set spec.paused to false" in str(ready["message"])
    reconciled = operation.condition("Reconciled")
    assert (reconciled["status"], reconciled["reason"]) == ("False", "Paused")
    cluster["spec"]["paused"] = False
    await operation.until_done()
    assert operation.condition("Ready")["observedGeneration"] == 2


async def test_deleted_cluster_is_deleted_although_it_is_paused() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    assert operation.world.cluster is not None
    operation.world.cluster["spec"]["paused"] = True
    delete_by_user(operation.world)
    await operation.until_done()
    assert operation.world.cluster is None
    assert operation.world.objects == {}


@pytest.mark.parametrize("existed", [False, True])
async def test_readiness_is_unknown_while_zookeeper_of_an_existing_cluster_is_away(
    existed: bool,
) -> None:
    operation = Operation(Faults())
    if existed:
        await operation.until_done()
    else:
        await operation.reconcile()
    operation.world.objects.pop(ObjectKey("StatefulSet", "log-zookeeper"), None)
    await operation.reconcile()
    for kind in ("Ready", "Healthy"):
        condition = operation.condition(kind)
        assert condition["status"] == ("Unknown" if existed else "False")
        assert condition["reason"] == "ZooKeeperUnreachable"
        assert "does not answer" in str(condition["message"])


async def test_status_names_the_step_that_failed() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    failure = "Deployment log-server: the quota of the namespace is exceeded"
    world, steps = operation.world, (AddFinalizer(),)
    status = cluster_status(
        world.desired(), world.observed(), ClusterPlan(steps), "2026-01-01T12:00:00Z", failure
    )
    reconciled = next(each for each in status.conditions if each.type == "Reconciled")
    assert (reconciled.status, reconciled.reason) == ("False", "StepFailed")
    assert failure in reconciled.message
    assert failure in status.message


class RefusingKube(FaultyKube):
    """An API server that refuses every StatefulSet, and keeps what it is asked to write."""

    def __init__(self, world: World) -> None:
        super().__init__(world, Faults())
        self.written: list[str] = []

    async def create(self, body: Mapping[str, Any]) -> None:
        self._note(body)
        await super().create(body)

    async def apply(self, body: Mapping[str, Any]) -> None:
        self._note(body)
        await super().apply(body)

    def _note(self, body: Mapping[str, Any]) -> None:
        self.written.append(body["kind"])
        if body["kind"] == "StatefulSet":
            raise KubeError("the quota of the namespace is exceeded")


async def test_steps_after_a_failed_one_are_not_performed() -> None:
    operation = Operation(Faults())
    operation.kube = kube = RefusingKube(operation.world)
    refusals = 0
    for _ in range(10):
        kube.written.clear()
        await operation.reconcile()
        if "StatefulSet" in kube.written:
            refusals += 1
            assert kube.written.index("StatefulSet") == len(kube.written) - 1
    assert refusals > 1
    assert "quota" in str(operation.condition("Reconciled")["message"])


class BrokenEnvironment(FakeEnvironment):
    """An environment whose connection to ZooKeeper has a defect."""

    async def metadata_store(self, desired: DesiredCluster) -> MetadataStore:
        raise TypeError("unexpected")


async def test_unexpected_exception_becomes_a_condition_and_an_event_and_is_raised() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    environment, operation.environment = (
        operation.environment,
        BrokenEnvironment(operation.znodes, Faults()),
    )
    for _ in range(2):
        with pytest.raises(TypeError, match="unexpected"):
            await operation.reconcile()
    reconciled = operation.condition("Reconciled")
    assert (reconciled["status"], reconciled["reason"]) == ("False", "ReconcileFailed")
    assert "TypeError: unexpected" in str(reconciled["message"])
    assert operation.condition("Ready")["status"] == "Unknown"
    assert operation.condition("Updated")["status"] == "True", "the other conditions stay"
    assert operation.events.failures[-1].startswith("ReconcileFailed: ")
    assert operation.world.cluster is not None
    assert operation.world.cluster["status"]["partitions"] == "3/3", "the other fields stay"
    operation.environment = environment
    await operation.until_done()
    assert operation.condition("Reconciled")["status"] == "True"
    assert operation.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("kind", ["WaltzCluster", "StoragePool"])
async def test_invalid_resource_becomes_a_condition_that_names_the_field(kind: str) -> None:
    operation = Operation(Faults())
    await operation.until_done()
    world = operation.world
    assert world.cluster is not None
    if kind == "WaltzCluster":
        world.cluster["spec"]["partitions"] = "many"
    else:
        world.pools["a"]["spec"]["storages"] = "many"
    objects = dict(world.objects)
    assert await operation.reconcile() == IDLE_REQUEUE_SECONDS
    reconciled = operation.condition("Reconciled")
    assert (reconciled["status"], reconciled["reason"]) == ("False", "InvalidResource")
    field = "spec.partitions" if kind == "WaltzCluster" else "spec.storages"
    assert f"{kind} {'log' if kind == 'WaltzCluster' else 'a'}" in str(reconciled["message"])
    assert field in str(reconciled["message"])
    assert operation.events.failures[-1].startswith("InvalidResource: ")
    assert world.objects == objects


async def test_healthy_is_false_while_a_member_of_zookeeper_is_not_ready() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    members = operation.world.objects[ObjectKey("StatefulSet", "log-zookeeper")]
    members["status"]["readyReplicas"] = 2
    await operation.reconcile()
    assert operation.condition("Ready")["status"] == "True"
    healthy = operation.condition("Healthy")
    assert (healthy["status"], healthy["reason"]) == ("False", "SomethingMissing")
    assert "StatefulSet log-zookeeper has 2 of 3 pods ready" in str(healthy["message"])
    await operation.until_done()
    assert operation.condition("Healthy")["status"] == "True"


async def test_updated_is_false_while_pods_run_an_older_version() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    assert operation.condition("Updated")["status"] == "True"
    servers = operation.world.objects[ObjectKey("Deployment", "log-server")]
    servers["status"]["updatedReplicas"] = 1
    await operation.reconcile()
    updated = operation.condition("Updated")
    assert (updated["status"], updated["reason"]) == ("False", "PodsOutdated")
    assert "log-server has 1 of 2 pods of its current version" in str(updated["message"])
    servers["status"] |= {"updatedReplicas": 2, "observedGeneration": 1}
    servers["metadata"]["generation"] = 2
    await operation.reconcile()
    assert operation.condition("Updated")["status"] == "False", "Kubernetes has not seen the change"


async def test_status_message_quotes_a_pod_in_crash_loop() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    labels = operation.world.objects[ObjectKey("StatefulSet", "a-storage")]["metadata"]["labels"]
    message = "starting\nwaltz-storage: the directory is of another cluster"
    operation.world.objects[ObjectKey("Pod", "a-storage-0")] = {
        "metadata": {"name": "a-storage-0", "labels": labels},
        "status": {
            "containerStatuses": [
                {
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"message": message}},
                }
            ]
        },
    }
    operation.world.down.add(sorted(operation.world.disks)[0])
    await operation.reconcile()
    assert operation.world.cluster is not None
    message = operation.world.cluster["status"]["message"]
    assert "pod a-storage-0: waltz-storage: the directory is of another cluster" in message


async def test_documentation_lists_every_condition() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    reported = {
        (kind, each["type"])
        for kind, resource in (
            ("WaltzCluster", operation.world.cluster),
            ("StoragePool", operation.world.pools["a"]),
        )
        if resource is not None
        for each in resource["status"]["conditions"]
    }
    page = _KUBERNETES_PAGE.read_text()
    listed = re.findall(r"^\| (\w+) \| \*\*(\w+)\*\* \|", page, re.MULTILINE)
    assert set(listed) == reported, "update the table of conditions in docs/kubernetes.md"


async def count_calls() -> int:
    faults = Faults()
    await Operation(faults, pools=1, partitions=2).until_done()
    return faults.calls


async def test_operator_killed_after_any_call_reaches_ready() -> None:
    for kill_at in range(1, await count_calls() + 1):
        faults = Faults()
        faults.kill_at = kill_at
        operation = Operation(faults, pools=1, partitions=2)
        await operation.until_done()
        assert operation.kills == 1
        assert operation.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("seed", range(25))
async def test_unreliable_api_server_delays_start_and_deletion_only(seed: int) -> None:
    faults = Faults(random.Random(seed))
    operation = Operation(faults)
    await operation.until_done()
    faults.dice = None
    await operation.until_done()
    assert operation.condition("Ready")["status"] == "True"
    assert isinstance(operation.world.znodes, Znodes)
    for partition in range(3):
        assert len(operation.world.view(partition).replicas) == 3
    delete_by_user(operation.world)
    faults.dice = random.Random(seed)
    await operation.until_done()
    assert operation.world.cluster is None
    assert operation.world.objects == {}
    assert operation.world.pools == {}


async def test_incomplete_own_metadata_is_deleted_and_created_again() -> None:
    operation = Operation(Faults())
    desired = operation.world.desired()
    await operation.znodes.session.create(desired.root, None)
    await operation.until_done()
    assert "the cluster logs/log is deleted in ZooKeeper" in operation.events.done


async def test_incomplete_metadata_with_foreign_znodes_is_never_deleted() -> None:
    operation = Operation(Faults())
    session, root = operation.znodes.session, operation.world.desired().root
    await session.create(root, None)
    await session.create(f"{root}/foreign", b"x")
    for _ in range(8):
        await operation.znodes.settle(operation.world.desired())
        await operation.reconcile()
    assert (await session.children(root)).names == ("foreign",)
    assert operation.condition("Ready")["reason"] == "NeedsAttention"


@pytest.mark.parametrize("nested", [False, True])
async def test_deletion_keeps_the_root_if_it_has_foreign_znodes(nested: bool) -> None:
    operation = Operation(Faults())
    assert operation.world.cluster is not None
    operation.world.cluster["spec"]["zookeeper"] = {"external": {"connectString": "zk:2181"}}
    for pool in operation.world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    await operation.until_done()
    session, root = operation.znodes.session, operation.world.desired().root
    if nested:
        await session.create(f"{root}/another", None)
    delete_by_user(operation.world)
    await operation.until_done()
    assert operation.world.cluster is None
    assert (await session.get(root) is not None) is nested


async def test_deletion_releases_a_leaving_pool_and_keeps_the_znodes_of_its_log() -> None:
    operation = Operation(Faults())
    world = operation.world
    assert world.cluster is not None
    world.cluster["spec"]["zookeeper"] = {"external": {"connectString": "zk:2181"}}
    for pool in world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    await operation.until_done()
    session, root = operation.znodes.session, world.desired().root
    world.pools["d"] = leaving = pool_resource("d")
    leaving["metadata"] |= {"labels": {CLUSTER_LABEL: "log"}, "finalizers": [FINALIZER]}
    world.cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    await operation.until_done()
    assert world.cluster is None
    assert await session.get(root) is not None
    assert leaving["metadata"]["finalizers"] == []


async def test_pool_of_a_vanished_cluster_becomes_usable_for_another_cluster() -> None:
    """A cluster whose finalizer was removed by hand has not released its pools."""
    operation = Operation(Faults())
    operation.world.pools["a"]["metadata"] |= {
        "labels": {CLUSTER_LABEL: "vanished"},
        "finalizers": [FINALIZER],
    }
    await operation.until_done()
    assert operation.condition("Ready")["status"] == "True"
    assert operation.world.pools["a"]["metadata"]["labels"] == {CLUSTER_LABEL: "log"}
    assert "StoragePool a is released" in operation.events.done


async def test_deleted_pool_whose_release_fails_is_released_when_its_cluster_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No event follows for such a pool: it was deleted while its cluster existed."""
    operation = Operation(Faults())
    await operation.until_done()
    world, patch, failures = operation.world, operation.kube.patch, 0
    world.pools["d"] = pool_resource("d")
    for resource in (world.pools["d"], world.cluster):
        assert resource is not None
        resource["metadata"] |= {
            "finalizers": [FINALIZER],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        }
    world.pools["d"]["metadata"]["labels"] = {CLUSTER_LABEL: "log"}
    world.deleting_seconds = 100.0

    async def fail_once(
        kind: str, namespace: str, name: str, change: Mapping[str, Any], *, part: str = ""
    ) -> None:
        nonlocal failures
        if (kind, name) == ("StoragePool", "d") and part != "status" and failures == 0:
            failures += 1
            raise KubeError("500 etcd leader changed")
        await patch(kind, namespace, name, change, part=part)

    monkeypatch.setattr(operation.kube, "patch", fail_once)
    await operation.until_done()
    assert failures == 1
    assert world.cluster is None
    assert "d" not in world.pools


class ReplacedClusterKube(FaultyKube):
    """An API server where a user replaces the cluster by a new one of its name.

    This happens before the first status of the cluster is written: either before the operator reads
    the cluster for this write, or between this read and the write.
    """

    def __init__(self, world: World, *, after_read: bool) -> None:
        super().__init__(world, Faults())
        self._after_read = after_read
        self._reads = 0
        self.replaced = False

    async def get(self, kind: str, namespace: str, name: str) -> Any:
        if kind == "WaltzCluster":
            self._reads += 1
            # The first read begins the reconcile.
            if self._reads > 1 and not self._after_read:
                self._replace()
        return await super().get(kind, namespace, name)

    async def patch(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any], *, part: str = ""
    ) -> None:
        if (kind, part) == ("WaltzCluster", "status"):
            self._replace()
        await super().patch(kind, namespace, name, change, part=part)

    def _replace(self) -> None:
        cluster = self._world.cluster
        assert cluster is not None
        if not self.replaced:
            self.replaced = True
            new = {"uid": "new", "resourceVersion": "new", "finalizers": []}
            self._world.cluster = {
                **cluster,
                "metadata": cluster["metadata"] | new,
                "status": {},
            }


@pytest.mark.parametrize("after_read", [False, True])
async def test_status_of_a_deleted_cluster_is_not_written_to_a_new_one_of_its_name(
    after_read: bool,
) -> None:
    """With the key of the deleted cluster, the new one would count as one that was lost."""
    operation = Operation(Faults())
    await operation.until_done()
    world = operation.world
    operation.kube = kube = ReplacedClusterKube(world, after_read=after_read)
    world.down.add(sorted(world.disks)[0])
    await operation.reconcile()
    assert kube.replaced
    assert world.cluster is not None
    assert world.cluster["metadata"]["uid"] == "new"
    assert world.cluster["status"] == {}


async def test_group_of_a_pool_is_removed_from_its_status_when_it_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operation = Operation(Faults())
    await operation.until_done()
    assert operation.world.pools["b"]["status"]["group"] == 1
    monkeypatch.setattr("waltz_operator.core.pool_status.groups_of", lambda *_: {})
    await operation.reconcile()
    assert operation.world.pools["b"]["status"].get("group") is None


async def test_finalizer_of_an_orphaned_pool_is_removed() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    operation.world.pools["a"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    reconciler = Reconciler(
        operation.kube, operation.environment, operation.events, operator_namespace="x"
    )
    await reconciler.release_orphaned_pool(NAMESPACE, "a")
    assert "a" in operation.world.pools, "its cluster still exists"
    operation.world.cluster = None
    await reconciler.release_orphaned_pool(NAMESPACE, "a")
    assert "a" not in operation.world.pools
