"""A real ZooKeeper for the whole run, and a place in it for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from waltz.local.zookeeper import ZooKeeperProcess


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
