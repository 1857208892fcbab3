"""The lock and the ``cluster.json`` of a directory, also those that a dead supervisor left."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import count
from pathlib import Path
from typing import IO

import pytest
from typer.testing import CliRunner

from tests.support.local_directories import started, write_description
from waltz.cli.app import app
from waltz.local import (
    ClusterLayout,
    ClusterRunning,
    LocalCluster,
    PlanError,
    Shape,
    end_left_over,
    read_description,
)
from waltz.local.control import find_left_over
from waltz.local.core.plan import LocalClusterPlan
from waltz.local.directory import ClusterDirectory


def no_locks(_: IO[str], __: int) -> None:
    """Do what flock does on a file system without locks."""
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


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


async def test_cluster_in_linked_directory_is_left_over_at_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    for directory in (link, tmp_path / "other" / ".." / "real"):
        (tmp_path / "other").mkdir(exist_ok=True)
        cluster = LocalCluster(directory, on_progress=interrupt)
        with started(str(cluster.layout.config("storage/0"))) as storage:
            write_description(cluster.layout, {"storage/0": storage.pid}, None)
            for place in (link, tmp_path / "real"):
                assert find_left_over(place) == {"storage/0": storage.pid}
            with pytest.raises(ClusterRunning, match=f"cluster in {directory} has ended"):
                await cluster.start()
            storage.kill()


def test_existing_cluster_of_another_shape_is_named_as_the_user_does(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    LocalCluster(link, Shape(partitions=1))._prepare()
    with pytest.raises(PlanError, match=f"^{link} holds a cluster of 1 partition"):
        LocalCluster(link, Shape(partitions=2))._prepare()


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
            ClusterDirectory(tmp_path).lock()
    assert str(refused.value) == (
        f"the cluster in {tmp_path} is running already; stop it with: waltz local down "
        f"--dir {tmp_path}"
    )


def test_process_that_has_not_run_yet_has_no_time_of_its_end(tmp_path: Path) -> None:
    plan = LocalClusterPlan.of(Shape(partitions=1, storages=1, servers=1), count(20_000))
    directory = ClusterDirectory(tmp_path)
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
    directory = ClusterDirectory(tmp_path)
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
        ClusterDirectory(tmp_path).lock()
    directory.unlock()


def test_directory_without_file_locks_is_refused_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    directory = ClusterDirectory(tmp_path)
    with pytest.raises(PlanError) as refused:
        directory.lock()
    assert str(refused.value) == (
        f"cannot lock the directory {tmp_path} (No locks available): its file system may have no "
        "file locks; choose another with --dir"
    )
    assert not directory.is_locked


@pytest.mark.parametrize("command", ["status", "down"])
def test_command_for_directory_without_file_locks_fails_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    layout = ClusterLayout(tmp_path)
    layout.lock.touch()
    write_description(layout, {}, None)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    failed = CliRunner().invoke(app, ["local", command, "--dir", str(tmp_path)])
    assert failed.exit_code == 1
    assert failed.stderr == (
        f"waltz: cannot check whether the supervisor of the cluster in {tmp_path} runs: "
        f"{layout.lock} cannot be locked (No locks available); mount its file system with file "
        "locks, and run the same command again\n"
    )
    assert layout.description.exists()


def test_lock_on_nfs_is_held_by_one_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS has locks of byte ranges: each kind of lock needs a file that is open for its access."""
    lock_file = fcntl.flock

    def lock_on_nfs(file: IO[str], operation: int) -> None:
        mode = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE
        lacking = {fcntl.LOCK_SH: os.O_WRONLY, fcntl.LOCK_EX: os.O_RDONLY}
        if lacking.get(operation & ~fcntl.LOCK_NB) == mode:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        lock_file(file, operation)

    monkeypatch.setattr(fcntl, "flock", lock_on_nfs)
    directory = ClusterDirectory(tmp_path)
    directory.lock()
    with pytest.raises(ClusterRunning, match="is running already"):
        ClusterDirectory(tmp_path).lock()
    directory.unlock()
