"""The writes for access from outside, at an API server that fails, by operators that are killed."""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from tests.support.operator_faults import (
    FakeEnvironment,
    Faults,
    FaultyKube,
    Killed,
    RecordedEvents,
    StoredZnodes,
)
from tests.support.operator_world import NAMESPACE
from tests.support.outside_world import NODE_PORT, OutsideWorld, outside_world
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.outside_addresses import OutsideAddresses
from waltz.metadata.outside import change_outside_addresses, read_outside_addresses
from waltz_operator.core.names import SLOT_LABEL
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.outside_steps import (
    DeleteOutsideAddresses,
    SetSlot,
    WriteOutsideAddresses,
)
from waltz_operator.shell.executor import Executor, StepFailed
from waltz_operator.shell.kube_api import KubeError
from waltz_operator.shell.observer import observe
from waltz_operator.shell.reconciler import IDLE_REQUEUE_SECONDS, Reconciler

_NOW = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)
_MAX_RECONCILES = 300


class RefusingKube(FaultyKube):
    """An API server that refuses to create one object."""

    def __init__(self, world: OutsideWorld, refused: ObjectKey) -> None:
        super().__init__(world, Faults())
        self._refused = refused

    @override
    async def apply(self, body: Mapping[str, Any]) -> None:
        if ObjectKey(body["kind"], body["metadata"]["name"]) == self._refused:
            raise KubeError("exceeded quota: services.loadbalancers=1")
        await super().apply(body)


class Operation:
    """A simulated world, and operators that reconcile it until they are killed."""

    def __init__(self, faults: Faults, outside: dict[str, Any] | None) -> None:
        self.world = outside_world(outside, pools=1)
        self.faults = faults
        self.znodes = StoredZnodes(self.world)
        self.kube = FaultyKube(self.world, faults)
        self.environment = FakeEnvironment(self.znodes, faults)
        self.kills = 0

    async def reconcile(self) -> float | None:
        """Reconcile once with a new operator; return when to do so again."""
        reconciler = Reconciler(
            self.kube,
            self.environment,
            RecordedEvents(),
            operator_namespace="waltz-system",
            clock=lambda: _NOW,
        )
        try:
            result = await reconciler.reconcile(NAMESPACE, "log")
        except KubeError:
            return 0.0
        except Killed:
            self.kills += 1
            return 0.0
        return None if result is None else result.requeue_seconds

    async def until_done(self) -> None:
        """Reconcile until an operator has nothing to do."""
        for _ in range(_MAX_RECONCILES):
            await self.znodes.settle(self.world.desired())
            requeue = await self.reconcile()
            await self.znodes.load(self.world.desired())
            if requeue in (None, IDLE_REQUEUE_SECONDS):
                return
        raise AssertionError("not done")

    def assert_open(self) -> None:
        """Fail unless each server and storage has its Service, its slot and its address."""
        assert sorted(self.world.services()) == [
            "a-storage-0-outside",
            "log-server-0-outside",
            "log-server-1-outside",
            "log-server-2-outside",
            "log-zookeeper-outside",
        ]
        assert self.world.slots() == {"log-server-001": "0", "log-server-002": "1"}
        assert {*(self.world.outside() or ())} == {
            "10.0.0.1:6100",
            "10.0.0.2:6100",
            "a-storage-0.a-storage.logs.svc:6000",
        }

    def assert_closed(self) -> None:
        """Fail if a trace of the access is left."""
        assert self.world.services() == {}
        assert set(self.world.slots().values()) == {None}
        assert self.world.outside() is None


async def test_status_tells_how_to_connect() -> None:
    operation = Operation(Faults(), NODE_PORT)
    await operation.until_done()
    operation.assert_open()
    assert operation.world.cluster is not None
    status = operation.world.cluster["status"]["outside"]
    (port,) = operation.world.services()["log-zookeeper-outside"]["spec"]["ports"]
    assert status["connectString"] == f"node.example:{port['nodePort']}"
    assert status["serverName"] == "log.logs.waltz"
    assert (status["addresses"], status["pending"]) == ("3/3", "")
    operation.world.set_access(None)
    await operation.until_done()
    assert set(operation.world.cluster["status"]["outside"].values()) == {""}


async def test_operator_killed_after_any_call_opens_and_closes_completely() -> None:
    faults = Faults()
    operation = Operation(faults, None)
    await operation.until_done()
    call, kills = 0, -1
    while operation.kills > kills:
        kills, call = operation.kills, call + 1
        faults.kill_at = faults.calls + call
        operation.world.set_access(NODE_PORT)
        await operation.until_done()
        operation.assert_open()
        faults.kill_at = faults.calls + call
        operation.world.set_access(None)
        await operation.until_done()
        operation.assert_closed()
    assert call > 7, "there are at least as many calls as Services and labels"


