"""Test that a worker's memory is bounded, and that it reads exactly the planned range."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import NUM_PARTITIONS, append, connected, wait_until
from waltz.local import LocalCluster
from waltz.net import TlsConfig
from waltz.spark.core.slices import Slice
from waltz.spark.log_reader import ClusterLocation, SparkLogReader

MB = 1 << 20
RECORD_BYTES = 10_000
RECORDS = 5000
"""50 MB in all."""


@pytest.fixture(scope="module")
def long_partition(cluster: LocalCluster, partitions: Iterator[int]) -> int:
    """A partition that is much longer than the memory of a worker."""
    partition = next(partitions)
    append(cluster, partition, [bytes(RECORD_BYTES)] * RECORDS)
    return partition


@pytest.mark.parametrize("from_replicas", [False, True])
def test_worker_memory_is_bounded(
    cluster: LocalCluster, long_partition: int, from_replicas: bool
) -> None:
    """Python's bytes are counted: a range of 4 MiB has a few copies on its way into columns."""
    where = ClusterLocation(cluster.zookeeper, cluster.root, TlsConfig(enabled=False), 60)
    reader = SparkLogReader(where)
    part = Slice(long_partition, 0, RECORDS - 1)
    try:
        next(reader.read(Slice(long_partition, 0, 0), from_replicas=from_replicas))
        rows = 0
        tracemalloc.start()
        try:
            for batch in reader.read(part, from_replicas=from_replicas):
                rows += batch.num_rows
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    finally:
        reader.close()
    assert rows == RECORDS
    assert most < 24 * MB


@pytest.mark.slow
def test_batch_read_ends_at_the_planned_mark(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], tmp_path: Path
) -> None:
    partition = next(partitions)
    append(cluster, partition, [b"before"] * 9)
    begun, resume = tmp_path / "begun", tmp_path / "go-on"

    def waiting(batches: Any) -> Any:
        for batch in batches:
            begun.touch()
            wait_until(resume.exists, 60)
            yield batch

    def appending() -> None:
        try:
            wait_until(begun.exists, 60)
            append(cluster, partition, [b"meanwhile"] * 9)
        finally:
            resume.touch()

    reader = spark.read.format("waltz").option("cluster", str(cluster.layout.description))
    frame = reader.option("partitions", partition).option("rowsPerTask", 2).load()
    other = threading.Thread(target=appending)
    other.start()
    try:
        rows = frame.mapInArrow(waiting, frame.schema).collect()
    finally:
        other.join()
    assert sorted((row.transaction_id, bytes(row.data)) for row in rows) == [
        (number, b"before") for number in range(9)
    ]


@pytest.mark.slow
def test_read_of_200_partitions_returns_all_rows(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    """Each partition has as many rows as its log, an empty one none."""
    for length in (1, 3):
        append(cluster, next(partitions), [b"x"] * length)

    async def marks() -> list[int]:
        async with connected(cluster) as client:
            return await asyncio.gather(*map(client.high_water_mark, range(NUM_PARTITIONS)))

    lengths = {p: mark + 1 for p, mark in enumerate(asyncio.run(marks())) if mark >= 0}
    reader = spark.read.format("waltz").option("cluster", str(cluster.layout.description))
    counts = reader.load().groupBy("partition").count().collect()
    assert {row[0]: row[1] for row in counts} == lengths
