"""Test streams: offsets, limits, restarts, and changes of the cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.conftest import append
from waltz.local import LocalCluster


def follow(spark: Any, cluster: LocalCluster, partition: int, **options: object) -> Any:
    reader = spark.readStream.format("waltz").option("cluster", str(cluster.layout.description))
    reader = reader.option("partitions", partition)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


class Followed:
    """A query whose rows are gathered batch by batch; its checkpoint outlives it."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.batches: dict[int, list[int]] = {}

    @property
    def ids(self) -> list[int]:
        return [i for _, batch in sorted(self.batches.items()) for i in batch]

    def start(self, frame: Any, *, once: bool = True) -> Any:
        def gather(batch: Any, number: int) -> None:
            rows = batch.select("transaction_id").collect()
            self.batches[number] = sorted(row[0] for row in rows)

        writer = frame.writeStream.foreachBatch(gather)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if once else writer).start()

    def edit(self, pattern: str, replacement: str) -> None:
        """Replace what matches ``pattern`` in the checkpoint, while no query runs."""
        for name in ("offsets", "commits"):
            for file in (self.checkpoint / name).iterdir():
                if file.name.endswith(".crc"):
                    file.unlink()
                else:
                    file.write_text(re.sub(pattern, replacement, file.read_text()))

    def run(self, frame: Any) -> Any:
        query = self.start(frame)
        assert query.awaitTermination(60)
        return query


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path / "checkpoint")


@pytest.mark.slow
def test_stream_rows_come_once_across_restarts(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], followed: Followed
) -> None:
    partition = next(partitions)
    append(cluster, partition, [b"x"] * 25)
    frame = follow(spark, cluster, partition, maxRowsPerTrigger=10)
    query = followed.run(frame)
    assert [len(batch) for batch in followed.batches.values()] == [10, 10, 5]
    source = query.lastProgress["sources"][0]
    assert str(partition) in source["endOffset"]
    assert '"25"' in source["latestOffset"]
    append(cluster, partition, [b"y"] * 5)
    followed.run(frame)
    assert followed.ids == list(range(30))


def test_stream_reads_rows_appended_while_it_runs(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], followed: Followed
) -> None:
    """A server that may own the partition, and a replica, are killed meanwhile."""
    partition = next(partitions)
    append(cluster, partition, [b"x"] * 3)
    query = followed.start(follow(spark, cluster, partition), once=False)
    try:
        for victim in ("server/1", "storage/1"):
            cluster.kill(victim)
            append(cluster, partition, [b"y"] * 3)
            query.processAllAvailable()
            asyncio.run(cluster.start_one(victim))
        append(cluster, partition, [b"z"] * 3)
        query.processAllAvailable()
    finally:
        query.stop()
    assert followed.ids == list(range(12))


@pytest.mark.slow
def test_stream_with_max_bytes_starts_at_its_position_and_skips_nothing(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], followed: Followed
) -> None:
    partition = next(partitions)
    append(cluster, partition, [bytes(1000)] * 20)
    followed.run(
        follow(
            spark,
            cluster,
            partition,
            maxBytesPerTrigger=5000,
            startingPositions=f'{{"{partition}": "4"}}',
        )
    )
    assert followed.ids == list(range(4, 20))
    assert 4 <= len(followed.batches) <= 5


@pytest.mark.slow
def test_stream_missing_position_fails_or_continues(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], followed: Followed
) -> None:
    """The checkpoint is of a longer log: as after a restored backup, or with a wrong cluster."""
    partition = next(partitions)
    append(cluster, partition, [b"x"] * 9)
    frame = follow(spark, cluster, partition)
    followed.run(frame)
    followed.edit('"9"', '"90"')
    with pytest.raises(StreamingQueryException, match=f"transaction 90 of partition {partition}"):
        followed.run(frame)
    append(cluster, partition, [b"y"])
    followed.run(follow(spark, cluster, partition, missingPositions="continue"))
    append(cluster, partition, [b"z"])
    followed.run(frame)
    assert followed.ids == [*range(9), 10]


@pytest.mark.slow
def test_stream_checkpoint_of_other_partitions_is_refused(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], followed: Followed
) -> None:
    first, second = next(partitions), next(partitions)
    followed.run(follow(spark, cluster, first))
    with pytest.raises(StreamingQueryException, match="use another checkpointLocation"):
        followed.run(follow(spark, cluster, second))


@pytest.mark.slow
def test_stream_checkpoint_of_another_cluster_is_refused(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], followed: Followed
) -> None:
    """A checkpoint without a key, of an earlier version, is continued, without an empty batch."""
    partition = next(partitions)
    append(cluster, partition, [b"x"] * 3)
    frame = follow(spark, cluster, partition)
    followed.run(frame)
    followed.edit('"clusterKey": "[^"]*", ', "")
    followed.run(frame)
    assert followed.batches == {0: [0, 1, 2]}
    append(cluster, partition, [b"y"] * 3)
    followed.run(frame)
    assert followed.batches == {0: [0, 1, 2], 1: [3, 4, 5]}
    followed.edit('"clusterKey": "[^"]*"', f'"clusterKey": "{UUID(int=7)}"')
    with pytest.raises(StreamingQueryException, match=f"the cluster with the key {UUID(int=7)}"):
        followed.run(frame)


def test_stream_ending_positions_are_refused(
    spark: Any, cluster: LocalCluster, followed: Followed
) -> None:
    with pytest.raises(StreamingQueryException, match=r"endingPositions is for spark\.read"):
        followed.run(follow(spark, cluster, 1, endingPositions='{"1": 3}'))
