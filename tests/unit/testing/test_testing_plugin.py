"""The pytest plugin: its fixture serves blocking tests and coroutines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import asyncio
import pytest
import waltz
from waltz import sync

async def append(cluster):
    async with cluster.connect() as client:
        cluster.fail_next_append(1, committed=False)
        with pytest.raises(waltz.AppendUncertain):
            await client.append(1, b"lost")
        return await client.append(1, b"hello")

@pytest.mark.waltz_cluster(2, servers=2, seed=7)
def test_blocking(waltz_cluster):
    assert waltz_cluster.num_partitions == 2
    with sync.opened(waltz_cluster.connect()) as client:
        assert client.append(1, b"hello") == 0
        waltz_cluster.kill_server(0)
        assert client.append(1, b"hello") == 1
        waltz_cluster.start_server(0)
        waltz_cluster.kill_storage(0, power_loss=True)
        assert client.append(1, b"hello") == 2
        waltz_cluster.start_storage(0)
        assert waltz_cluster.cut_clients() > 0
        assert client.append(0, b"hello") == 0
    assert [t.data for t in waltz_cluster.transactions(1)] == [b"hello"] * 3

@pytest.mark.waltz_cluster(2)
def test_coroutine(waltz_cluster):
    assert asyncio.run(append(waltz_cluster)) == 0

def test_default(waltz_cluster):
    assert waltz_cluster.num_partitions == 1
"""


def test_fixture_of_the_plugin_is_a_new_cluster_for_each_test(tmp_path: Path) -> None:
    (tmp_path / "test_application.py").write_text(TESTS)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "waltz.pytest_plugin"],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3 passed" in ended.stdout