async def test_refused_service_delays_no_other_service_and_is_reported() -> None:
    operation = Operation(Faults(), NODE_PORT)
    refused = ObjectKey("Service", "log-server-0-outside")
    operation.kube = RefusingKube(operation.world, refused)
    for _ in range(30):
        await operation.znodes.settle(operation.world.desired())
        await operation.reconcile()
        await operation.znodes.load(operation.world.desired())
    world = operation.world
    assert sorted(world.services()) == [
        "a-storage-0-outside",
        "log-server-1-outside",
        "log-server-2-outside",
        "log-zookeeper-outside",
    ]
    assert {*(world.outside() or ())} == {
        "10.0.0.2:6100",
        "a-storage-0.a-storage.logs.svc:6000",
    }
    assert world.cluster is not None
    assert "exceeded quota" in world.cluster["status"]["message"]
    operation.kube = FaultyKube(world, operation.faults)
    await operation.until_done()
    operation.assert_open()


@pytest.mark.parametrize("seed", range(10))
async def test_unreliable_api_server_delays_opening_and_closing_only(seed: int) -> None:
    faults = Faults(random.Random(seed))
    operation = Operation(faults, NODE_PORT)
    await operation.until_done()
    faults.dice = None
    await operation.until_done()
    operation.assert_open()
    operation.world.set_access(None)
    faults.dice = random.Random(seed)
    await operation.until_done()
    faults.dice = None
    await operation.until_done()
    operation.assert_closed()


class Scene:
    """A cluster that has started, and its executor."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        desired = operation.world.desired()
        self.executor = Executor(desired, operation.kube, operation.environment)
        self.cluster = Cluster(operation.znodes.session, desired.root)

    async def outside(self) -> dict[str, str] | None:
        stored = await read_outside_addresses(self.cluster)
        return None if stored is None else dict(stored.value.addresses)


async def opened() -> Scene:
    operation = Operation(Faults(), None)
    await operation.until_done()
    return Scene(operation)


async def test_written_addresses_replace_those_before() -> None:
    scene = await opened()
    old = OutsideAddresses({"10.0.0.9:6100": "gone.example:1"})
    await change_outside_addresses(scene.cluster, lambda _before: old)
    new, observed = (("10.0.0.1:6100", "node:30001"),), (("10.0.0.9:6100", "gone.example:1"),)
    await scene.executor.perform(WriteOutsideAddresses(new, observed))
    assert await scene.outside() == {"10.0.0.1:6100": "node:30001"}
    for _ in range(2):
        await scene.executor.perform(DeleteOutsideAddresses())
        assert await scene.outside() is None


async def test_addresses_that_changed_since_the_observation_are_not_replaced() -> None:
    scene = await opened()
    changed = OutsideAddresses({"10.0.0.9:6100": "new.example:1"})
    await change_outside_addresses(scene.cluster, lambda _before: changed)
    for observed in ((), (("10.0.0.9:6100", "old.example:1"),)):
        await scene.executor.perform(WriteOutsideAddresses((("a:1", "node:30001"),), observed))
        assert await scene.outside() == changed.addresses


async def test_slot_of_a_pod_is_one_label_of_several() -> None:
    scene = await opened()
    world: OutsideWorld = scene.operation.world
    labels = world.objects[ObjectKey("Pod", "log-server-001")]["metadata"]["labels"]
    before = dict(labels)
    await scene.executor.perform(SetSlot("log-server-001", 7))
    assert labels == before | {SLOT_LABEL: "7"}
    await scene.executor.perform(SetSlot("log-server-001", None))
    assert labels == before
    with pytest.raises(StepFailed, match="pod gone gets the slot 1"):
        await scene.executor.perform(SetSlot("gone", 1))


async def test_malformed_addresses_do_not_stop_the_operator_and_are_named() -> None:
    scene = await opened()
    path = scene.cluster.paths.outside
    await scene.operation.znodes.session.create(path, b"not JSON")
    operation = scene.operation
    observed = await observe(operation.world.desired(), operation.kube, operation.environment, _NOW)
    assert getattr(observed.metadata, "outside", "absent") is None
    assert "malformed OutsideAddresses" in getattr(observed.metadata, "outside_problem", "")
    with pytest.raises(StepFailed, match="OutsideAddresses"):
        await scene.executor.perform(WriteOutsideAddresses((("10.0.0.1:6100", "node:1"),), ()))
