"""A small cluster of real processes whose log stays as it is, and a Spark session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import waltz
import waltz.spark
from waltz.local import LocalCluster, Shape

COUNTS = {0: 5000, 1: 30, 2: 0}
"""Transactions by partition: more than one Arrow batch, few, none."""


@dataclass(frozen=True)
class KnownLog:
    """A cluster, and what its logs hold by partition and id."""

    cluster: LocalCluster
    transactions: dict[tuple[int, int], waltz.Transaction]

    @property
    def file(self) -> Path:
        return self.cluster.layout.description


@pytest.fixture(scope="session")
def known_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnownLog]:
    shape = Shape(partitions=len(COUNTS), storages=1, servers=1)
    cluster = LocalCluster(tmp_path_factory.mktemp("spark-cluster"), shape)
    asyncio.run(cluster.start())
    try:
        yield KnownLog(cluster, asyncio.run(_fill(cluster)))
    finally:
        asyncio.run(cluster.stop())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    session = waltz.spark.session("tests", master="local[2]", settings=settings)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


async def _fill(cluster: LocalCluster) -> dict[tuple[int, int], waltz.Transaction]:
    async with waltz.connect(cluster.zookeeper, root=cluster.root, tls=cluster.tls) as client:
        async with asyncio.TaskGroup() as appends:
            for partition, count in COUNTS.items():
                for i in range(count):
                    data = json.dumps({"i": i}).encode() if i else b""
                    appends.create_task(client.append(partition, data, header=i - 10))
        until = {p: count - 1 for p, count in COUNTS.items()}
        after = dict.fromkeys(COUNTS, -1)
        stream = client.stream(after, until=until, data=True)
        return {(t.partition, t.id): t async for t in stream}
