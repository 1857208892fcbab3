"""Provide one cluster of real processes and one Spark session for all tests.

The logs of the first partitions do not change; each test that writes uses separate partitions.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import waltz
import waltz.client.opening
import waltz.spark
from waltz.local import LocalCluster, Shape

COUNTS = {0: 9000, 1: 30, 2: 0}
"""Transactions by partition: more than one Arrow batch, few, none."""

KNOWN = "0-2"
NUM_PARTITIONS = 200


@dataclass(frozen=True)
class KnownLog:
    """A cluster, and the transactions of its logs by partition and id."""

    cluster: LocalCluster
    transactions: dict[tuple[int, int], waltz.Transaction]

    @property
    def file(self) -> Path:
        return self.cluster.layout.description


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    shape = Shape(partitions=NUM_PARTITIONS, storages=3, servers=2)
    running = LocalCluster(tmp_path_factory.mktemp("spark-cluster"), shape, session_timeout_ms=3000)
    asyncio.run(running.start())
    try:
        yield running
    finally:
        asyncio.run(running.stop())


@pytest.fixture(scope="session")
def partitions() -> Iterator[int]:
    """Numbers of partitions that no other test uses."""
    return iter(range(len(COUNTS), NUM_PARTITIONS))


@pytest.fixture(scope="session")
def known_log(cluster: LocalCluster) -> KnownLog:
    rows = {
        partition: [json.dumps({"i": i}).encode() if i else b"" for i in range(count)]
        for partition, count in COUNTS.items()
    }
    for partition, data in rows.items():
        append(cluster, partition, data, first_header=-10)
    until = {p: count - 1 for p, count in COUNTS.items()}
    return KnownLog(cluster, {(t.partition, t.id): t for t in contents(cluster, until)})


@pytest.fixture(scope="session", autouse=True)
def quick_java(spark_starts_quickly: None) -> None:
    """All tests of this folder start Spark, with the options of `tests.support.spark_java`."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    session = waltz.spark.session("tests", master="local[2,4]", settings=settings)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def append(
    cluster: LocalCluster, partition: int, data: Sequence[bytes], *, first_header: int = 0
) -> list[object]:
    """Append all of ``data`` in its order, with headers that count on.

    A server of a busy machine may lose its ZooKeeper session; absent appends are repeated.
    """

    async def work() -> list[object]:
        async with connected(cluster) as client:
            appended: list[object] = []
            while len(appended) < len(data):
                done = len(appended)
                drafts = [
                    waltz.Draft(each, header=number)
                    for number, each in enumerate(data[done : done + 1000], first_header + done)
                ]
                outcomes = await client.bulk.append(partition, drafts)
                appended += (each for each in outcomes if isinstance(each, waltz.Appended))
            return appended

    return asyncio.run(work())


def contents(cluster: LocalCluster, until: Mapping[int, int]) -> list[waltz.Transaction]:
    """Return the log up to the given ids, read without Spark."""

    async def work() -> list[waltz.Transaction]:
        async with connected(cluster) as client:
            after = dict.fromkeys(until, -1)
            return [t async for t in client.stream(after, until=until, data=True)]

    return asyncio.run(work())


def end_of(cluster: LocalCluster, partition: int) -> int:
    """Return the last transaction id of a log."""

    async def work() -> int:
        async with connected(cluster) as client:
            return await client.high_water_mark(partition)

    return asyncio.run(work())


def written(cluster: LocalCluster, partition: int) -> list[waltz.Transaction]:
    """Return all of a log, read without Spark."""
    return contents(cluster, {partition: end_of(cluster, partition)})


def save(frame: Any, cluster: LocalCluster, format_name: str = "waltz", **options: object) -> None:
    """Append a frame by Spark."""
    writer = frame.write.format(format_name).mode("append")
    writer = writer.option("cluster", str(cluster.layout.description))
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def connected(cluster: LocalCluster) -> waltz.client.opening.Opening[waltz.Client[bytes]]:
    """Connect without time limits of calls: the machine may be busy with other tests."""
    return waltz.connect(
        cluster.zookeeper,
        root=cluster.root,
        tls=cluster.tls,
        append_timeout=None,
        answer_timeout=None,
    )


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Return as soon as ``condition()`` is true; fail after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not true after {seconds:g} s"
        time.sleep(0.02)
