"""Provide a ZooKeeper and a cluster for pages, and the site that is built from the pages."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from waltz.local import LocalCluster, Shape
from waltz.local.zookeeper import ZooKeeperProcess


@pytest.fixture
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Connect string of a running ZooKeeper."""
    process = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    process.start()
    yield process.connect_string
    process.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A running cluster, with nothing in its logs at first."""
    shape = Shape(partitions=4, storages=3, servers=2)
    running = LocalCluster(tmp_path_factory.mktemp("cluster"), shape, session_timeout_ms=3000)
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the documentation site, built with all links checked."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder
