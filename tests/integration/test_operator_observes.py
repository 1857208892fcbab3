"""The operator observes a real ZooKeeper and a real cluster, and performs steps in ZooKeeper."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.operator_faults import Faults, FaultyKube
from tests.support.operator_world import World, cluster_resource
from waltz.admin.core.steps import RegisterStorage, UnregisterStorage
from waltz.local import LocalCluster
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.observed import (
    ClusterAbsent,
    ClusterIncomplete,
    ClusterPresent,
    ZooKeeperUnreachable,
)
from waltz_operator.core.status import has_quorum
from waltz_operator.core.steps import CreateMetadata, DeleteMetadata, Step
from waltz_operator.shell.environment import NetworkEnvironment
from waltz_operator.shell.executor import Executor, StepFailed
from waltz_operator.shell.observer import observe

_STORAGE = "a-storage-0.a-storage.logs.svc:6000"


class Operator:
    """The operator's shell with a simulated API server and a real network."""

    def __init__(self, folder: Path, connect_string: str, root: str) -> None:
        external = {"external": {"connectString": connect_string}, "root": root}
        resource: dict[str, Any] = cluster_resource(zookeeper=external, tls={"mode": "None"})
        self.world = World(resource, [])
        self.kube = FaultyKube(self.world, Faults())
        self.environment = NetworkEnvironment(self.kube, folder)

    @property
    def desired(self) -> DesiredCluster:
        return self.world.desired()

    async def metadata(self) -> object:
        now = datetime.datetime.now(datetime.UTC)
        return (await observe(self.desired, self.kube, self.environment, now)).metadata

    async def perform(self, step: Step) -> None:
        await Executor(self.desired, self.kube, self.environment).perform(step)


@pytest.fixture
async def operator(tmp_path: Path, zookeeper: str, zk_root: str) -> AsyncIterator[Operator]:
    made = Operator(tmp_path, zookeeper, zk_root)
    yield made
    await made.environment.close()


async def test_metadata_steps_create_register_and_delete_znodes(operator: Operator) -> None:
    desired = operator.desired
    create = CreateMetadata(desired.metadata_name, 4, desired.key)
    assert await operator.metadata() == ClusterAbsent()
    await operator.perform(create)
    await operator.perform(RegisterStorage(_STORAGE, 0, 6001))
    found = await operator.metadata()
    assert isinstance(found, ClusterPresent)
    assert (found.name, found.num_partitions, found.key) == ("logs/log", 4, desired.key)
    assert found.maps.groups.groups == {_STORAGE: 0}
    assert found.replicas.storage_problem(_STORAGE) is not None
    with pytest.raises(StepFailed, match="exists already"):
        await operator.perform(create)
    await operator.perform(UnregisterStorage(_STORAGE))
    await operator.perform(DeleteMetadata(desired.metadata_name, desired.key, complete=True))
    assert await operator.metadata() == ClusterAbsent()


async def test_interrupted_creation_is_observed_as_incomplete_at_every_point(
    operator: Operator,
) -> None:
    desired = operator.desired
    await operator.perform(CreateMetadata(desired.metadata_name, 4, desired.key))
    store, root = await operator.environment.metadata_store(desired), desired.root
    made = ["store/connection", "store/assignment", "store/group", "store/partition", "store"]
    made += ["ids/server", "ids/client", "ids", "serverDescriptors"]
    for name in made:
        await store.delete(f"{root}/{name}")
        found = await operator.metadata()
        key = None if name in made[made.index("store") :] else desired.key
        assert found == ClusterIncomplete(desired.metadata_name, key, used=False), name
    await operator.perform(DeleteMetadata(desired.metadata_name, None, complete=False))
    assert await operator.metadata() == ClusterAbsent()


async def test_zookeeper_that_refuses_connections_is_unreachable(tmp_path: Path) -> None:
    operator = Operator(tmp_path, "127.0.0.1:9", "/waltz")
    found = await operator.metadata()
    assert isinstance(found, ZooKeeperUnreachable)
    assert "127.0.0.1:9" in found.reason


async def test_running_cluster_has_a_quorum_of_every_partition(
    tmp_path: Path, cluster: LocalCluster
) -> None:
    operator = Operator(tmp_path, cluster.plan.zookeeper, "/waltz")
    found = await operator.metadata()
    await operator.environment.close()
    assert isinstance(found, ClusterPresent)
    assert len(found.servers) == 2
    assert len(found.replicas.partitions) == 3
    assert all(has_quorum(found, view) for view in found.replicas.partitions.values())
