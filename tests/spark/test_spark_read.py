"""The data source inside Spark, reading a cluster of real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

import waltz
from tests.spark.conftest import COUNTS, KNOWN, KnownLog, append
from waltz.local import LocalCluster
from waltz.net import TlsConfig
from waltz.spark.core.slices import Slice
from waltz.spark.log_reader import ClusterLocation, LogEndsBefore, SparkLogReader


def load(spark: Any, log: KnownLog, **options: object) -> Any:
    reader = spark.read.format("waltz").option("cluster", str(log.file))
    reader = reader.option("partitions", KNOWN)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def ids(frame: Any) -> list[tuple[int, int]]:
    return sorted((row[0], row[1]) for row in frame.select("partition", "transaction_id").collect())


def test_read_returns_all_columns_of_all_transactions(spark: Any, known_log: KnownLog) -> None:
    rows = load(spark, known_log).collect()
    assert len(rows) == sum(COUNTS.values())
    for row in rows:
        expected = known_log.transactions[row.partition, row.transaction_id]
        req_id = waltz.ReqId(row.client_id, row.generation, row.partition, row.seq)
        assert req_id == expected.req_id
        assert row.header == expected.header
        assert row.data == expected.data


def test_read_with_options_zookeeper_and_root_returns_all_rows(
    spark: Any, known_log: KnownLog
) -> None:
    cluster = known_log.cluster
    frame = (
        spark.read.format("waltz")
        .option("zookeeper", cluster.zookeeper)
        .option("root", cluster.root)
        .option("partitions", KNOWN)
        .option("tls.enabled", "false")
        .load()
    )
    assert frame.count() == sum(COUNTS.values())


def test_read_with_rows_per_task_splits_a_partition(spark: Any, known_log: KnownLog) -> None:
    frame = load(spark, known_log, partitions="0", rowsPerTask=3500)
    assert frame.rdd.getNumPartitions() == 3
    assert ids(frame) == [(0, i) for i in range(COUNTS[0])]


def test_read_with_bytes_per_task_splits_a_partition(spark: Any, known_log: KnownLog) -> None:
    size = sum(len(t.data) + 36 for (p, _), t in known_log.transactions.items() if p == 0)
    frame = load(spark, known_log, partitions="0", bytesPerTask=size // 4)
    assert frame.rdd.getNumPartitions() in range(4, 7)
    assert ids(frame) == [(0, i) for i in range(COUNTS[0])]


def test_read_returns_rows_between_starting_and_ending_positions(
    spark: Any, known_log: KnownLog
) -> None:
    frame = load(
        spark,
        known_log,
        startingPositions=json.dumps({"0": 8990, "1": "latest"}),
        endingPositions=json.dumps({"0": 8995}),
    )
    assert ids(frame) == [(0, i) for i in range(8990, 8995)]


def test_read_of_empty_log_has_no_rows(spark: Any, known_log: KnownLog) -> None:
    assert load(spark, known_log, partitions="2").collect() == []
    assert load(spark, known_log, startingPositions="latest").count() == 0


def test_read_returns_the_only_record(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    partition = next(partitions)
    append(cluster, partition, [b"alone"])
    reader = spark.read.format("waltz").option("cluster", str(cluster.layout.description))
    frame = reader.option("partitions", partition).load()
    assert [(row.transaction_id, row.data) for row in frame.collect()] == [(0, b"alone")]


def test_read_with_limit_returns_only_that_many_rows(spark: Any, known_log: KnownLog) -> None:
    assert len(load(spark, known_log, partitions="0").limit(3).collect()) == 3


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("partition = 1 AND transaction_id = 7", [(1, 7)]),
        ("transaction_id >= 8998", [(0, 8998), (0, 8999)]),
        ("transaction_id IN (2, 29, 77777) AND partition > 0", [(1, 2), (1, 29)]),
        ("header < -8", [(0, 0), (0, 1), (1, 0), (1, 1)]),
        ("header IN (5, 6) AND partition = 1", [(1, 15), (1, 16)]),
        ("transaction_id > 9 AND transaction_id < 3", []),
        ("seq IS NOT NULL AND header = -10 AND partition <=> 1", [(1, 0)]),
    ],
)
@pytest.mark.parametrize("pushed", [True, False])
def test_read_filters_select_the_same_rows_with_and_without_pushdown(
    spark: Any, known_log: KnownLog, condition: str, expected: list[Any], pushed: bool
) -> None:
    """The result is the same with and without push-down."""
    spark.conf.set(waltz.spark.PUSHDOWN, str(pushed).lower())
    waltz.spark.register(spark)
    try:
        assert ids(load(spark, known_log).where(condition)) == expected
    finally:
        spark.conf.set(waltz.spark.PUSHDOWN, "true")
        waltz.spark.register(spark)


def test_read_filters_reduce_tasks(spark: Any, known_log: KnownLog) -> None:
    frame = load(spark, known_log, rowsPerTask=1000)
    assert frame.rdd.getNumPartitions() == 10
    assert frame.where("partition = 0 AND transaction_id < 1500").rdd.getNumPartitions() == 2


def test_read_invalid_options_fail_on_load(spark: Any, known_log: KnownLog) -> None:
    with pytest.raises(AnalysisException, match="did you mean rowsPerTask"):
        load(spark, known_log, rowPerTask=1)


def test_read_other_schema_is_refused(spark: Any, known_log: KnownLog) -> None:
    reader = spark.read.format("waltz").option("cluster", str(known_log.file))
    with pytest.raises(AnalysisException, match=r"leave\s+out schema"):
        reader.schema("data STRING").load().collect()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"partitions": "0-200"}, "the cluster has only partitions 0 to 199"),
        ({"startingPositions": '{"1": 32}'}, "that log ends at 29"),
        ({"cluster": "/nowhere/cluster.json"}, "the option cluster names /nowhere/cluster.json"),
    ],
)
def test_read_missing_partition_fails_on_plan(
    spark: Any, known_log: KnownLog, options: dict[str, str], text: str
) -> None:
    with pytest.raises(AnalysisException, match=text):
        load(spark, known_log, **options).collect()


def test_read_invalid_cluster_file_is_refused(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text("[]")
    frame = spark.read.format("waltz").option("cluster", str(file)).load()
    with pytest.raises(AnalysisException, match=r"not the cluster\.json of a local cluster"):
        frame.collect()


def test_read_unreachable_cluster_is_reported(spark: Any) -> None:
    frame = spark.read.format("waltz").option("zookeeper", "127.0.0.1:1")
    with pytest.raises(AnalysisException, match=r"127\.0\.0\.1:1"):
        frame.option("timeoutSeconds", 1).load().collect()


def where(log: KnownLog, seconds: float = 30) -> ClusterLocation:
    cluster = log.cluster
    return ClusterLocation(cluster.zookeeper, cluster.root, TlsConfig(enabled=False), seconds)


def test_read_reports_log_shorter_than_planned(known_log: KnownLog) -> None:
    reader = SparkLogReader(where(known_log))
    try:
        with pytest.raises(LogEndsBefore, match=r"partition 1 has no transaction 30 any more"):
            list(reader.read(Slice(1, COUNTS[1], COUNTS[1])))
    finally:
        reader.close()
