"""Spark reads, follows and writes the log: the format ``waltz``. Needs ``waltz-log[spark]``.

::

    import waltz.spark

    spark = waltz.spark.session("delays")
    log = spark.read.format("waltz").option("cluster", "waltz-local/cluster.json").load()
    log.groupBy("partition").count().show()

docs/spark.md lists the columns, the options and the guarantees.

`core` decides and is pure:

* `option_values`, `options`, `write_options`: the options; `schema`: the log's columns
* `filters`, `slices`, `offsets`: the ranges to read, the tasks, and the micro-batches
* `decoding`, `checksums`: from verified records to Arrow; `payload`, `payload_parsers`: from data
  to columns
* `rows`, `ledger`, `missing_rows`: the rows to append, the attempts at them, and the missing rows

The other modules act:

* `source`: the format; `batch_reader`, `stream_reader`, `sink`: the classes that Spark calls
* `log_reader`: reads records; `writer`, `ledger_store`: append rows
* `cluster_location`, `session`, `requirements`: the cluster, the Spark session, the packages
"""

from waltz.spark.requirements import check_packages

check_packages()

from waltz.spark.core.option_values import OptionError  # noqa: E402 - nothing works without them
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
