"""Read a log with Spark: count the rows and add up the lengths of their data. Starts a JVM."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import waltz.spark


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of one pass over the log; ``size`` is the length of all data in bytes."""

    rows: int
    size: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


def start_session(scratch: Path) -> SparkSession:
    """Start a session of Spark on two cores that writes only below ``scratch``."""
    return waltz.spark.session(
        "bench",
        master="local[2]",
        settings={
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(scratch),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        },
    )


def log(spark: SparkSession, cluster_file: Path, **options: object) -> Any:
    """Return the log as a data frame; ``options`` are options of the data source."""
    reader = spark.read.format("waltz").option("cluster", str(cluster_file))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def read(spark: SparkSession, cluster_file: Path, **options: object) -> Pass:
    """Read once all records that the data source returns with ``options``."""
    began = time.perf_counter()
    frame = log(spark, cluster_file, **options)
    rows, size = frame.agg(sf.count("*"), sf.sum(sf.length("data"))).collect()[0]
    return Pass(rows, size, time.perf_counter() - began)
