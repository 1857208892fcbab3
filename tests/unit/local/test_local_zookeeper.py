"""The process of ZooKeeper after a start that failed; a script stands in for Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from waltz.local import ZooKeeperNotStarted, zookeeper
from waltz.local.zookeeper import ZooKeeperProcess

_JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.2"' >&2; else exec sleep 30; fi
"""


def test_zookeeper_that_does_not_answer_in_time_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_JAVA)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(zookeeper, "_START_TIMEOUT_S", 0.1)
    process = ZooKeeperProcess(tmp_path / "zk")
    try:
        with pytest.raises(ZooKeeperNotStarted, match=r"it bound no port within 0\.1 s"):
            process.start()
        assert process.pid is None
    finally:
        process.kill()
