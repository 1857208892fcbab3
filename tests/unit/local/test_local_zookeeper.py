"""The starts of ZooKeeper's process; a script stands in for Java."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.local_directories import write_java
from waltz.local import ZooKeeperNotStarted, zookeeper
from waltz.local.zookeeper import ZooKeeperProcess


def test_zookeeper_that_does_not_answer_in_time_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_java(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(zookeeper, "_START_TIMEOUT_S", 0.1)
    process = ZooKeeperProcess(tmp_path / "zk")
    try:
        with pytest.raises(ZooKeeperNotStarted, match=r"it bound no port within 0\.1 s"):
            process.start()
        assert process.pid is None
    finally:
        process.kill()


def test_simultaneous_starts_start_one_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[subprocess.Popen[bytes]] = []
    both_launch, java = threading.Barrier(2), str(write_java(tmp_path))

    def answer(_: ZooKeeperProcess, server: subprocess.Popen[bytes], __: int) -> None:
        servers.append(server)

    def find_java() -> str:
        """Wait a moment for the other thread, which gets here if it may launch a server, too."""
        with contextlib.suppress(threading.BrokenBarrierError):
            both_launch.wait(0.1)
        return java

    monkeypatch.setattr(ZooKeeperProcess, "_await_answer", answer)
    monkeypatch.setattr(zookeeper, "find_java", find_java)
    process = ZooKeeperProcess(tmp_path / "zk")
    try:
        with ThreadPoolExecutor(2) as threads:
            for start in [threads.submit(process.start) for _ in range(2)]:
                start.result()
        assert [server.pid for server in servers] == [process.pid]
    finally:
        for server in servers:
            server.kill()
            server.wait()
