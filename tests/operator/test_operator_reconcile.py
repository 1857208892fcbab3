"""The operator's shell against an API server that fails, forgets and lies about the present."""

from __future__ import annotations

import datetime
import random

import pytest

from tests.operator.operator_faults import (
    Died,
    FakeSurroundings,
    Faults,
    FaultyKube,
    LogInStore,
    ToldEvents,
    delete_by_user,
)
from tests.operator.operator_world import NAMESPACE, Log, World, cluster_resource, pool_resource
from waltz_operator.core.objects import ObjectKey
from waltz_operator.shell.kube_api import KubeError
from waltz_operator.shell.reconciler import LATER_SECONDS, Reconciler

MOST_LOOKS = 400
_NOW = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)


class Operation:
    """A world, and operators that look after it until they die."""

    def __init__(self, faults: Faults, *, pools: int = 3, partitions: int = 3) -> None:
        names = list("abcde"[:pools])
        resource = cluster_resource(pools=names, partitions=partitions)
        self.world = World(resource, [pool_resource(name) for name in names])
        self.log = LogInStore(self.world)
        self.kube = FaultyKube(self.world, faults)
        self.surroundings = FakeSurroundings(self.log, faults)
        self.events = ToldEvents()
        self.deaths = 0
        self.seen_ready = False

    async def look(self) -> float | None:
        """Have a new operator look once; it may die of that."""
        reconciler = Reconciler(
            self.kube,
            self.surroundings,
            self.events,
            operator_namespace="waltz-system",
            clock=lambda: _NOW,
        )
        try:
            seen = await reconciler.reconcile(NAMESPACE, "log")
            self.seen_ready = seen is not None and seen.ready
            return None if seen is None else seen.again
        except KubeError:
            return 0.0
        except Died:
            self.deaths += 1
            return 0.0

    async def until_done(self) -> int:
        """Look until an operator has nothing to do; return how often that was."""
        for looks in range(MOST_LOOKS):
            if self.world.cluster is not None:
                await self.log.settle(self.world.desired())
            could = {p for p, opens in self.world.states_of_quorum() if opens}
            again = await self.look()
            if self.world.cluster is not None:
                await self.log.load(self.world.desired())
            can = {p for p, opens in self.world.states_of_quorum() if opens}
            assert could <= can
            if again in (None, LATER_SECONDS):
                return looks
        raise AssertionError(f"not done: {self.events.done[-5:]} {self.events.failures[-3:]}")

    def condition(self, kind: str) -> dict[str, object]:
        assert self.world.cluster is not None
        found = self.world.cluster["status"]["conditions"]
        return next(each for each in found if each["type"] == kind)


async def test_first_start_ends_ready_and_the_status_tells_the_truth() -> None:
    operation = Operation(Faults())
    await operation.look()
    assert operation.world.cluster is not None
    await operation.look()
    assert operation.condition("Ready")["status"] == "False"
    assert not operation.seen_ready
    await operation.until_done()
    status = operation.world.cluster["status"]
    assert operation.condition("Ready")["status"] == "True"
    assert operation.seen_ready
    assert operation.condition("Healthy")["status"] == "True"
    assert status["observedGeneration"] == 1
    assert (status["partitions"], status["storages"], status["servers"]) == ("3/3", "3/3", "2/2")
    assert operation.world.pools["b"]["status"]["group"] == 1
    assert operation.world.pools["b"]["status"]["cluster"] == "log"


async def test_ready_is_false_without_a_quorum_and_for_a_generation_not_yet_carried_out() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    world = operation.world
    for storage in sorted(world.disks)[:1]:
        world.down.add(storage)
    await operation.look()
    assert operation.condition("Ready")["status"] == "True", "two of three are a quorum"
    assert operation.condition("Healthy")["status"] == "False"
    world.down.update(sorted(world.disks)[:2])
    await operation.look()
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
    await operation.look()
    assert operation.condition("Ready")["status"] == "False"
    assert world.cluster["status"]["observedGeneration"] == 1
    await operation.until_done()
    assert operation.condition("Ready")["observedGeneration"] == 2


