"""Test the requests that the operator's steps send: every write must be conditional."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest

from tests.support.operator_faults import FakeEnvironment, Faults, FaultyKube, StoredZnodes
from tests.support.operator_world import NAMESPACE, World, cluster_resource, pool_resource
from waltz.metadata import MetadataStore
from waltz_operator.core.names import CLUSTER_LABEL, FINALIZER
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.resources import ObjectMeta
from waltz_operator.core.steps import (
    AddFinalizer,
    ClaimPool,
    CreateMetadata,
    DeleteMetadata,
    DeleteObject,
    ReleasePool,
    RemoveFinalizer,
    Step,
)
from waltz_operator.shell import executor as executor_module
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
        environment = cast(Environment, FakeEnvironment(StoredZnodes(self.world), Faults()))
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


async def test_of_two_clusters_that_claim_one_pool_one_gets_it() -> None:
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
