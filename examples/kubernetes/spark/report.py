"""Report the transactions and bytes of every partition of a log, and which pods read it.

    python report.py ZOOKEEPER [SERVER_NAME]

ZOOKEEPER is the address of the cluster's ZooKeeper. If the cluster uses TLS, SERVER_NAME is the
name in its certificates, and /tls has the client's certificate. The last line of the output is the
report as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as sf

import waltz.spark


def with_pod(batches: Iterator[Any]) -> Iterator[Any]:
    """Add a column with the name of the pod that has read the rows."""
    for batch in batches:
        pod = pa.array([socket.gethostname()] * batch.num_rows, pa.string())
        yield pa.RecordBatch.from_arrays([*batch.columns, pod], ["partition", "size", "pod"])


def main(zookeeper: str, server_name: str | None = None) -> None:
    """Read the whole log and print the report."""
    spark = waltz.spark.session("report")
    reader = spark.read.format("waltz").option("zookeeper", zookeeper)
    if server_name is None:
        reader = reader.option("tls.enabled", "false")
    else:
        reader = reader.option("tls.ca", "/tls/ca.crt").option("tls.serverName", server_name)
        reader = reader.option("tls.certificate", "/tls/tls.crt").option("tls.key", "/tls/tls.key")
    log = reader.load()
    sizes = log.selectExpr("partition", "length(data) AS size")
    rows = sizes.mapInArrow(with_pod, "partition INT, size INT, pod STRING").cache()
    totals = rows.groupBy("partition").agg(
        sf.count("*").alias("transactions"), sf.sum("size").alias("bytes")
    )
    totals.orderBy("partition").show()
    report = {
        "transactions": {row["partition"]: row["transactions"] for row in totals.collect()},
        "pods": [row["pod"] for row in rows.select("pod").distinct().orderBy("pod").collect()],
    }
    spark.stop()
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
