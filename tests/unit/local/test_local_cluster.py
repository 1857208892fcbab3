"""What a local cluster describes while it starts, and how an interrupted start ends."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.local_directories import write_java
from waltz.local import LocalCluster, NotRunning, Shape, ZooKeeperNotStarted, read_description
from waltz.local.core.plan import ZOOKEEPER

_SHAPE = Shape(partitions=1, storages=2, servers=1)


async def test_interrupted_start_stops_the_cluster_and_unlocks_its_directory(
    tmp_path: Path,
) -> None:
    def interrupt(_: str) -> None:
        """Do what Ctrl-C does at the first await of a start."""
        raise asyncio.CancelledError

    clusters = [LocalCluster(tmp_path / "cluster", on_progress=interrupt) for _ in range(2)]
    for cluster in clusters:
        with pytest.raises(asyncio.CancelledError):
            await cluster.start()


async def test_zookeeper_is_described_before_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_java(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    cluster = LocalCluster(tmp_path / "cluster", _SHAPE)

    def described_pids() -> dict[str, int | None]:
        with contextlib.suppress(NotRunning):
            description = read_description(cluster.layout.directory)
            assert description["control"] is None
            return {name: each["pid"] for name, each in description["processes"].items()}
        return {}

    starting = asyncio.create_task(cluster.start())
    try:
        await eventually(lambda: cluster.pids()[ZOOKEEPER])
        await eventually(lambda: described_pids().get(ZOOKEEPER), 5)
        pids = cluster.pids()
        assert described_pids() == pids
        assert pids["storage/0"] is None
    finally:
        cluster.kill(ZOOKEEPER)
        with pytest.raises(ZooKeeperNotStarted):
            await starting
    assert not cluster.layout.description.exists()


async def test_storages_are_described_before_they_are_ready(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import signal\nsignal.pause()\n")
    names = ("storage/0", "storage/1")
    cluster = LocalCluster(tmp_path, _SHAPE, programs=dict.fromkeys(names, program))
    cluster._directory.lock()
    cluster._prepare()
    starting = asyncio.create_task(cluster._start_children(names))
    try:
        await asyncio.sleep(0)
        processes = read_description(tmp_path)["processes"]
        assert {name: processes[name]["pid"] for name in names} == {
            name: cluster.pids()[name] for name in names
        }
        assert all(processes[name]["pid"] for name in names)
    finally:
        starting.cancel()
        await cluster.stop()
