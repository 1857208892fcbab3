"""The starts of ZooKeeper's process; a script stands in for Java."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from waltz.local import ZooKeeperNotStarted, zookeeper
from waltz.local.zookeeper import ZooKeeperProcess

_JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.2"' >&2; else exec sleep 30; fi
"""


@pytest.fixture(autouse=True)
def _java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a script be the program ``java``."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_JAVA)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


def test_zookeeper_that_does_not_answer_in_time_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    both_launch = threading.Barrier(2)

    def answer(_: ZooKeeperProcess, server: subprocess.Popen[bytes], __: int) -> None:
        servers.append(server)

    def find_java() -> str:
        """Wait a moment for the other thread, which gets here if it may launch a server, too."""
        with contextlib.suppress(threading.BrokenBarrierError):
            both_launch.wait(0.1)
        return str(tmp_path / "bin" / "java")

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