async def test_what_a_paused_cluster_shall_be_counts_as_not_carried_out() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    cluster = operation.world.cluster
    assert cluster is not None
    cluster["metadata"]["generation"] = 2
    cluster["spec"] |= {"paused": True, "servers": {"replicas": 3}}
    await operation.look()
    ready = operation.condition("Ready")
    assert (ready["status"], ready["reason"], ready["observedGeneration"]) == ("False", "Paused", 1)
    assert "set spec.paused to false" in str(ready["message"])
    cluster["spec"]["paused"] = False
    await operation.until_done()
    assert operation.condition("Ready")["observedGeneration"] == 2


async def test_a_pod_that_ends_again_and_again_is_quoted() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    labels = operation.world.objects[ObjectKey("StatefulSet", "a-storage")]["metadata"]["labels"]
    said = "starting\nwaltz-storage: the directory is of another cluster"
    operation.world.objects[ObjectKey("Pod", "a-storage-0")] = {
        "metadata": {"name": "a-storage-0", "labels": labels},
        "status": {
            "containerStatuses": [
                {
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"message": said}},
                }
            ]
        },
    }
    operation.world.down.add(sorted(operation.world.disks)[0])
    await operation.look()
    assert operation.world.cluster is not None
    message = operation.world.cluster["status"]["message"]
    assert "pod a-storage-0: waltz-storage: the directory is of another cluster" in message


async def count_calls() -> int:
    faults = Faults()
    await Operation(faults, pools=1, partitions=2).until_done()
    return faults.calls


async def test_an_operator_killed_after_any_single_call_changes_nothing() -> None:
    for die_at in range(1, await count_calls() + 1):
        faults = Faults()
        faults.die_at = die_at
        operation = Operation(faults, pools=1, partitions=2)
        await operation.until_done()
        assert operation.deaths == 1
        assert operation.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("seed", range(25))
async def test_an_unreliable_api_server_only_delays(seed: int) -> None:
    faults = Faults(random.Random(seed))
    operation = Operation(faults)
    await operation.until_done()
    faults.dice = None
    await operation.until_done()
    assert operation.condition("Ready")["status"] == "True"
    assert isinstance(operation.world.log, Log)
    for partition in range(3):
        assert len(operation.world.view(partition).replicas) == 3
    delete_by_user(operation.world)
    faults.dice = random.Random(seed)
    await operation.until_done()
    assert operation.world.cluster is None
    assert operation.world.objects == {}
    assert operation.world.pools == {}


async def test_a_half_created_cluster_in_zookeeper_is_begun_anew() -> None:
    operation = Operation(Faults())
    desired = operation.world.desired()
    await operation.log.session.create(desired.root, None)
    await operation.until_done()
    assert "the cluster logs/log is deleted in ZooKeeper" in operation.events.done


async def test_a_root_that_others_live_below_is_never_deleted() -> None:
    operation = Operation(Faults())
    session, root = operation.log.session, operation.world.desired().root
    await session.create(root, None)
    await session.create(f"{root}/somebody-elses", b"x")
    for _ in range(8):
        await operation.log.settle(operation.world.desired())
        await operation.look()
    assert (await session.children(root)).names == ("somebody-elses",)
    assert operation.condition("Ready")["reason"] == "NeedsAttention"


@pytest.mark.parametrize("nested", [False, True])
async def test_a_deletion_takes_no_znodes_of_others_below_the_root(nested: bool) -> None:
    operation = Operation(Faults())
    assert operation.world.cluster is not None
    operation.world.cluster["spec"]["zookeeper"] = {"external": {"connectString": "zk:2181"}}
    for pool in operation.world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    await operation.until_done()
    session, root = operation.log.session, operation.world.desired().root
    if nested:
        await session.create(f"{root}/another", None)
    delete_by_user(operation.world)
    await operation.until_done()
    assert operation.world.cluster is None
    assert (await session.get(root) is not None) is nested


async def test_a_deleted_pool_without_a_cluster_may_vanish() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    operation.world.pools["a"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    reconciler = Reconciler(
        operation.kube, operation.surroundings, operation.events, operator_namespace="x"
    )
    await reconciler.release_deserted(NAMESPACE, "a")
    assert "a" in operation.world.pools, "the cluster that needs it is there"
    operation.world.cluster = None
    await reconciler.release_deserted(NAMESPACE, "a")
    assert "a" not in operation.world.pools
