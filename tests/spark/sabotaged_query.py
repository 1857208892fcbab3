"""Run a query from a log to a log, with a shuffle and speculation; `faults` may kill it."""

from __future__ import annotations

import os
import sys

import waltz.spark
from tests.spark.faults import DIRECTORY, Faults
from tests.spark.sabotage import SabotagedSource

ROWS_PER_BATCH = 400
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    "spark.task.maxFailures": "100",
    "spark.stage.maxConsecutiveAttempts": "100",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.efficiency.enabled": "false",
}


def main(
    master: str, cluster: str, source: str, sink: str, checkpoint: str, tasks: str, *ids: str
) -> None:
    """Follow ``source`` as far as it goes now; ``ids`` are expressions for rows' own ids."""
    of_executors = {f"spark.executorEnv.{DIRECTORY}": os.environ[DIRECTORY]}
    spark = waltz.spark.session("kills", master=master, settings=SETTINGS | of_executors)
    spark.dataSource.register(SabotagedSource)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    Faults.of_this_process().driver_is(gateway.proc.pid, os.getpid())
    reader = spark.readStream.format("waltz").option("cluster", cluster)
    log = reader.option("partitions", source).option("maxRowsPerTrigger", ROWS_PER_BATCH).load()
    rows = log.selectExpr(f"{sink} AS partition", "header", "data", *ids).repartition(int(tasks))
    writer = rows.writeStream.format("sabotaged").option("cluster", cluster)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
