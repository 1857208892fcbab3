"""Keep a table of each aircraft's latest flight up to date by a stream.

    python examples/spark/02_upsert.py [waltz-local/cluster.json [spark-out]]

Every micro-batch writes a new version of the table to a new directory, and then makes this version
the current one, so a reader never sees a part of a version. If the program is killed, the next run
continues after the last complete micro-batch. A micro-batch that runs again writes the same version
again. Run 00_flights.py first.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as sf

import waltz.spark

COLUMNS = "partition INT, transaction_id BIGINT, tailnum STRING, carrier STRING, dest STRING"


class Table:
    """A table that consists of versions, one of which is current.

    Each version is a directory, whose name is the version's number. The file ``CURRENT`` has the
    number of the current version.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._current = directory / "CURRENT"
        directory.mkdir(parents=True, exist_ok=True)

    def read(self, spark: Any, before: int | None = None) -> Any | None:
        """Return the current version.

        With ``before``, return the newest version with a smaller number; None if there is none.
        """
        if before is None:
            return spark.read.parquet(str(self._directory / self._current.read_text()))
        versions = [int(path.name) for path in self._directory.iterdir() if path.name.isdigit()]
        older = [version for version in versions if version < before]
        return spark.read.parquet(str(self._directory / str(max(older)))) if older else None

    def upsert(self, batch: Any, version: int) -> None:
        """Write a version, and make it the current one.

        It has the newest row of each aircraft, from the previous version and from ``batch``. Spark
        calls this with the number of the micro-batch as ``version``.
        """
        # If the micro-batch runs again, the current version may be the one that is written here. It
        # cannot be read while it is overwritten, so the version before it is read.
        previous = self.read(batch.sparkSession, before=version)
        rows = batch if previous is None else previous.unionByName(batch)
        newest = Window.partitionBy("tailnum").orderBy(sf.desc("transaction_id"))
        rows = rows.withColumn("place", sf.row_number().over(newest))
        rows = rows.where("place = 1").drop("place")
        rows.write.mode("overwrite").parquet(str(self._directory / str(version)))
        new_current = self._directory / "CURRENT.new"
        new_current.write_text(str(version))
        new_current.replace(self._current)


def main(cluster: str = "waltz-local/cluster.json", out: str = "spark-out") -> None:
    """Apply the log up to its current end."""
    # The log is small, so two tasks are enough after a shuffle.
    spark = waltz.spark.session("upsert", settings={"spark.sql.shuffle.partitions": "2"})
    table = Table(Path(out) / "latest")
    reader = spark.readStream.format("waltz").schema(COLUMNS).option("cluster", cluster)
    reader = reader.option("partitions", "0-1").option("decode", "json")
    stream = reader.option("maxRowsPerTrigger", 10_000).load().where("tailnum IS NOT NULL")
    writer = stream.writeStream.foreachBatch(table.upsert)
    writer = writer.option("checkpointLocation", str(Path(out) / "latest-checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    current = table.read(spark)
    assert current is not None
    print(f"{current.count():,} aircraft, among them:")
    current.select("tailnum", "carrier", "dest").orderBy("tailnum").show(5)


if __name__ == "__main__":
    main(*sys.argv[1:])
