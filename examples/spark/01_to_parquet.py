"""Write the log to Parquet files, and query these files with SQL.

    python examples/spark/01_to_parquet.py [waltz-local/cluster.json [spark-out]]

Run 00_flights.py first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import waltz.spark

COLUMNS = """
    partition INT, transaction_id BIGINT, id BIGINT, tailnum STRING, carrier STRING, origin STRING,
    dest STRING, time_hour STRING, dep_delay DOUBLE
"""


def main(cluster: str = "waltz-local/cluster.json", out: str = "spark-out") -> None:
    """Write one directory of files for each airport, and print the mean delay of each."""
    spark = waltz.spark.session("to Parquet")
    reader = spark.read.format("waltz").schema(COLUMNS).option("cluster", cluster)
    log = reader.option("partitions", "0-1").option("decode", "json").load()
    files = str(Path(out) / "flights")
    log.write.mode("overwrite").partitionBy("origin").parquet(files)

    spark.read.parquet(files).createOrReplaceTempView("flights")
    spark.sql(
        """
        SELECT origin, count(*) AS flights, round(avg(dep_delay), 1) AS delay_minutes
        FROM flights GROUP BY origin ORDER BY origin
        """
    ).show()


if __name__ == "__main__":
    main(*sys.argv[1:])
