"""The lock and the ``cluster.json`` of a directory, also those that a dead supervisor left."""

from __future__ import annotations

import asyncio
import fcntl
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import count
from pathlib import Path

import pytest

from tests.support.local_directories import started, write_description
from waltz.local import (
    ClusterLayout,
    ClusterRunning,
    LocalCluster,
    PlanError,
    Shape,
    end_left_over,
    read_description,
)
from waltz.local.core.plan import LocalClusterPlan
from waltz.local.directory import ClusterDirectory


def interrupt(_: str) -> None:
    """End a start before its first process."""
    raise asyncio.CancelledError


async def test_start_beside_left_over_processes_is_refused_and_keeps_their_ids(
    tmp_path: Path,
) -> None:
    layout = ClusterLayout(tmp_path)
    cluster = LocalCluster(tmp_path, on_progress=interrupt)
    with started(str(layout.config("storage/0"))) as storage:
        write_description(layout, {"storage/0": storage.pid}, None)
        with pytest.raises(ClusterRunning) as refused:
            await cluster.start()
        assert str(refused.value) == (
            f"the supervisor of the cluster in {tmp_path} has ended, but these processes still "
            f"run: storage/0; end them with: waltz local down --dir {tmp_path}"
        )
        assert storage.poll() is None
        storage.kill()
        storage.wait()
    assert end_left_over(tmp_path) == {}
    # The refused start has unlocked the directory.
    with pytest.raises(asyncio.CancelledError):
        await cluster.start()


async def test_failed_start_keeps_the_description_of_another_supervisor(tmp_path: Path) -> None:
    layout = ClusterLayout(tmp_path)
    layout.plan.write_text("{")
    write_description(layout, {}, None)
    with pytest.raises(PlanError):
        await LocalCluster(tmp_path, Shape(partitions=2), on_progress=interrupt).start()
    assert layout.description.exists()


def test_start_beside_a_start_names_no_process_that_has_ended(tmp_path: Path) -> None:
    layout = ClusterLayout(tmp_path)
    write_description(layout, {"zookeeper": 1}, None)
    with layout.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ClusterRunning) as refused:
            ClusterDirectory(layout).lock()
    assert str(refused.value) == (
        f"the cluster in {tmp_path} is running already; stop it with: waltz local down "
        f"--dir {tmp_path}"
    )


def test_process_that_has_not_run_yet_has_no_time_of_its_end(tmp_path: Path) -> None:
    plan = LocalClusterPlan.of(Shape(partitions=1, storages=1, servers=1), count(20_000))
    directory = ClusterDirectory(ClusterLayout(tmp_path))
    directory.lock()

    def end_of_storage(pid: int | None) -> float | None:
        directory.describe(plan, {"storage/0": pid}, None)
        ended_at: float | None = read_description(tmp_path)["processes"]["storage/0"]["ended_at"]
        return ended_at

    try:
        assert [end_of_storage(pid) for pid in (None, 7)] == [None, None]
        assert end_of_storage(None) is not None
    finally:
        directory.unlock()


def test_start_beside_a_command_that_asks_for_a_supervisor_waits_for_the_command(
    tmp_path: Path,
) -> None:
    directory = ClusterDirectory(ClusterLayout(tmp_path))
    asking = ClusterLayout(tmp_path).lock.open("w")
    fcntl.flock(asking, fcntl.LOCK_SH)
    with ThreadPoolExecutor(1) as pool:
        locking = pool.submit(directory.lock)
        wait([locking], timeout=0.1)
        assert not locking.done()
        asking.close()
        locking.result()
    assert directory.is_locked
    with pytest.raises(ClusterRunning):
        ClusterDirectory(ClusterLayout(tmp_path)).lock()
    directory.unlock()
