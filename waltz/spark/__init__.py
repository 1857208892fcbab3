"""Spark reads, follows and writes the log: the format ``waltz``. Needs ``waltz-log[spark]``.

::

    import waltz.spark

    spark = waltz.spark.session("delays")
    log = spark.read.format("waltz").option("cluster", "waltz-local/cluster.json").load()
    log.groupBy("partition").count().show()

docs/spark.md lists the columns, the options and the guarantees.

`core` decides and is pure:

* `option_values`, `options` and `write_options` parse the options; `schema` has the log's columns
* `filters`, `slices` and `offsets` decide the ranges that tasks and micro-batches read
* `payload` and `payload_parsers` decode data to columns; `waltz.client.core.arrow_records` verifies
  the records and converts them to Arrow
* `rows` converts rows to appends; `ledger` and `missing_rows` decide which rows an attempt at a
  task must append

The other modules act:

* `source` is the format; `batch_reader`, `stream_reader` and `sink` have the classes that Spark
  calls
* `log_reader` reads records; `writer` appends rows, `ledger_store` keeps ledgers in ZooKeeper
* `cluster_location` finds the cluster, `session` creates Spark sessions, `requirements` checks the
  installed packages
"""

from waltz.spark.requirements import check_packages

check_packages()

from waltz.spark.core.option_values import OptionError  # noqa: E402 - imports the packages
from waltz.spark.session import (  # noqa: E402
    PUSHDOWN,
    SparkUnsuitable,
    register,
    session,
)
from waltz.spark.source import WaltzDataSource  # noqa: E402

__all__ = [
    "PUSHDOWN",
    "OptionError",
    "SparkUnsuitable",
    "WaltzDataSource",
    "register",
    "session",
]
