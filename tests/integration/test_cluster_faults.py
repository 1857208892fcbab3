"""Processes that die, disks that are replaced: nothing committed is lost and the log goes on."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator

import pytest

from tests.load import Load
from tests.replicas import replicas_agree
from waltz.local import LocalCluster, Shape

GOES_ON_WITHIN_S = 10.0
SETTLES_WITHIN_S = 30.0


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
    """The cluster, with everything up whatever the test before has done to it."""
    for name in running.plan.names:
        await running.start_one(name)
    for name in running.plan.storage_names:
        await running.sync(name)
    await running.healthy()
    return running


@pytest.mark.parametrize("victim", ["storage/0", "storage/1", "storage/2", "server/0", "server/1"])
async def test_any_one_process_may_be_killed_under_load(healthy: LocalCluster, victim: str) -> None:
    async with Load(healthy) as load:
        await load.progress(GOES_ON_WITHIN_S, appends=50)
        killed = time.monotonic()
        healthy.kill(victim)
        await load.progress(GOES_ON_WITHIN_S, appends=50)
        await healthy.start_one(victim)
        await load.progress(GOES_ON_WITHIN_S, appends=50)
        await load.finish(GOES_ON_WITHIN_S)
        assert load.longest_pause(killed) < GOES_ON_WITHIN_S
        await load.check()
    await healthy.healthy()
    await replicas_agree(healthy, SETTLES_WITHIN_S)


async def test_without_a_quorum_appends_wait_and_go_on_when_one_is_back(
    healthy: LocalCluster,
) -> None:
    async with Load(healthy) as load:
        await load.progress(GOES_ON_WITHIN_S, appends=20)
        healthy.kill("storage/0")
        healthy.kill("storage/1")
        await stands_still(load)
        await healthy.start_one("storage/1")
        await load.progress(GOES_ON_WITHIN_S, appends=20)
        await load.finish(GOES_ON_WITHIN_S)
        await load.check()
        await healthy.start_one("storage/0")
        await healthy.healthy()
        await replicas_agree(healthy, SETTLES_WITHIN_S)
        await load.check()


async def test_an_emptied_storage_does_not_stand_in_for_one_that_is_down(
    healthy: LocalCluster,
) -> None:
    """Storage 2 misses appends, then storage 1 loses its disk: 0 alone knows all of the log."""
    async with Load(healthy) as load:
        await load.progress(GOES_ON_WITHIN_S, appends=20)
        await healthy.stop_one("storage/2")
        await load.progress(GOES_ON_WITHIN_S, appends=50)
        healthy.kill("storage/0")
        healthy.kill("storage/1")
        emptied = healthy.layout.data("storage/1")
        shutil.rmtree(emptied)
        emptied.mkdir()
        await healthy.start_one("storage/1")
        await healthy.start_one("storage/2")
        await healthy.sync("storage/1")
        # 1 and 2 are two of three, but 1 may have known more than 2 does: they have to wait for 0.
        await stands_still(load)
        await healthy.start_one("storage/0")
        await load.progress(GOES_ON_WITHIN_S, appends=20)
        await load.finish(GOES_ON_WITHIN_S)
        await load.check()
    await healthy.healthy()
    await replicas_agree(healthy, SETTLES_WITHIN_S)


async def stands_still(load: Load, seconds: float = 2.0) -> None:
    """Assert that nothing is acknowledged any more; what was on its way may still arrive."""
    await asyncio.sleep(0.5)
    before = len(load.acknowledged)
    await asyncio.sleep(seconds)
    assert len(load.acknowledged) == before
