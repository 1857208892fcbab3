"""Test the requests that the operator's steps send: every write must be conditional."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest

from tests.support.operator_faults import FakeEnvironment, Faults, FaultyKube, StoredZnodes
from tests.support.operator_world import (
    NAMESPACE,
    World,
    cluster_resource,
    fresh_replica,
    pool_resource,
)
from waltz.admin.core.steps import CopyReplica, DropReplicas, SwitchOn
from waltz.admin.order_progress import ReplicaRefused
from waltz.metadata import MetadataStore, create_cluster
from waltz.metadata.cluster import Cluster
from waltz_operator.core.names import CLUSTER_LABEL, FINALIZER
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.resources import ObjectMeta
from waltz_operator.core.steps import (
    AddFinalizer,
    ClaimPool,
    CreateMetadata,
    DeleteMetadata,
    DeleteObject,
    IssueCertificates,
    ReleasePool,
    RemoveFinalizer,
    Step,
)
from waltz_operator.shell import certificate_steps
from waltz_operator.shell import executor as executor_module
from waltz_operator.shell.certificates import KeyPair, make_authority
from waltz_operator.shell.environment import Environment
from waltz_operator.shell.executor import Executor, StepFailed, perform_on_pool
from waltz_operator.shell.kube_api import Conflict, Kube

OTHER = "another-controller/finalizer"


class Scene:
    """A cluster and a pool at version 7, as the operator read them, and the API server."""

    def __init__(self, *finalizers: str) -> None:
        self.world = World(cluster_resource(pools=["a"]), [pool_resource("a")])
        assert self.world.cluster is not None
        for found in (self.world.cluster, self.world.pools["a"]):
            found["metadata"] |= {"resourceVersion": "7", "finalizers": list(finalizers)}
        self.kube = FaultyKube(self.world, Faults())
        self.znodes = StoredZnodes(self.world)
        environment = cast(Environment, FakeEnvironment(self.znodes, Faults()))
        self.executor = Executor(self.world.desired(), self.kube, environment)

    def metadata(self, kind: str) -> dict[str, Any]:
        found = self.world.cluster if kind == "WaltzCluster" else self.world.pools["a"]
        assert found is not None
        return cast(dict[str, Any], found["metadata"])

    def change(self, kind: str) -> None:
        """Let another controller add its finalizer to the resource."""
        metadata = self.metadata(kind)
        metadata["finalizers"] = [*metadata["finalizers"], OTHER]
        metadata["resourceVersion"] = "8"


PATCHES = [
    pytest.param(AddFinalizer(), "WaltzCluster", (), [FINALIZER], id="add finalizer"),
    pytest.param(RemoveFinalizer(), "WaltzCluster", (FINALIZER,), [], id="remove finalizer"),
    pytest.param(ClaimPool("a", "log"), "StoragePool", (), [FINALIZER], id="claim pool"),
    pytest.param(ReleasePool("a"), "StoragePool", (FINALIZER,), [], id="release pool"),
]


@pytest.mark.parametrize(("step", "kind", "before", "after"), PATCHES)
async def test_step_changes_the_resource_that_was_observed(
    step: Step, kind: str, before: tuple[str, ...], after: list[str]
) -> None:
    scene = Scene(*before)
    await scene.executor.perform(step)
    assert scene.metadata(kind)["finalizers"] == after


@pytest.mark.parametrize(("step", "kind", "before", "after"), PATCHES)
async def test_step_on_a_resource_that_changed_since_its_observation_fails(
    step: Step, kind: str, before: tuple[str, ...], after: list[str]
) -> None:
    scene = Scene(*before)
    scene.change(kind)
    with pytest.raises(StepFailed, match="has changed"):
        await scene.executor.perform(step)
    assert scene.metadata(kind)["finalizers"] == [*before, OTHER]


async def test_second_claim_of_a_pool_conflicts() -> None:
    scene = Scene()
    observed = ObjectMeta.model_validate(scene.metadata("StoragePool"))
    await perform_on_pool(scene.kube, observed, ClaimPool("a", "first"))
    with pytest.raises(Conflict):
        await perform_on_pool(scene.kube, observed, ClaimPool("a", "second"))
    assert scene.metadata("StoragePool")["labels"] == {CLUSTER_LABEL: "first"}


async def test_removed_finalizer_leaves_those_of_other_controllers() -> None:
    scene = Scene(OTHER, FINALIZER)
    await scene.executor.perform(RemoveFinalizer())
    await scene.executor.perform(ReleasePool("a"))
    for kind in ("WaltzCluster", "StoragePool"):
        assert scene.metadata(kind)["finalizers"] == [OTHER]


async def test_removal_of_the_finalizer_closes_the_connections_to_the_cluster() -> None:
    scene = Scene(FINALIZER)
    environment = FakeEnvironment(StoredZnodes(scene.world), Faults())
    await Executor(scene.world.desired(), scene.kube, environment).perform(RemoveFinalizer())
    assert environment.disconnected == [(NAMESPACE, "log")]


async def test_delete_names_the_uid_that_was_observed() -> None:
    calls: list[tuple[str, str, str, str]] = []

    class Deletions:
        async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
            calls.append((kind, namespace, name, uid))

    scene = Scene()
    executor = Executor(scene.world.desired(), cast(Kube, Deletions()), cast(Environment, object()))
    await executor.perform(DeleteObject(ObjectKey("Pod", "x"), "uid-1"))
    assert calls == [("Pod", NAMESPACE, "x", "uid-1")]


@pytest.mark.parametrize(
    ("key", "complete"),
    [
        pytest.param(UUID(int=1), True, id="another cluster"),
        pytest.param(World(cluster_resource(), []).desired().key, False, id="with a key"),
        pytest.param(None, False, id="without a key"),
    ],
)
async def test_metadata_that_changed_since_its_observation_is_not_deleted(
    key: UUID | None, complete: bool
) -> None:
    """Another operator has created the cluster again after this operator observed it."""
    world = World(cluster_resource(), [])
    desired, znodes = world.desired(), StoredZnodes(world)
    world.objects[ObjectKey("StatefulSet", "log-zookeeper")] = {"status": {}}
    environment = cast(Environment, FakeEnvironment(znodes, Faults()))
    executor = Executor(desired, FaultyKube(world, Faults()), environment)
    await executor.perform(CreateMetadata(desired.metadata_name, 1, desired.key))
    before = znodes.zookeeper.dump()
    with pytest.raises(StepFailed, match="has changed since it was observed"):
        await executor.perform(DeleteMetadata(desired.metadata_name, key, complete))
    assert znodes.zookeeper.dump() == before
    await executor.perform(DeleteMetadata(desired.metadata_name, desired.key, complete=True))
    assert await znodes.session.get(desired.root) is None


@pytest.mark.parametrize("lost", ["store/connection", "store"])
async def test_metadata_that_is_as_incomplete_as_observed_is_deleted(lost: str) -> None:
    world = World(cluster_resource(), [])
    desired, znodes = world.desired(), StoredZnodes(world)
    world.objects[ObjectKey("StatefulSet", "log-zookeeper")] = {"status": {}}
    environment = cast(Environment, FakeEnvironment(znodes, Faults()))
    executor = Executor(desired, FaultyKube(world, Faults()), environment)
    await executor.perform(CreateMetadata(desired.metadata_name, 1, desired.key))
    await _delete(znodes.session, f"{desired.root}/{lost}")
    key = None if lost == "store" else desired.key
    await executor.perform(DeleteMetadata(desired.metadata_name, key, complete=False))
    assert await znodes.session.get(desired.root) is None


async def _delete(session: MetadataStore, path: str) -> None:
    for name in (await session.children(path)).names:
        await _delete(session, f"{path}/{name}")
    await session.delete(path)


async def test_step_without_an_answer_fails_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hanging:
        async def metadata_store(self, desired: object) -> object:
            return await asyncio.Event().wait()

    monkeypatch.setattr(executor_module, "_STEP_SECONDS", 0.01)
    scene = Scene()
    executor = Executor(scene.world.desired(), scene.kube, cast(Environment, Hanging()))
    with pytest.raises(StepFailed, match=r"no answer within 0.01 s"):
        await executor.perform(CreateMetadata("logs/log", 1, scene.world.desired().key))


async def test_step_without_a_limit_that_gets_no_answer_names_no_limit() -> None:
    class Silent:
        async def metadata_store(self, desired: object) -> object:
            raise TimeoutError

    scene = Scene()
    executor = Executor(scene.world.desired(), scene.kube, cast(Environment, Silent()))
    with pytest.raises(StepFailed, match=r"no answer in time$"):
        await executor.perform(CopyReplica("a:6000", "b:6000", 0))


@pytest.mark.parametrize("step", [SwitchOn("b:6000", (0,)), CopyReplica("a:6000", "b:6000", 0)])
async def test_step_at_a_replica_that_its_storage_refuses_fails_with_the_advice(
    step: SwitchOn | CopyReplica,
) -> None:
    """Any other error would end the reconcile before it writes the statuses."""

    class Refusing:
        async def metadata_store(self, desired: object) -> None:
            return None

        async def replica_access(self, desired: object, cluster: object) -> Refusing:
            return self

        async def perform(self, step: object, may_continue: object) -> None:
            raise ReplicaRefused("storage b:6000: partition 0 is damaged: restore it")

    scene = Scene()
    executor = Executor(scene.world.desired(), scene.kube, cast(Environment, Refusing()))
    with pytest.raises(StepFailed, match=r"partition 0 is damaged: restore it$"):
        await executor.perform(step)


async def test_replica_that_zookeeper_assigns_is_not_dropped() -> None:
    scene = Scene(FINALIZER)
    assert scene.world.cluster is not None
    scene.world.cluster["spec"]["zookeeper"] = {"external": {"connectString": "zk:2181"}}
    desired = scene.world.desired()
    cluster = Cluster(scene.znodes.session, desired.root)
    await create_cluster(cluster.store, desired.root, "log", 2, key=desired.key)
    await cluster.add_storage_node("a:6000", 0, 6001)
    await cluster.assign_partitions("a:6000", (1,))
    scene.world.disks["a:6000"] = {p: fresh_replica(p) for p in range(2)}
    with pytest.raises(StepFailed, match="ZooKeeper assigns partition 1 to storage a:6000"):
        await scene.executor.perform(DropReplicas("a:6000", (0, 1), delete_files=True))
    assert sorted(scene.world.disks["a:6000"]) == [0, 1]
    await scene.znodes.load(desired)
    await scene.executor.perform(DropReplicas("a:6000", (0,), delete_files=True))
    assert sorted(scene.world.disks["a:6000"]) == [1]


async def test_authority_that_another_operator_has_created_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the certificates that it has signed would be refused."""
    scene = Scene()
    key = ObjectKey("Secret", "log-authority")
    theirs = {"metadata": {"name": key.name, "namespace": NAMESPACE, "uid": "theirs"}}

    def create_second(name: str) -> KeyPair:
        scene.world.objects[key] = theirs
        return make_authority(name)

    monkeypatch.setattr(certificate_steps, "make_authority", create_second)
    with pytest.raises(StepFailed, match="exists"):
        await scene.executor.perform(IssueCertificates(renew=False))
    assert scene.world.objects == {key: theirs}
