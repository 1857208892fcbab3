"""Test data of a real log that is decoded to columns, in SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tests.spark.conftest import append
from waltz.local import LocalCluster

AVRO = {"type": "record", "name": "Number", "fields": [{"name": "n", "type": "long"}]}


def load(spark: Any, cluster: LocalCluster, partition: int, **options: object) -> Any:
    reader = spark.read.format("waltz").option("cluster", str(cluster.layout.description))
    reader = reader.option("partitions", partition)
    if options["decode"] != "utf8":
        reader = reader.schema("transaction_id BIGINT, n BIGINT")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


@pytest.mark.slow
def test_decoded_json_can_be_queried(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    partition = next(partitions)
    append(cluster, partition, [json.dumps({"n": n}).encode() for n in range(50)] + [b"{"])
    frame = load(spark, cluster, partition, decode="json")
    frame.createOrReplaceTempView("numbers")
    query = "SELECT sum(n), count(n), count(*) FROM numbers WHERE transaction_id > 9"
    assert tuple(spark.sql(query).first()) == (sum(range(10, 50)), 40, 41)


def encoded(kind: str, number: int) -> bytes:
    made = BytesIO()
    if kind == "json":
        made.write(json.dumps({"n": number}).encode())
    elif kind == "avro":
        fastavro.schemaless_writer(made, AVRO, {"n": number})
    else:
        with pa.ipc.new_stream(made, pa.schema([("n", pa.int64())])) as stream:
            stream.write_batch(pa.record_batch([pa.array([number])], names=["n"]))
    return made.getvalue()


@pytest.mark.parametrize(
    "kind", ["json", *(pytest.param(k, marks=pytest.mark.slow) for k in ("avro", "arrow"))]
)
def test_decoded_rows_of_each_format_follow_the_mode_if_malformed(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], kind: str
) -> None:
    partition = next(partitions)
    append(cluster, partition, [encoded(kind, 7), b"\xff", encoded(kind, 8)])
    options = {"decode": kind} | ({"avroSchema": json.dumps(AVRO)} if kind == "avro" else {})

    def rows(mode: str) -> list[tuple[int, int | None]]:
        frame = load(spark, cluster, partition, mode=mode, **options)
        return sorted(tuple(row) for row in frame.collect())

    assert rows("permissive") == [(0, 7), (1, None), (2, 8)]
    assert rows("drop") == [(0, 7), (2, 8)]
    with pytest.raises(
        PySparkException, match=f"transaction 1 of partition {partition}: data cannot be decoded"
    ):
        rows("fail")


def test_decoded_column_is_text_and_null_for_invalid_utf8(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    partition = next(partitions)
    append(cluster, partition, ["é".encode(), b"\xff"])
    frame = load(spark, cluster, partition, decode="utf8")
    assert [row.data for row in frame.orderBy("transaction_id").collect()] == ["é", None]
