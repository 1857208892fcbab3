"""Provide a ZooKeeper and a cluster for the session, and a cluster root for each test."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator

import pytest
from kazoo.client import KazooClient

from waltz.local import LocalCluster, Shape
from waltz.local.zookeeper import ZooKeeperProcess
from waltz.metadata.kazoo_store import KazooStore


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Connect string of a running ZooKeeper."""
    process = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    process.start()
    yield process.connect_string
    process.stop()


@pytest.fixture
def zk_root() -> str:
    """A cluster root that no other test uses."""
    return f"/test-{uuid.uuid4().hex}/cluster"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A running cluster that no test disturbs. Its logs contain the appends of other tests."""
    shape = Shape(partitions=3, storages=3, servers=2)
    running = LocalCluster(tmp_path_factory.mktemp("cluster"), shape, session_timeout_ms=3000)
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())


@pytest.fixture
def end_session(zookeeper: str) -> Callable[[KazooStore], Awaitable[None]]:
    """Ends a session like an expiry: a second client takes it over and closes it."""

    async def end(store: KazooStore) -> None:
        second = KazooClient(zookeeper, client_id=store._client.client_id)

        def take_over_and_close() -> None:
            second.start()
            second.stop()
            second.close()

        await asyncio.to_thread(take_over_and_close)

    return end
