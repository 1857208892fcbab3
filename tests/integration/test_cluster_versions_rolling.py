"""A cluster under load is upgraded process by process, and downgraded again."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.support.counting import Counting
from tests.support.replicas import replicas_agree
from tests.support.versions import (
    NEW,
    OLD,
    check_version,
    client_of_version,
    older_programs,
    restart_in_version,
)
from waltz.local import LocalCluster, Shape

RESUMES_WITHIN_S = 60.0
SETTLES_WITHIN_S = 60.0
PROCESSES = ("storage/0", "storage/1", "storage/2", "server/0", "server/1")
"""In the order of an upgrade. Clients are upgraded last, and downgraded first."""


@pytest.mark.timeout(900)
@pytest.mark.slow
async def test_rolling_upgrade_and_downgrade_under_load_lose_no_append(tmp_path: Path) -> None:
    programs = older_programs(*PROCESSES)
    shape = Shape(partitions=2, storages=3, servers=2)
    cluster = LocalCluster(tmp_path, shape, session_timeout_ms=3000, programs=programs)
    async with cluster, contextlib.AsyncExitStack() as closing:
        for name in PROCESSES:
            await check_version(cluster, name, OLD)
        applications = [Counting(name, range(shape.partitions)) for name in ("first", "second")]
        for application in applications:
            closing.push_async_callback(application.close)
            await application.start(client_of_version(cluster, OLD))
        await progress(applications)
        for name in PROCESSES:
            await cluster.stop_one(name)
            await restart_in_version(cluster, programs, name, NEW)
            await progress(applications)
            await cluster.wait_until_healthy()
        for application in applications:
            await replace_client(cluster, application, NEW, applications)
        for application in reversed(applications):
            await replace_client(cluster, application, OLD, applications)
        for name in reversed(PROCESSES):
            # A downgrade must also work after a crash.
            cluster.kill(name)
            await restart_in_version(cluster, programs, name, OLD)
            await progress(applications)
            await cluster.wait_until_healthy()
        await stop(cluster, applications)


async def replace_client(
    cluster: LocalCluster, application: Counting, version: str, applications: list[Counting]
) -> None:
    await application.stop(RESUMES_WITHIN_S)
    await application.start(client_of_version(cluster, version))
    await progress(applications)


async def progress(applications: list[Counting]) -> None:
    for application in applications:
        await application.wait_for_progress(RESUMES_WITHIN_S, appends=10)


async def stop(cluster: LocalCluster, applications: list[Counting]) -> None:
    """Assert that both applications have the same log, and that all replicas agree."""
    first, second = applications
    await first.stop(RESUMES_WITHIN_S)
    await second.stop(RESUMES_WITHIN_S)
    for application, version in ((first, OLD), (second, NEW)):
        await application.catch_up(client_of_version(cluster, version), RESUMES_WITHIN_S)
        application.check()
    assert first.logs == second.logs
    assert first.counts == second.counts
    await replicas_agree(cluster, SETTLES_WITHIN_S)
