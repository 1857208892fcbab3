"""Follow a Kafka topic, to compare it with `bench.spark.following`. Starts a JVM.

The program needs a running Kafka, and PySpark in the same version as its Kafka connector:

    python bench/spark/kafka_following.py --jars A.jar,B.jar --bootstrap HOST:PORT --topic T \
        --producer 'COMMAND that produces at a steady rate'

The producer runs twice. Only the second run is measured; the first one warms up Kafka and Spark.
The time of a record is the time of its producer, which Kafka stores in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import tempfile
import time
from typing import Any

from pyspark.sql import SparkSession

_WARM_UP = 1 / 3
"""The share of the time at the beginning of the measured run whose latencies are omitted."""


def main() -> None:
    """Follow the topic until the producer has ended; print the latencies as one line of JSON."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="bench-kafka-") as scratch:
        spark = _session(arguments.jars, scratch)
        # The end of each micro-batch, and the times of its records.
        batches: list[tuple[float, list[float]]] = []

        def record_times(batch: Any, _batch_id: int) -> None:
            column = batch.selectExpr("CAST(timestamp AS DOUBLE) AS at").toArrow().column("at")
            batches.append((time.time(), column.to_pylist()))

        reader = spark.readStream.format("kafka").option("subscribe", arguments.topic)
        frame = reader.option("kafka.bootstrap.servers", arguments.bootstrap).load()
        writer = frame.writeStream.foreachBatch(record_times)
        query = writer.option("checkpointLocation", f"{scratch}/checkpoint").start()
        for _ in range(2):  # Only the second run counts.
            began = time.time()
            subprocess.run(shlex.split(arguments.producer), stdout=subprocess.DEVNULL, check=True)
            query.processAllAvailable()
        warm_since = began + (time.time() - began) * _WARM_UP
        query.stop()
        spark.stop()
    latencies = [end - at for end, times in batches for at in times if at > warm_since]
    percentiles = statistics.quantiles(latencies, n=100)  # The first is the 1st percentile.
    p50_ms, p99_ms = percentiles[49] * 1000, percentiles[98] * 1000
    print(json.dumps({"p50_ms": p50_ms, "p99_ms": p99_ms, "records": len(latencies)}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="follow a Kafka topic")
    for name in ("jars", "bootstrap", "topic", "producer"):
        parser.add_argument(f"--{name}", required=True)
    return parser.parse_args()


def _session(jars: str, scratch: str) -> SparkSession:
    settings = {
        "spark.jars": jars,
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": scratch,
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("bench-kafka")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main()
