"""Reading while the cluster changes, and from large, wrong and missing clusters."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from tests.spark.conftest import NUM_PARTITIONS, append, save, wait_until
from waltz.local import LocalCluster, Shape

MB = 1 << 20


def load(spark: Any, cluster: LocalCluster, **options: object) -> Any:
    reader = spark.read.format("waltz").option("cluster", str(cluster.layout.description))
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


@pytest.mark.parametrize("source", ["servers", "replicas"])
@pytest.mark.slow
def test_read_of_a_record_of_50_mb_returns_its_data(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], source: str
) -> None:
    partition = next(partitions)
    append(cluster, partition, [b"small"])
    append(cluster, partition, [bytes(50 * MB)])
    append(cluster, partition, [b"small"])
    frame = load(spark, cluster, partitions=partition, readFrom=source)
    sizes = frame.selectExpr("transaction_id", "length(data)").collect()
    assert [tuple(row) for row in sizes] == [(0, 5), (1, 50 * MB), (2, 5)]


def test_read_without_partitions_option_reads_all_partitions(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    partition = next(partitions)
    append(cluster, partition, [b"x"] * 7)
    counts = load(spark, cluster).groupBy("partition").count().collect()
    assert {row[0]: row[1] for row in counts}[partition] == 7
    assert {row[0] for row in counts} <= set(range(NUM_PARTITIONS))


def test_cluster_read_ends_at_the_planned_mark(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    """A frame is planned at its first action: every later one reads the same."""
    partition = next(partitions)
    append(cluster, partition, [b"x"] * 5)
    frame = load(spark, cluster, partitions=partition)
    frame.explain()
    append(cluster, partition, [b"y"] * 5)
    assert {row.data for row in frame.collect()} <= {b"x", b"y"}
    assert load(spark, cluster, partitions=partition).count() == 10


@pytest.mark.slow
def test_read_continues_when_a_server_is_killed(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], tmp_path: Path
) -> None:
    """Kill both servers, one after the other, so that the one that is read from is killed."""
    partition = next(partitions)
    append(cluster, partition, [bytes(1000)] * 30_000)
    frame = load(spark, cluster, partitions=partition, rowsPerTask=10_000)
    begun = tmp_path / "begun"

    def slowly(batches: Any) -> Any:
        for batch in batches:
            begun.touch()
            yield batch

    found: list[int] = []

    def read() -> None:
        for _ in range(2):
            rows = frame.select("transaction_id").mapInArrow(slowly, "transaction_id BIGINT")
            found[:] = sorted(row[0] for row in rows.collect())
            assert found == list(range(30_000))

    reading = threading.Thread(target=read)
    reading.start()
    try:
        for server in ("server/0", "server/1"):
            wait_until(begun.exists, 60)
            cluster.kill(server)
            begun.unlink(missing_ok=True)
            asyncio.run(cluster.start_one(server))
    finally:
        reading.join(100)
    assert found == list(range(30_000))


@pytest.mark.slow
def test_replicas_are_read_across_failures_and_sessions(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    partition = next(partitions)
    append(cluster, partition, [str(n).encode() for n in range(2500)])
    frame = load(spark, cluster, partitions=partition, readFrom="replicas", rowsPerTask=300)
    expected = [str(n).encode() for n in range(2500)]
    for victim in ("storage/2", "server/0", "server/1"):
        cluster.kill(victim)
        assert sorted((row.data for row in frame.collect()), key=int) == expected
        asyncio.run(cluster.start_one(victim))


def test_missing_cluster_is_reported(spark: Any, cluster: LocalCluster) -> None:
    frame = spark.read.format("waltz").option("zookeeper", cluster.zookeeper)
    with pytest.raises(AnalysisException, match="there is no Waltz cluster at /other"):
        frame.option("root", "/other").load().collect()


@pytest.mark.slow
def test_missing_servers_time_out(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    """Reading and writing end after their timeout, with an error that names the missing answer."""
    partition = next(partitions)
    append(cluster, partition, [b"x"])
    rows = spark.sql(f"SELECT {partition} AS partition, 'y' AS data")
    servers = ("server/0", "server/1")
    for server in servers:
        cluster.kill(server)
    try:
        with pytest.raises(
            AnalysisException, match=r"not every partition of .* returned its high-water mark"
        ):
            load(spark, cluster, partitions=partition, timeoutSeconds=2).collect()
        with pytest.raises(PySparkException, match=f"high-water mark of partition {partition}"):
            save(rows, cluster, timeoutSeconds=2)
    finally:
        for server in servers:
            asyncio.run(cluster.start_one(server))
    save(rows, cluster)
    assert load(spark, cluster, partitions=partition).count() == 2


@pytest.fixture
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster whose connections are encrypted."""
    directory = tmp_path_factory.mktemp("tls-cluster")
    running = LocalCluster(directory, Shape(partitions=1, storages=1, servers=1, tls=True))
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())


@pytest.mark.slow
def test_read_over_tls_works_and_plaintext_is_refused(spark: Any, secured: LocalCluster) -> None:
    save(spark.sql("SELECT 'x' AS data"), secured)
    for source in ("servers", "replicas"):
        assert load(spark, secured, readFrom=source).count() == 1
    plain = {"tls.enabled": "false", "timeoutSeconds": 2}
    with pytest.raises(AnalysisException, match="uses TLS, and this client does not"):
        load(spark, secured, **plain).count()
