"""A ZooKeeper for clusters that pages make."""

from __future__ import annotations

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
