"""Test that orders performed on a model of a cluster end, even if steps have no effect."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.replica_model import Model
from tests.support.virtual_time import on_virtual_time
from waltz.admin import (
    Assignment,
    AssignmentSide,
    NotPossible,
    ObservationScope,
    OrderExecutor,
    OrderRefused,
    ReplicaObservation,
    ReplicaRecovery,
    Stalled,
    StorageAdmin,
    Unassignment,
    carry_out,
    execution,
)
from waltz.admin.core.steps import CopyReplica, Done, DropReplicas, Step, SwitchOn, Wait
from waltz.admin.offline_copy import MayContinue
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import StoreParams
from waltz.metadata.core.storage_maps import ChangeRefused
from waltz.net import PLAINTEXT, ConnectionLost, RpcConnection
from waltz.testing import InProcessCluster, run
from waltz.testing.nodes import ROOT

A, B, C = "a:1", "b:1", "c:1"
MOST_STEPS = 100


class ModelExecutor(OrderExecutor):
    """Observes and changes a model. ``damaged``: a replica that stays off after every step.

    An order that repeats a step forever fails: none of these calls waits, so no timeout would end
    it.
    """

    def __init__(self, model: Model, damaged: str | None = None) -> None:
        self.model = model
        self.damaged = damaged
        self.performed: list[Step] = []

    async def observe(self, scope: ObservationScope) -> ReplicaObservation:
        return self.model.observed()

    async def perform(self, step: Step, may_continue: MayContinue = lambda: True) -> None:
        self.performed.append(step)
        assert len(self.performed) < MOST_STEPS, f"the order repeats {step}"
        self.model.perform(step)
        if self.damaged is not None:
            self.model.update(self.damaged, 0, readable=False, writable=False)
        self.model.append(1)


@pytest.fixture
def cluster() -> Model:
    made = Model({A: 0, B: 1, C: 2}, {0: frozenset({A, B, C})})
    made.append(100)
    made.update(A, 0, readable=False, writable=False)
    return made


async def test_switched_off_replica_is_recovered(cluster: Model) -> None:
    executor = ModelExecutor(cluster)
    assert await carry_out(ReplicaRecovery(0, A), executor) == 1
    assert executor.performed == [SwitchOn(A, (0,))]


async def test_step_without_effect_stalls_order(cluster: Model) -> None:
    executor = ModelExecutor(cluster, damaged=A)
    reported: list[Step | Wait] = []
    async with asyncio.timeout(30):
        with pytest.raises(
            Stalled, match=r"the step succeeded and had no effect: .* /health of storage a:1"
        ):
            await carry_out(
                ReplicaRecovery(0, A), executor, max_stall_seconds=0.1, on_step=reported.append
            )
    assert set(executor.performed) == {SwitchOn(A, (0,))}
    assert [type(each) for each in reported] == [SwitchOn, Wait]


async def test_storage_that_exceeds_step_time_is_reported_as_still_working(
    cluster: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_storage: str) -> None:
        await asyncio.Event().wait()

    executor = OrderExecutor(cast(Cluster, None), PLAINTEXT, step_seconds=0.01)
    monkeypatch.setattr(executor, "_open_admin", never)
    expected = (
        r"storage a:1 has not answered within 0.01 s; the storage may still complete the step"
    )
    with pytest.raises(TimeoutError, match=expected):
        await executor.perform(SwitchOn(A, (0,)))


class SlowCopy(OrderExecutor):
    """Copies from and to storages that are not asked."""

    def __init__(self) -> None:
        super().__init__(cast(Cluster, Params()), PLAINTEXT, answer_seconds=3)

    async def _open_admin(self, storage: str) -> StorageAdmin:
        return cast(StorageAdmin, nullcontext())


class Params:
    async def store_params(self) -> StoreParams:
        return StoreParams(uuid.UUID(int=1), 1)

    async def connections(self) -> Any:
        return SimpleNamespace(value=SimpleNamespace(admin_ports={A: 2, B: 2}))


async def test_copy_from_a_storage_that_left_the_cluster_is_refused() -> None:
    with pytest.raises(ChangeRefused, match="Storage c:1 is not in the cluster"):
        await SlowCopy().perform(CopyReplica(C, A, 0))


@pytest.mark.parametrize(("silence", "copied"), [(9, True), (11, False)])
def test_copy_may_last_as_long_as_it_makes_progress(
    monkeypatch: pytest.MonkeyPatch, silence: float, copied: bool
) -> None:
    async def open_storage(*_: object, **__: object) -> RpcConnection:
        return RpcConnection(cast(Any, None))

    async def copy(*_: object, progress: Callable[[int, int], None], **__: object) -> None:
        progress(-1, 3)
        for position in range(4):
            await asyncio.sleep(silence)
            progress(position, 3)

    monkeypatch.setattr(RpcConnection, "open_storage", open_storage)
    monkeypatch.setattr(execution, "copy_offline", copy)

    async def main() -> None:
        with nullcontext() if copied else pytest.raises(TimeoutError):
            await SlowCopy().perform(CopyReplica(A, B, 0))

    run(main())


async def test_refused_order_takes_no_step(cluster: Model) -> None:
    executor = ModelExecutor(cluster)
    with pytest.raises(OrderRefused, match="already has partition 0"):
        await carry_out(Assignment(A, (0,)), executor)
    assert executor.performed == []


async def test_order_with_stall_limit_of_zero_fails_at_first_wait(cluster: Model) -> None:
    cluster.down = {B}
    executor = ModelExecutor(cluster)
    unknown = Assignment("d:1", (0,), AssignmentSide.STORAGE)
    with pytest.raises(OrderRefused, match="Storage d:1 is not in the cluster"):
        await carry_out(unknown, executor, max_stall_seconds=0)
    order = Unassignment(B, (0,), only=AssignmentSide.STORAGE)
    with pytest.raises(Stalled, match=r"^storage b:1 does not answer: it is down$"):
        await carry_out(order, executor, max_stall_seconds=0)
    assert executor.performed == []


async def test_final_step_without_visible_effect_ends_order(cluster: Model) -> None:
    cluster.assigned[0] = frozenset({B, C})
    executor = ModelExecutor(cluster)
    order = Unassignment(A, (0,), only=AssignmentSide.STORAGE, force=True)
    assert await carry_out(order, executor) == 1
    assert executor.performed == [DropReplicas(A, (0,), delete_files=False, final=True)]


class ClosedOnce(ModelExecutor):
    """The storage closes the connection during the first step."""

    async def perform(self, step: Step, may_continue: MayContinue = lambda: True) -> None:
        if not self.performed:
            self.performed.append(step)
            raise ConnectionLost("closed by the peer")
        await super().perform(step)


async def test_step_whose_storage_closes_the_connection_is_taken_again(cluster: Model) -> None:
    executor = ClosedOnce(cluster)
    reported: list[Step | Wait] = []
    assert await carry_out(ReplicaRecovery(0, A), executor, on_step=reported.append) == 1
    assert executor.performed == [SwitchOn(A, (0,)), SwitchOn(A, (0,))]
    assert any(isinstance(each, Wait) and "closed by the peer" in each.reason for each in reported)
    assert [type(each) for each in reported] == [SwitchOn, Wait], "a retry is not reported"


@on_virtual_time
async def test_recovery_of_a_refused_replica_ends_with_the_advice_of_the_storage() -> None:
    async with InProcessCluster(partitions=1) as cluster:
        storage = cluster.storages[0]
        await cluster.kill_storage(0)
        storage.disk.damage("0/0000000000000000000.seg", 12, b"another key")
        await cluster.start_storage(0)
        znodes = Cluster(cluster.zookeeper.connect(), ROOT)
        executor = OrderExecutor(znodes, PLAINTEXT, network=cluster.network.host("admin"))
        begun = asyncio.get_running_loop().time()
        advice = rf"^storage {storage.address}: .* waltz storage unassign HOST:PORT 0 "
        with pytest.raises(NotPossible, match=advice):
            await carry_out(ReplicaRecovery(0, storage.address), executor, max_stall_seconds=60)
        assert asyncio.get_running_loop().time() - begun < 60


@on_virtual_time
async def test_recovery_of_a_refused_replica_that_no_vote_counts_ends_with_the_advice() -> None:
    """Such a replica would be copied, and the storage refuses the copy until its files are gone."""
    async with InProcessCluster(partitions=1) as cluster:
        storage = cluster.storages[0]
        await cluster.kill_storage(0)
        older = storage.disk.restarted()
        await cluster.start_storage(0)
        async with cluster.connect() as client:
            await client.append(0, b"more than the order may leave to the servers")
        await cluster.kill_server()
        await cluster.start_server()
        await cluster.ready()
        await cluster.kill_storage(0)
        storage.disk = older
        storage.disk.damage("0/0000000000000000000.seg", 12, b"another key")
        await cluster.start_storage(0)
        znodes = Cluster(cluster.zookeeper.connect(), ROOT)
        host = cluster.network.host("admin")
        executor = OrderExecutor(znodes, PLAINTEXT, lag_allowed=0, network=host)
        begun = asyncio.get_running_loop().time()
        steps: list[Step | Wait] = []
        advice = rf"^storage {storage.address}: .* waltz storage unassign HOST:PORT 0 "
        with pytest.raises(NotPossible, match=advice):
            await carry_out(ReplicaRecovery(0, storage.address), executor, on_step=steps.append)
        assert isinstance(steps[-1], CopyReplica)
        assert asyncio.get_running_loop().time() - begun < 60


@on_virtual_time
async def test_forced_drop_of_replicas_that_are_gone_already_succeeds() -> None:
    """A storage refuses to drop a replica that it does not have, as after a lost answer."""
    async with InProcessCluster(partitions=3) as cluster:
        storage = cluster.storages[0].address
        executor = OrderExecutor(
            Cluster(cluster.zookeeper.connect(), ROOT),
            PLAINTEXT,
            network=cluster.network.host("admin"),
        )
        for partitions, left in (((1,), {0, 2}), ((0, 1), {2}), ((0, 1), {2})):
            order = Unassignment(storage, partitions, only=AssignmentSide.STORAGE, force=True)
            assert await carry_out(order, executor) == 1
            observation = await executor.observe(order.scope)
            assert observation.storages[storage].held.keys() == left


def test_stall_limit_counts_from_the_last_successful_step() -> None:
    """The limit counts from the last step that succeeded, not from the start of the order."""
    nexts = [SwitchOn(A, (0,)), Wait("the servers fill the replica"), Done()]
    order = SimpleNamespace(
        scope=ObservationScope(()), refusal=lambda _: None, next_step=lambda _: nexts.pop(0)
    )

    class Slow(ModelExecutor):
        async def perform(self, step: Step, may_continue: MayContinue = lambda: True) -> None:
            await asyncio.sleep(100)
            await super().perform(step)

    executor = Slow(Model({A: 0}, {0: frozenset({A})}))
    assert run(carry_out(cast(Any, order), executor, max_stall_seconds=60)) == 1
