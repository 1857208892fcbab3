"""The steps that replace a volume: what they record, what they compare, and when they stop."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from tests.support.operator_faults import FakeEnvironment, Faults, FaultyKube, StoredZnodes
from tests.support.operator_world import World, cluster_resource, pool_resource
from tests.support.virtual_time import on_virtual_time
from waltz.admin import ComparisonResult, Difference, MayContinue, Step
from waltz.admin.core.steps import CopyReplica
from waltz.metadata.cluster import Cluster
from waltz.net import PLAINTEXT
from waltz.protocol.admin import RangeChecksumRequest
from waltz.testing import InProcessCluster
from waltz.testing.frames import FrameFault
from waltz.testing.nodes import ROOT, SESSION_MS
from waltz_operator.core.names import REPLACE_VOLUME_ANNOTATION, REPLACEMENT_ANNOTATION
from waltz_operator.core.steps import CompareReplica, RecordReplacement
from waltz_operator.core.volume_replacement import Phase, Replacement
from waltz_operator.shell.environment import Environment, ReplicaAccess, _NetworkAccess
from waltz_operator.shell.executor import Executor, StepFailed
from waltz_operator.shell.fencing import LeaderEnvironment
from waltz_operator.shell.observer import observe

POD, STORAGE = "a-storage-0", "a-storage-0.a-storage.logs.svc:6000"
BEGUN = Replacement(POD, ("uid",))


class Access:
    """A `ReplicaAccess` whose comparison returns ``part``; copies ask whether they may continue."""

    def __init__(self) -> None:
        self.part = ComparisonResult(9, 9, None, {}, {})
        self.asked: list[tuple[int, int]] = []
        self.answers: list[bool] = []
        self.before_answer: Callable[[], None] = lambda: None

    async def perform(self, step: Step, may_continue: MayContinue = lambda: True) -> None:
        for _ in range(2):
            self.answers.append(may_continue())
            self.before_answer()

    async def compare(
        self, partition: int, first_id: int, may_continue: MayContinue
    ) -> ComparisonResult:
        assert may_continue()
        self.asked.append((partition, first_id))
        return self.part


class Scene:
    """A pool with a replacement at version 7."""

    def __init__(self, **annotations: str) -> None:
        self.world = World(
            cluster_resource(pools=["a"], zookeeper={"external": {"connectString": "zk:2181"}}),
            [pool_resource("a")],
        )
        self.world.pools["a"]["metadata"] |= {
            "resourceVersion": "7",
            "annotations": {name.replace("_", "."): text for name, text in annotations.items()},
        }
        self.kube = FaultyKube(self.world, Faults())
        self.access = Access()
        self.environment = FakeEnvironment(StoredZnodes(self.world), Faults())

        async def replica_access(*_: object) -> ReplicaAccess:
            return cast(ReplicaAccess, self.access)

        cast(Any, self.environment).replica_access = replica_access
        self.leads = True
        environment = LeaderEnvironment(cast(Environment, self.environment), lambda: self.leads)
        self.executor = Executor(self.world.desired(), self.kube, environment)

    @property
    def annotations(self) -> dict[str, str]:
        return cast(dict[str, str], self.world.pools["a"]["metadata"]["annotations"])

    def recorded(self) -> Replacement:
        return Replacement.from_json(self.annotations[REPLACEMENT_ANNOTATION])


async def test_begin_removes_the_request_of_this_pod_only() -> None:
    for pod, left in ((POD, False), ("a-storage-1", True)):
        scene = Scene()
        scene.annotations[REPLACE_VOLUME_ANNOTATION] = pod
        scene.executor = Executor(scene.world.desired(), scene.kube, cast(Any, scene.environment))
        await scene.executor.perform(RecordReplacement("a", BEGUN))
        assert scene.recorded() == BEGUN
        assert (REPLACE_VOLUME_ANNOTATION in scene.annotations) is left


async def test_postponed_replacement_becomes_a_request_again() -> None:
    scene = Scene()
    scene.annotations[REPLACEMENT_ANNOTATION] = BEGUN.to_json()
    await scene.executor.perform(RecordReplacement("a", None, request=POD))
    assert scene.annotations == {REPLACE_VOLUME_ANNOTATION: POD}


async def test_record_on_a_pool_that_has_changed_fails() -> None:
    scene = Scene()
    scene.world.pools["a"]["metadata"]["resourceVersion"] = "8"
    with pytest.raises(StepFailed, match="has changed"):
        await scene.executor.perform(RecordReplacement("a", BEGUN))


@pytest.mark.parametrize(
    ("last_compared", "partition", "next_id"), [(9, 3, 0), (4, 2, 5), (12, 3, 0)]
)
async def test_comparison_records_where_it_continues(
    last_compared: int, partition: int, next_id: int
) -> None:
    scene = Scene()
    scene.access.part = ComparisonResult(9, last_compared, None, {}, {})
    at = Replacement(POD, ("uid",), Phase.COMPARE, 2, 3)
    await scene.executor.perform(CompareReplica("a", STORAGE, at))
    assert scene.access.asked == [(2, 3)]
    assert scene.recorded() == Replacement(POD, ("uid",), Phase.COMPARE, partition, next_id)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (
            ComparisonResult(9, 7, Difference(6, ()), {}, {}),
            "transaction 6 is not the same on all storages",
        ),
        (ComparisonResult(9, 9, None, {STORAGE: 5}, {}), "it ends early"),
        (ComparisonResult(9, 9, None, {}, {STORAGE: "down"}), "down"),
        (
            ComparisonResult(9, 2, None, {"c:1": 1}, {"b:1": "down"}),
            "no peer can be compared now; storage b:1: down; storage c:1: it ends early",
        ),
    ],
)
async def test_comparison_that_finds_a_difference_or_no_peer_fails(
    part: ComparisonResult, reason: str
) -> None:
    scene = Scene()
    scene.access.part = part
    at = Replacement(POD, (), Phase.COMPARE, 2, 3)
    with pytest.raises(StepFailed, match=reason):
        await scene.executor.perform(CompareReplica("a", STORAGE, at))
    assert REPLACEMENT_ANNOTATION not in scene.annotations


_OPERATOR = "operator"
_LAST = 4


async def _perform_comparison(
    cluster: InProcessCluster, stop_peer: Callable[[InProcessCluster], Awaitable[None]]
) -> Scene:
    """Stop a peer, then compare the replica of another storage; return the operator's scene.

    The log has the transactions 0 to `_LAST`, all from before the present store session.
    """
    async with cluster.connect() as client:
        for _ in range(_LAST + 1):
            await client.append(0, b"x")
    await cluster.kill_server()
    await cluster.start_server()
    await cluster.ready()
    await stop_peer(cluster)
    scene = Scene()
    network = cluster.network.host(_OPERATOR)
    store = await cluster._shared.open_store(SESSION_MS)
    cast(Any, scene).access = _NetworkAccess(Cluster(store, ROOT), PLAINTEXT, network=network)
    at = Replacement(POD, ("uid",), Phase.COMPARE, 0, 0)
    try:
        await scene.executor.perform(CompareReplica("a", cluster.storages[0].address, at))
    finally:
        await store.close()
    return scene


async def _refuse(cluster: InProcessCluster) -> None:
    """Let the last storage refuse all connections."""
    await cluster.kill_storage(2)


async def _stay_silent(cluster: InProcessCluster) -> None:
    """Let the last storage answer nothing to the operator."""
    cluster.network.partition(_OPERATOR, cluster.storages[2].host)


async def _stall(cluster: InProcessCluster) -> None:
    """Let the last storage answer everything but requests for checksums, as with a stalled disk."""
    cluster.network.frame_rules[_OPERATOR, cluster.storages[2].host] = lambda message: (
        FrameFault.DROP if isinstance(message, RangeChecksumRequest) else None
    )


@pytest.mark.parametrize("stop_peer", [_refuse, _stay_silent, _stall])
@on_virtual_time
async def test_comparison_with_the_other_peers_ends_while_one_peer_does_not_answer(
    stop_peer: Callable[[InProcessCluster], Awaitable[None]],
) -> None:
    async with InProcessCluster() as cluster:
        scene = await _perform_comparison(cluster, stop_peer)
    assert scene.recorded() == Replacement(POD, ("uid",), Phase.COMPARE, 1, 0)


@pytest.mark.parametrize("stop_peer", [_refuse, _stay_silent])
@on_virtual_time
async def test_comparison_after_a_slow_observation_makes_progress(
    stop_peer: Callable[[InProcessCluster], Awaitable[None]],
) -> None:
    """The observation waits for the peer, so the time for the comparison is over when it ends."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("waltz_operator.shell.replica_checks._COMPARE_SECONDS", 0.0)
        async with InProcessCluster() as cluster:
            scene = await _perform_comparison(cluster, stop_peer)
    assert scene.recorded() == Replacement(POD, ("uid",), Phase.COMPARE, 1, 0)


async def test_copy_of_a_deposed_operator_stops_before_its_next_part() -> None:
    scene = Scene()

    def depose() -> None:
        scene.leads = False

    scene.access.before_answer = depose
    await scene.executor.perform(CopyReplica("b:1", STORAGE, 0))
    assert scene.access.answers == [True, False]


async def test_copy_pauses_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    monkeypatch.setattr("waltz_operator.shell.executor._COPY_SECONDS", 0.0)
    await asyncio.sleep(0)
    await scene.executor.perform(CopyReplica("b:1", STORAGE, 0))
    assert scene.access.answers == [False, False]


async def test_observer_returns_for_how_long_a_volume_is_lost() -> None:
    scene = Scene()
    pool = scene.world.pools["a"]
    pool["metadata"]["labels"] = {"waltz.dev/cluster": "log"}
    pool["status"] = {"lostVolumes": [{"pod": POD, "since": "2026-01-01T12:00:00Z"}]}
    now = datetime.datetime(2026, 1, 1, 12, 1, tzinfo=datetime.UTC)
    environment = cast(Environment, scene.environment)
    observed = await observe(scene.world.desired(), scene.kube, environment, now)
    assert observed.lost_seconds == {POD: 60.0}
