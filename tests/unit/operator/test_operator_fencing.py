"""An operator that may have lost the Lease sends no write: not to Kubernetes, not to ZooKeeper."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from tests.support.operator_faults import FakeEnvironment, Faults, FaultyKube, StoredZnodes
from tests.support.operator_world import NAMESPACE, World, cluster_resource, pool_resource
from waltz.admin.core.steps import RegisterStorage
from waltz.metadata.cluster import Cluster
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.steps import AddFinalizer, CreateMetadata
from waltz_operator.shell.environment import Environment
from waltz_operator.shell.executor import Executor, StepFailed
from waltz_operator.shell.fencing import LeaderEnvironment, LeaderKube, LeaseExpired


class Scene:
    """A cluster, and connections whose writes are allowed while ``leads`` is true."""

    def __init__(self) -> None:
        self.leads = True
        self.faults = Faults()
        self.world = World(cluster_resource(pools=["a"]), [pool_resource("a")])
        self.znodes = StoredZnodes(self.world)
        self.plain = FaultyKube(self.world, self.faults)
        self.kube = LeaderKube(self.plain, lambda: self.leads)
        plain = cast(Environment, FakeEnvironment(self.znodes, self.faults))
        self.environment = LeaderEnvironment(plain, lambda: self.leads)


BODY = {"kind": "Service", "metadata": {"name": "x", "namespace": NAMESPACE, "uid": "1"}}
WRITES: dict[str, Callable[[LeaderKube], Awaitable[None]]] = {
    "create": lambda kube: kube.create(BODY),
    "apply": lambda kube: kube.apply(BODY),
    "patch": lambda kube: kube.patch("WaltzCluster", NAMESPACE, "log", {"metadata": {}}),
    "delete": lambda kube: kube.delete("Service", NAMESPACE, "x", "1"),
}


@pytest.mark.parametrize("verb", WRITES)
async def test_write_to_the_api_server_is_sent_only_while_this_operator_leads(verb: str) -> None:
    scene = Scene()
    scene.leads = False
    with pytest.raises(LeaseExpired, match="another operator may be active"):
        await WRITES[verb](scene.kube)
    assert scene.faults.calls == 0
    assert await scene.kube.get("Service", NAMESPACE, "x") is None
    scene.leads = True
    await WRITES[verb](scene.kube)
    assert scene.faults.calls == 1


async def test_write_to_zookeeper_is_sent_only_while_this_operator_leads() -> None:
    scene = Scene()
    scene.world.objects.clear()
    scene.world.cluster = cluster_resource(
        pools=["a"], zookeeper={"external": {"connectString": "zk:2181"}}
    )
    store = await scene.environment.metadata_store(scene.world.desired())
    await store.create("/x", b"1")
    scene.leads = False
    for write in (store.create("/y", b"1"), store.set("/x", b"2", 0), store.delete("/x")):
        with pytest.raises(LeaseExpired):
            await write
    assert (await store.children("/")).names == ("x",)
    node = await store.get("/x")
    assert node is not None
    assert node.data == b"1"


async def test_steps_of_an_operator_that_lost_the_lease_fail_without_effect() -> None:
    scene = Scene()
    scene.world.cluster = cluster_resource(
        pools=["a"], zookeeper={"external": {"connectString": "zk:2181"}}
    )
    desired = scene.world.desired()
    executor = Executor(desired, scene.kube, scene.environment)
    create = CreateMetadata(desired.metadata_name, 4, desired.key)
    scene.leads = False
    for step in (AddFinalizer(), create):
        with pytest.raises(StepFailed, match="another operator may be active"):
            await executor.perform(step)
    scene.leads = True
    await executor.perform(create)
    scene.leads = False
    with pytest.raises(StepFailed, match="another operator may be active"):
        await executor.perform(RegisterStorage("a-storage-0:6000", 0, 6001))
    maps = await Cluster(scene.znodes.session, desired.root).storage_maps()
    assert not maps.groups.groups


async def test_writes_of_the_leader_reach_zookeeper() -> None:
    scene = Scene()
    scene.world.cluster = cluster_resource(
        pools=["a"], zookeeper={"external": {"connectString": "zk:2181"}}
    )
    store = await scene.environment.metadata_store(scene.world.desired())
    await store.create("/x", b"1")
    assert await store.set("/x", b"2", 0) == 1
    node = await scene.znodes.session.get("/x")
    assert node is not None
    assert node.data == b"2"
    await store.delete("/x", 1)
    assert await scene.znodes.session.get("/x") is None
    assert store.health is scene.znodes.session.health


async def test_calls_that_write_nothing_need_no_lease() -> None:
    scene = Scene()
    scene.leads = False
    called: list[str] = []

    class Recorded:
        async def disconnect(self, namespace: str, name: str) -> None:
            called.append("disconnect")

        def forget_certificates(self, desired: DesiredCluster) -> None:
            called.append("forget")

        async def zookeeper_leader(self, desired: DesiredCluster) -> str:
            return "log-zookeeper-1"

    environment = LeaderEnvironment(cast(Environment, Recorded()), lambda: scene.leads)
    desired = scene.world.desired()
    environment.forget_certificates(desired)
    await environment.disconnect(desired.namespace, desired.name)
    assert called == ["forget", "disconnect"]
    assert await environment.zookeeper_leader(desired) == "log-zookeeper-1"
    assert await scene.kube.find("Service", NAMESPACE, {}) == []
