"""The data source inside Spark, reading a cluster of real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

import waltz
from tests.spark.conftest import COUNTS, KnownLog
from waltz.net import TlsConfig
from waltz.spark.planning import Slice
from waltz.spark.reading import LogReader, ReadTimedOut, Where


def load(spark: Any, log: KnownLog, **options: object) -> Any:
    reader = spark.read.format("waltz").option("cluster", str(log.file))
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def ids(frame: Any) -> list[tuple[int, int]]:
    return sorted((row[0], row[1]) for row in frame.select("partition", "transaction_id").collect())


def test_contents_are_those_of_the_log(spark: Any, known_log: KnownLog) -> None:
    rows = load(spark, known_log).collect()
    assert len(rows) == sum(COUNTS.values())
    for row in rows:
        expected = known_log.transactions[row.partition, row.transaction_id]
        req_id = waltz.ReqId(row.client_id, row.generation, row.partition, row.seq)
        assert req_id == expected.req_id
        assert row.header == expected.header
        assert row.data == expected.data


def test_zookeeper_and_root_name_the_cluster_too(spark: Any, known_log: KnownLog) -> None:
    cluster = known_log.cluster
    frame = (
        spark.read.format("waltz")
        .option("zookeeper", cluster.zookeeper)
        .option("root", cluster.root)
        .option("tls.enabled", "false")
        .load()
    )
    assert frame.count() == sum(COUNTS.values())


def test_several_tasks_read_one_partition(spark: Any, known_log: KnownLog) -> None:
    frame = load(spark, known_log, partitions="0", rowsPerTask=1800)
    assert frame.rdd.getNumPartitions() == 3
    assert ids(frame) == [(0, i) for i in range(COUNTS[0])]


def test_positions(spark: Any, known_log: KnownLog) -> None:
    frame = load(
        spark,
        known_log,
        startingPositions=json.dumps({"0": 4990, "1": "latest"}),
        endingPositions=json.dumps({"0": 4995}),
    )
    assert ids(frame) == [(0, i) for i in range(4990, 4995)]


def test_nothing_to_read(spark: Any, known_log: KnownLog) -> None:
    assert load(spark, known_log, partitions="2").collect() == []
    assert load(spark, known_log, startingPositions="latest").count() == 0


def test_fewer_rows_than_a_task_has(spark: Any, known_log: KnownLog) -> None:
    assert len(load(spark, known_log, partitions="0").limit(3).collect()) == 3


def test_wrong_options_fail_when_loading(spark: Any, known_log: KnownLog) -> None:
    with pytest.raises(AnalysisException, match="did you mean rowsPerTask"):
        load(spark, known_log, rowPerTask=1)


def test_another_schema_is_refused(spark: Any, known_log: KnownLog) -> None:
    reader = spark.read.format("waltz").option("cluster", str(known_log.file))
    with pytest.raises(AnalysisException, match=r"leave\s+out schema"):
        reader.schema("data STRING").load().collect()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"partitions": "0-3"}, "the cluster has only partitions 0 to 2"),
        ({"startingPositions": '{"1": 32}'}, "whose log ends at transaction 29"),
        ({"cluster": "/nowhere/cluster.json"}, "the option cluster names /nowhere/cluster.json"),
    ],
)
def test_what_the_cluster_does_not_have_fails_when_planning(
    spark: Any, known_log: KnownLog, options: dict[str, str], text: str
) -> None:
    with pytest.raises(AnalysisException, match=text):
        load(spark, known_log, **options).collect()


def test_a_file_that_is_not_of_a_cluster(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text("[]")
    frame = spark.read.format("waltz").option("cluster", str(file)).load()
    with pytest.raises(AnalysisException, match=r"not the cluster\.json of a local cluster"):
        frame.collect()


def test_an_unreachable_cluster(spark: Any) -> None:
    frame = spark.read.format("waltz").option("zookeeper", "127.0.0.1:1")
    with pytest.raises(AnalysisException, match=r"127\.0\.0\.1:1"):
        frame.option("timeoutSeconds", 1).load().collect()


def test_a_silent_log_is_an_error_and_not_a_wait(known_log: KnownLog) -> None:
    cluster = known_log.cluster
    reader = LogReader(Where(cluster.zookeeper, cluster.root, TlsConfig(enabled=False)), 0.5)
    try:
        with pytest.raises(ReadTimedOut, match=r"nothing came from partition 1 within 0\.5 s"):
            list(reader.read(Slice(1, COUNTS[1], COUNTS[1])))
    finally:
        reader.close()
