"""Killed processes and emptied disks: no committed transaction is lost, and appends continue."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.load import Load
from tests.support.replicas import replicas_agree
from waltz.local import ClusterUnhealthy, LocalCluster, Shape

RESUMES_WITHIN_S = 60.0
SETTLES_WITHIN_S = 60.0


@pytest.fixture(scope="module", params=[6000], ids=["session-6s"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    shape = Shape(partitions=2, storages=3, servers=2)
    directory = tmp_path_factory.mktemp("faults")
    cluster = LocalCluster(directory, shape, session_timeout_ms=request.param)
    asyncio.run(cluster.start())
    yield cluster
    asyncio.run(cluster.stop())


@pytest.fixture
async def healthy(running: LocalCluster) -> LocalCluster:
    """The cluster with all processes running, regardless of the previous test."""
    for name in running.plan.names:
        await running.start_one(name)
    for name in running.plan.storage_names:
        await running.sync(name)
    await running.wait_until_healthy()
    return running


@pytest.mark.parametrize(
    "victim",
    [
        "storage/0",
        "server/0",
        *(pytest.param(p, marks=pytest.mark.slow) for p in ("storage/1", "storage/2", "server/1")),
    ],
)
async def test_killed_process_under_load_loses_no_append(
    healthy: LocalCluster, victim: str
) -> None:
    async with Load(healthy) as load:
        await load.wait_for_progress(RESUMES_WITHIN_S, appends=50)
        killed = time.monotonic()
        healthy.kill(victim)
        await load.wait_for_progress(RESUMES_WITHIN_S, appends=50)
        await healthy.start_one(victim)
        await load.wait_for_progress(RESUMES_WITHIN_S, appends=50)
        await load.finish(RESUMES_WITHIN_S)
        assert load.longest_pause(killed) < RESUMES_WITHIN_S
        await load.check()
    await healthy.wait_until_healthy()
    await replicas_agree(healthy, SETTLES_WITHIN_S)


async def test_appends_without_a_quorum_wait_until_a_storage_is_back(
    healthy: LocalCluster,
) -> None:
    async with Load(healthy) as load:
        await load.wait_for_progress(RESUMES_WITHIN_S, appends=20)
        healthy.kill("storage/0")
        healthy.kill("storage/1")
        await assert_no_progress(load)
        await healthy.start_one("storage/1")
        await load.wait_for_progress(RESUMES_WITHIN_S, appends=20)
        await load.finish(RESUMES_WITHIN_S)
        await load.check()
        await healthy.start_one("storage/0")
        await healthy.wait_until_healthy()
        await replicas_agree(healthy, SETTLES_WITHIN_S)
        await load.check()


@pytest.mark.slow
async def test_emptied_storage_does_not_count_towards_a_quorum(
    healthy: LocalCluster,
) -> None:
    """Storage 2 misses appends, then storage 1 loses its disk: only storage 0 has the whole log."""
    async with Load(healthy) as load:
        await load.wait_for_progress(RESUMES_WITHIN_S, appends=20)
        await healthy.stop_one("storage/2")
        await load.wait_for_progress(RESUMES_WITHIN_S, appends=50)
        healthy.kill("storage/0")
        healthy.kill("storage/1")
        emptied = healthy.layout.data("storage/1")
        shutil.rmtree(emptied)
        emptied.mkdir()
        await healthy.start_one("storage/1")
        await healthy.start_one("storage/2")
        await healthy.sync("storage/1")
        # 1 and 2 are two of three, but 1 may have had more than 2 has: they must wait for 0.
        await assert_no_progress(load)
        await healthy.start_one("storage/0")
        await load.wait_for_progress(RESUMES_WITHIN_S, appends=20)
        await load.finish(RESUMES_WITHIN_S)
        await load.check()
    await healthy.wait_until_healthy()
    await replicas_agree(healthy, SETTLES_WITHIN_S)


async def test_wait_for_health_without_zookeeper_ends_with_the_reason(
    healthy: LocalCluster,
) -> None:
    zookeeper = healthy.pids()["zookeeper"]
    assert zookeeper is not None
    os.kill(zookeeper, signal.SIGSTOP)
    try:
        with pytest.raises(ClusterUnhealthy, match="ZooKeeper does not answer"):
            await healthy.wait_until_healthy(0.5)
    finally:
        os.kill(zookeeper, signal.SIGCONT)


async def assert_no_progress(load: Load, seconds: float = 2.0) -> None:
    """Assert that no append is acknowledged, after a short time for answers already sent."""
    await asyncio.sleep(0.5)
    before = len(load.acknowledged)
    await asyncio.sleep(seconds)
    assert len(load.acknowledged) == before
