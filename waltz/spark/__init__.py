"""Spark reads, follows and writes the log: the format ``waltz``. Needs ``waltz-log[spark]``.

::

    import waltz.spark

    spark = waltz.spark.session("delays")
    log = spark.read.format("waltz").option("cluster", "waltz-local/cluster.json").load()
    log.groupBy("partition").count().show()

Columns and options, and what is promised to whom, are in docs/spark.md.

What decides is pure:

* `option_values`, `options`, `write_options`: what options mean; `schema`: the log's columns
* `filters`, `planning`, `admission`: what is read, by which task, in which micro-batch
* `decoding`, `checksums`: records become Arrow, checked; `payload`, `parsing`: data becomes
  columns
* `rows`, `ledger`, `missing`: what is appended, who has appended what, and what is left

What acts: `reading` and `replicas` (records), `appending` and `ledger_store` (appends),
`batch`, `stream` and `sink` (what Spark calls), `source` (the format), `where`, `session`.
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
