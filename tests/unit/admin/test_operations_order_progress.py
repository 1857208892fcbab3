"""The time limits of orders hold while ZooKeeper does not answer."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from waltz.admin import ObservationScope, OrderExecutor, OrderRefused, Stalled, carry_out
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    CreateReplicas,
    Done,
    EqualReplicas,
    Next,
    RegisterStorage,
    Step,
    Wait,
)
from waltz.admin.offline_copy import MayContinue
from waltz.cli import running
from waltz.metadata.cluster import Cluster
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.store import OperationTimedOut
from waltz.net import PLAINTEXT
from waltz.testing import run
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/log"
A, B = "a:1", "b:1"
ANSWER_SECONDS, STALL_SECONDS = 10.0, 60.0
LIMIT_SECONDS = 3600.0
SILENT = r"ZooKeeper has not answered within 10 s"
"""What the tests expect of an error; a regular expression."""


def run_limited(main: Coroutine[Any, Any, None]) -> None:
    """Run ``main`` on virtual time; fail if it has not ended after an hour.

    What waits for ZooKeeper by polling, or by repeated tries, would otherwise never end.
    """

    async def limited() -> None:
        # Not TimeoutError: the tests and the code under test handle it.
        task = asyncio.ensure_future(main)
        done, _ = await asyncio.wait({task}, timeout=LIMIT_SECONDS)
        assert done, f"not ended after {LIMIT_SECONDS:g} s"
        await task

    run(limited())


async def made_cluster() -> tuple[MemoryZooKeeper, Cluster]:
    """Return a cluster with one partition and two storages, and its ZooKeeper."""
    zookeeper = MemoryZooKeeper()
    cluster = Cluster(zookeeper.connect(), ROOT)
    await create_cluster(cluster.store, ROOT, "log", 1, key=uuid.UUID(int=1))
    for storage in (A, B):
        await cluster.add_storage_node(storage, 0, 9001)
    return zookeeper, cluster


def order_of(*nexts: Next, refusal: str | None = None) -> Any:
    """Return an order that decides for ``nexts``, one after the other."""
    remaining = list(nexts)
    return SimpleNamespace(
        scope=ObservationScope((0,), query_peers=False),
        refusal=lambda _: refusal,
        next_step=lambda _: remaining.pop(0),
    )


class Executor(OrderExecutor):
    """Succeeds with each step; ZooKeeper stops to answer after the first one."""

    def __init__(self, cluster: Cluster, zookeeper: MemoryZooKeeper) -> None:
        super().__init__(cluster, PLAINTEXT, answer_seconds=ANSWER_SECONDS)
        self.zookeeper = zookeeper

    async def perform(self, step: Step, may_continue: MayContinue = lambda: True) -> None:
        self.zookeeper.stop_answering()


@pytest.mark.parametrize("stall", [STALL_SECONDS, 0.0])
def test_order_without_an_answer_of_zookeeper_ends_within_its_time_limit(stall: float) -> None:
    """The error has the steps that succeeded before."""

    async def main() -> None:
        zookeeper, cluster = await made_cluster()
        executor = Executor(cluster, zookeeper)
        clock = asyncio.get_running_loop().time
        begun = clock()
        step = CreateReplicas(A, (0,))
        with pytest.raises(Stalled, match=rf"{SILENT}.*completed before: 1, the last: {step}$"):
            await carry_out(order_of(step), executor, max_stall_seconds=stall)
        assert clock() - begun <= stall + ANSWER_SECONDS

    run_limited(main())


def test_order_continues_when_zookeeper_answers_again() -> None:
    async def main() -> None:
        zookeeper, cluster = await made_cluster()
        executor = Executor(cluster, zookeeper)
        order = order_of(CreateReplicas(A, (0,)), Done())
        waits: list[Step | Wait] = []

        def on_step(step: Step | Wait) -> None:
            waits.append(step)
            if isinstance(step, Wait):
                zookeeper.resume_answering()

        assert await carry_out(order, executor, on_step=on_step) == 1
        assert [type(each) for each in waits] == [CreateReplicas, Wait]

    run_limited(main())


def test_order_is_refused_by_the_first_answer_of_zookeeper() -> None:
    async def main() -> None:
        zookeeper, cluster = await made_cluster()
        zookeeper.stop_answering()
        asyncio.get_running_loop().call_later(15, zookeeper.resume_answering)
        with pytest.raises(OrderRefused, match="the reason"):
            await carry_out(order_of(refusal="the reason"), Executor(cluster, zookeeper))

    run_limited(main())


@pytest.mark.parametrize(
    "step",
    [
        CopyReplica(A, B, 0),
        CreateReplicas(A, (0,)),
        RegisterStorage("c:1", 0, 9001),
        ChangeAssignment((), (EqualReplicas(0, frozenset({A, B})),)),
    ],
    ids=lambda step: type(step).__name__,
)
def test_step_without_an_answer_of_zookeeper_fails_in_time(step: Step) -> None:
    async def main() -> None:
        zookeeper, cluster = await made_cluster()
        zookeeper.stop_answering()
        executor = OrderExecutor(cluster, PLAINTEXT, answer_seconds=ANSWER_SECONDS, step_seconds=60)
        clock = asyncio.get_running_loop().time
        begun = clock()
        with pytest.raises(OperationTimedOut, match=r"ZooKeeper has not answered within \d+ s$"):
            await executor.perform(step)
        assert clock() - begun <= ANSWER_SECONDS

    run_limited(main())


def test_declaration_of_tls_without_an_answer_of_zookeeper_is_an_error_in_time() -> None:
    async def main() -> None:
        zookeeper, cluster = await made_cluster()
        zookeeper.stop_answering()
        target = SimpleNamespace(tls=None)
        with pytest.raises(OperationTimedOut, match=SILENT):
            await running.tls_of(cast(Any, target), cluster)

    run_limited(main())
