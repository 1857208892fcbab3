"""A whole cluster goes from the old version to the new one and back, in the middle of its work."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.counting import Counting
from tests.replicas import replicas_agree
from tests.versions import (
    NEW,
    OLD,
    check_version,
    client_of_version,
    older_programs,
    restart_in_version,
)
from waltz.local import LocalCluster, Shape

GOES_ON_WITHIN_S = 15.0
SETTLES_WITHIN_S = 30.0
PROCESSES = ("storage/0", "storage/1", "storage/2", "server/0", "server/1")
"""In the order of an upgrade; clients come last, and first on the way back."""


@pytest.mark.timeout(300)
async def test_versions_change_one_process_after_the_other_under_load(tmp_path: Path) -> None:
    programs = older_programs(*PROCESSES)
    shape = Shape(partitions=2, storages=3, servers=2)
    cluster = LocalCluster(tmp_path, shape, session_timeout_ms=3000, programs=programs)
    async with cluster, contextlib.AsyncExitStack() as closing:
        for name in PROCESSES:
            await check_version(cluster, name, OLD)
        applications = [Counting(name, range(shape.partitions)) for name in ("first", "second")]
        for application in applications:
            closing.push_async_callback(application.close)
            await application.go(client_of_version(cluster, OLD))
        await go_on(applications)
        for name in PROCESSES:
            await cluster.stop_one(name)
            await restart_in_version(cluster, programs, name, NEW)
            await go_on(applications)
            await cluster.healthy()
        for application in applications:
            await replace_client(cluster, application, NEW, applications)
        for application in reversed(applications):
            await replace_client(cluster, application, OLD, applications)
        for name in reversed(PROCESSES):
            # The way back is not always in good order.
            cluster.kill(name)
            await restart_in_version(cluster, programs, name, OLD)
            await go_on(applications)
            await cluster.healthy()
        await end(cluster, applications)


async def replace_client(
    cluster: LocalCluster, application: Counting, version: str, applications: list[Counting]
) -> None:
    await application.halt(GOES_ON_WITHIN_S)
    await application.go(client_of_version(cluster, version))
    await go_on(applications)


async def go_on(applications: list[Counting]) -> None:
    for application in applications:
        await application.progress(GOES_ON_WITHIN_S, each=10)


async def end(cluster: LocalCluster, applications: list[Counting]) -> None:
    """Assert that both applications have seen one and the same log, and all replicas hold it."""
    first, second = applications
    await first.halt(GOES_ON_WITHIN_S)
    await second.halt(GOES_ON_WITHIN_S)
    for application, version in ((first, OLD), (second, NEW)):
        await application.catch_up(client_of_version(cluster, version), GOES_ON_WITHIN_S)
        application.check()
    assert first.logs == second.logs
    assert first.counts == second.counts
    await replicas_agree(cluster, SETTLES_WITHIN_S)
