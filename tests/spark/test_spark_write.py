"""The sink: written rows, refused rows, and each row exactly once after any fault."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from pyspark.errors import AnalysisException, PySparkException

from tests.spark.conftest import append, save, written
from waltz.local import LocalCluster


def test_write_appends_a_transaction_with_the_columns_of_each_row(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    partition = next(partitions)
    frame = spark.range(100).selectExpr(
        f"{partition} AS partition",
        "to_json(struct(id)) AS data",
        "CAST(id AS INT) AS header",
        "array(named_struct('name', 'row', 'id', id)) AS locks",
    )
    save(frame.coalesce(1), cluster)
    found = written(cluster, partition)
    assert [t.header for t in found] == list(range(100))
    assert [json.loads(t.data) for t in found] == [{"id": i} for i in range(100)]


def test_write_without_id_leaves_no_ledger(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    partition = next(partitions)
    rows = spark.range(3).selectExpr(f"{partition} AS partition", "CAST(id AS STRING) AS data")
    save(rows, cluster)
    save(rows, cluster, writeId=f"named {partition}")

    async def ledgers() -> tuple[str, ...]:
        async with cluster.metadata() as metadata:
            return (await metadata.store.children(f"{cluster.root}/spark")).names

    names = asyncio.run(ledgers())
    assert f"named%20{partition}" in names
    assert not [name for name in names if name.startswith("batch-")]


def test_write_rows_with_equal_keys_go_to_one_partition(spark: Any, cluster: LocalCluster) -> None:
    """Text and its bytes are the same key."""
    partition = crc32(b"a key") % 200
    save(spark.sql("SELECT 'a key' AS key, 'one' AS data"), cluster)
    save(spark.sql("SELECT CAST('a key' AS BINARY) AS key, 'two' AS data"), cluster)
    assert [t.data for t in written(cluster, partition)][-2:] == [b"one", b"two"]


def test_write_repeated_with_id_appends_nothing(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    """Rows that are equal are counted, not thrown away."""
    partition = next(partitions)
    frame = spark.range(0, 3000, 1, 3).selectExpr(
        f"{partition} AS partition", "CAST(id % 700 AS STRING) AS data"
    )
    write_id = f"repeated {partition}/"
    save(frame.where("data < '5'"), cluster, writeId=write_id)
    assert 0 < len(written(cluster, partition)) < 3000
    for _ in range(2):
        save(frame, cluster, writeId=write_id)
    found = Counter(int(t.data) for t in written(cluster, partition))
    assert found == Counter(i % 700 for i in range(3000))


def test_write_row_ids_are_independent_of_tasks(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    """The second time, other tasks have the rows."""
    partition = next(partitions)
    frame = spark.range(500).selectExpr(
        f"{partition} AS partition", "id", "CAST(id AS STRING) AS data"
    )
    write_id = f"ids {partition}"
    save(frame.where("id % 3 = 0").repartition(4), cluster, writeId=write_id)
    save(frame.repartition(2), cluster, writeId=write_id)
    save(frame.repartition(3), cluster, writeId=write_id)
    found = [int(t.data) for t in written(cluster, partition)]
    assert sorted(found) == list(range(500))


@pytest.mark.slow
def test_write_of_a_stream_from_log_to_log_appends_each_row_once(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], tmp_path: Path
) -> None:
    source, sink = next(partitions), next(partitions)
    file = str(cluster.layout.description)
    frame = (
        spark.readStream.format("waltz")
        .option("cluster", file)
        .option("partitions", source)
        .option("maxRowsPerTrigger", 700)
        .load()
        .selectExpr(f"{sink} AS partition", "header", "data")
    )
    for count in (1500, 10):
        append(cluster, source, [str(i).encode() for i in range(count)])
        query = (
            frame.writeStream.format("waltz")
            .option("cluster", file)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90)
    found = written(cluster, sink)
    expected = [*range(1500), *range(10)]
    assert [int(t.data) for t in found] == expected
    assert [t.header for t in found] == expected


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["id"], "needs a column data"),
        (["id AS data"], "the column data is BIGINT"),
        (["'x' AS data", "1 AS extra"], "has no column extra"),
        (["'x' AS data", "1 AS partition", "'k' AS key"], "drop one of the two"),
        (["'x' AS data", "array(1L) AS locks"], "ARRAY<STRUCT<name: STRING, id: BIGINT>>"),
    ],
)
def test_write_of_dataframe_with_invalid_columns_is_refused(
    spark: Any, cluster: LocalCluster, columns: list[str], text: str
) -> None:
    with pytest.raises(AnalysisException, match=text):
        save(spark.range(1).selectExpr(*columns), cluster)


def test_write_overwrite_is_refused(spark: Any, cluster: LocalCluster) -> None:
    writer = spark.sql("SELECT 'x' AS data").write.format("waltz").mode("overwrite")
    with pytest.raises(AnalysisException, match="cannot be overwritten"):
        writer.option("cluster", str(cluster.layout.description)).save()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"root": "/other"}, "there is no Waltz cluster at /other"),
        ({"zookeeper": "127.0.0.1:1", "timeoutSeconds": 1}, r"127\.0\.0\.1:1"),
    ],
)
def test_write_missing_cluster_is_reported(
    spark: Any, cluster: LocalCluster, options: dict[str, Any], text: str
) -> None:
    writer = spark.sql("SELECT 'x' AS data").write.format("waltz").mode("append")
    for name, value in ({"zookeeper": cluster.zookeeper} | options).items():
        writer = writer.option(name, value)
    with pytest.raises(AnalysisException, match=text):
        writer.save()


def test_write_invalid_rows_are_refused(spark: Any, cluster: LocalCluster) -> None:
    with pytest.raises(PySparkException, match="null in data"):
        save(spark.sql("SELECT CAST(NULL AS STRING) AS data"), cluster)
    with pytest.raises(PySparkException, match="only partitions 0 to 199"):
        save(spark.sql("SELECT 'x' AS data, 200 AS partition"), cluster)


@pytest.mark.slow
def test_write_of_a_row_of_50_mb_appends_it(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    partition = next(partitions)
    frame = spark.sql(
        f"SELECT {partition} AS partition, repeat('x', {50 << 20}) AS data "
        f"UNION ALL SELECT {partition}, 'small'"
    )
    save(frame, cluster)
    assert sorted(len(t.data) for t in written(cluster, partition)) == [5, 50 << 20]
