"""Provide a ZooKeeper for clusters that pages create, and a cluster for programs on pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

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
