"""Test that batches append each row once while tasks, the driver or servers fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.spark.conftest import end_of, save, wait_until, written
from waltz.local import LocalCluster


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("has_row_ids", [False, True])
@pytest.mark.slow
def test_batch_with_tasks_killed_anywhere_appends_each_row_once(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], seed: int, has_row_ids: bool
) -> None:
    """After a shuffle, each of 3 tasks dies up to twice, in the middle or after its last row."""
    partition = next(partitions)
    frame = spark.range(3000).selectExpr(
        f"{partition} AS partition",
        "CAST(id AS STRING) AS data",
        *(["id"] if has_row_ids else []),
    )
    spark.dataSource.register(killed_source(seed))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    try:
        save(frame.repartition(3), cluster, "mortal")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = [int(t.data) for t in written(cluster, partition)]
    assert sorted(found) == list(range(3000))


def killed_source(seed: int) -> type:
    """Return a source whose tasks are killed at random points, as often as Spark tolerates."""
    import os
    import random

    from pyspark import TaskContext

    import waltz.spark.writer
    from waltz.spark.cluster_location import locate
    from waltz.spark.core.rows import columns_of
    from waltz.spark.core.write_options import parse_write_options
    from waltz.spark.sink import WaltzWriter
    from waltz.spark.source import WaltzDataSource

    class KilledWriter(WaltzWriter):
        def write(self, iterator: Any) -> Any:
            waltz.spark.writer._BATCH_ROWS = 150
            context = TaskContext.get()
            chance = random.Random(f"{seed} {context.partitionId()} {context.attemptNumber()}")
            last = chance.randrange(10) if context.attemptNumber() < 2 else -1

            def killed() -> Any:
                for number, batch in enumerate(iterator):
                    if number == last:
                        os._exit(1)
                    yield batch

            message = super().write(killed())
            if last >= 0:
                os._exit(1)
            return message

    class KilledSource(WaltzDataSource):
        @classmethod
        def name(cls) -> str:
            return "mortal"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            options = parse_write_options(self.options)
            return KilledWriter(locate(options.cluster), options, columns_of(schema))

    return KilledSource


def test_batch_failed_before_commit_can_be_repeated(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    partition = next(partitions)
    frame = spark.range(500).selectExpr(f"{partition} AS partition", "CAST(id AS STRING) AS data")
    spark.dataSource.register(source_without_commits())
    with pytest.raises(PySparkException, match="the driver fails here"):
        save(frame.repartition(3), cluster, "uncommitted", writeId=f"again {partition}")
    assert len(written(cluster, partition)) == 500
    save(frame.repartition(3), cluster, writeId=f"again {partition}")
    assert sorted(int(t.data) for t in written(cluster, partition)) == list(range(500))


def source_without_commits() -> type:
    """Return a source whose writes fail when all their tasks have ended well."""
    from waltz.spark.cluster_location import locate
    from waltz.spark.core.rows import columns_of
    from waltz.spark.core.write_options import parse_write_options
    from waltz.spark.sink import WaltzWriter
    from waltz.spark.source import WaltzDataSource

    class Uncommitted(WaltzWriter):
        def commit(self, messages: Any) -> None:
            raise RuntimeError("the driver fails here")

    class UncommittedSource(WaltzDataSource):
        @classmethod
        def name(cls) -> str:
            return "uncommitted"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            options = parse_write_options(self.options)
            return Uncommitted(locate(options.cluster), options, columns_of(schema))

    return UncommittedSource


@pytest.mark.slow
def test_batch_survives_server_kills(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    """Kill both servers, one after the other, so that the one that owns the partition is killed."""
    partition, count = next(partitions), 30_000
    frame = spark.range(count).selectExpr(
        f"{partition} AS partition", "concat(CAST(id AS STRING), ' ', repeat('x', 500)) AS data"
    )
    faults: list[str] = []

    def kill() -> None:
        for number, server in enumerate(("server/0", "server/1"), 1):
            wait_until(lambda number=number: end_of(cluster, partition) >= 4000 * number, 90)  # type: ignore[misc]
            cluster.kill(server)
            faults.append(server)
            asyncio.run(cluster.start_one(server))

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        save(frame.repartition(3), cluster)
    finally:
        killing.join(100)
    assert faults == ["server/0", "server/1"]
    found = sorted(int(t.data.split()[0]) for t in written(cluster, partition))
    assert found == list(range(count))
