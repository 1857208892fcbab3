"""What rolling changes use of Kubernetes and ZooKeeper: failures of pods, deletions, the leader."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tests.support.operator_faults import FakeEnvironment, Faults, FaultyKube, StoredZnodes
from tests.support.operator_world import cluster_resource, pool_resource
from tests.support.rolling_world import RollingWorld
from tests.support.several_addresses import SILENT, give_addresses
from tests.unit.operator.test_operator_plan_properties import reach
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.pods_of_sets import pod_failure
from waltz_operator.core.steps import ReplacePod
from waltz_operator.shell import zookeeper_leader
from waltz_operator.shell.environment import Environment
from waltz_operator.shell.executor import Executor
from waltz_operator.shell.observer import observe
from waltz_operator.shell.zookeeper_leader import find_leader


def started() -> RollingWorld:
    resource = cluster_resource(zookeeper={"managed": {"members": 3}})
    world = RollingWorld(resource, [pool_resource(name) for name in "abc"])
    reach(world)
    return world


def pod_with(**container: Any) -> dict[str, Any]:
    return {"status": {"containerStatuses": [{"image": "x:1", **container}]}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (pod_with(state={"running": {}}), None),
        (pod_with(state=waiting("ContainerCreating")), None),
        (pod_with(state=waiting("ErrImagePull")), "its image x:1 cannot be pulled"),
        (
            pod_with(state=waiting("CreateContainerConfigError", 'secret "a" not found')),
            'CreateContainerConfigError: secret "a" not found',
        ),
        (
            pod_with(
                state=waiting("CrashLoopBackOff"),
                lastState={"terminated": {"message": "starting\nno space\n"}},
            ),
            "no space",
        ),
        (
            pod_with(
                state=waiting("CrashLoopBackOff"), lastState={"terminated": {"exitCode": 137}}
            ),
            "its process ends again and again, with exit code 137",
        ),
        (
            {
                "status": {
                    "conditions": [
                        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes fit"}
                    ]
                }
            },
            "it is not scheduled: 0/3 nodes fit",
        ),
        ({}, None),
    ],
)
def test_failure_of_a_pod_is_the_reason_of_the_kubelet_or_scheduler(
    pod: dict[str, Any], expected: str | None
) -> None:
    assert pod_failure(pod) == expected


async def test_replacement_deletes_only_the_pod_with_the_observed_uid() -> None:
    world = started()
    kube = FaultyKube(world, Faults())
    environment = cast(Environment, FakeEnvironment(StoredZnodes(world), Faults()))
    executor = Executor(world.desired(), kube, environment)
    key = ObjectKey("Pod", "a-storage-0")
    await executor.perform(ReplacePod("a-storage-0", "the uid of an earlier pod"))
    assert key in world.objects
    await executor.perform(ReplacePod("a-storage-0", world.objects[key]["metadata"]["uid"]))
    assert key not in world.objects


class CountingEnvironment(FakeEnvironment):
    """Counts how often the leader of ZooKeeper is looked up."""

    lookups = 0

    async def zookeeper_leader(self, desired: DesiredCluster) -> str | None:
        self.lookups += 1
        return await super().zookeeper_leader(desired)


async def test_leader_of_zookeeper_is_looked_up_only_while_members_are_outdated() -> None:
    world = started()
    environment = CountingEnvironment(StoredZnodes(world), Faults())
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    async def look_up() -> str | None:
        found = await observe(
            world.desired(),
            FaultyKube(world, Faults()),
            cast(Environment, environment),
            now,
        )
        return found.zookeeper_leader

    assert (await look_up(), environment.lookups) == (None, 0)
    template = world.objects[ObjectKey("StatefulSet", "log-zookeeper")]["spec"]["template"]
    template["metadata"]["annotations"] = {"kubectl.kubernetes.io/restartedAt": "now"}
    world.process_sets()
    assert (await look_up(), environment.lookups) == ("log-zookeeper-0", 1)


@asynccontextmanager
async def member(answer: bytes) -> AsyncIterator[tuple[str, int]]:
    """A member of ZooKeeper that gives ``answer`` to the command srvr."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(4) == b"srvr"
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield "127.0.0.1", server.sockets[0].getsockname()[1]


async def test_find_leader_returns_the_only_member_in_mode_leader() -> None:
    async with member(b"Zxid: 0x5\nMode: leader\n") as leader, member(b"Mode: follower\n") as other:
        assert await find_leader([other, leader]) == "127.0.0.1"
        assert await find_leader([other]) is None
        assert await find_leader([leader, leader]) is None, "two claim to lead"
        assert await find_leader([("127.0.0.1", 1), leader]) == "127.0.0.1"


async def test_find_leader_of_a_host_whose_first_address_is_silent_uses_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with member(b"Mode: leader\n") as leader:
        give_addresses(monkeypatch, (SILENT, 1), leader)
        assert await find_leader([("two.test", 1)]) == "two.test"


async def test_member_that_does_not_answer_in_time_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_leader, "_ANSWER_SECONDS", 0.05)
    release = asyncio.Event()

    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    silent = await asyncio.start_server(be_silent, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with member(b"Mode: leader\n") as leader:
        async with asyncio.timeout(10):
            assert await find_leader([("127.0.0.1", port), leader]) == "127.0.0.1"
    release.set()
    silent.close()
