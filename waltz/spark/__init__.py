"""Spark reads the log: ``spark.read.format("waltz")``. Needs the extra ``waltz[spark]``.

::

    import waltz.spark

    spark = waltz.spark.session("delays")
    log = (
        spark.read.format("waltz")
        .option("zookeeper", "127.0.0.1:2181")
        .option("root", "/waltz")
        .load()
    )
    log.groupBy("partition").count().show()

Columns: partition, transaction_id, client_id, generation, seq, header, data; the three in the
middle are the request id of the append. A job reads each log up to the end that it had when the
query was planned. Options, of which only the cluster must be named:

* ``zookeeper`` (host:port, comma-separated) and ``root`` (``/waltz``), or ``cluster``: the path of
  a local cluster's ``cluster.json``
* ``partitions``: such as ``0-6,7``
* ``startingPositions``, ``endingPositions``: ``earliest``, ``latest``, or by partition, as JSON:
  ``{"0": 17, "1": "latest"}``; a number is the first transaction id to read, or the first one not
  to read; a partition that is left out is read from its beginning, or to its end
* ``rowsPerTask`` (100000): longer ranges are read by several tasks
* ``timeoutSeconds`` (60): how long servers may leave a task without an answer
* ``tls.enabled`` (true, or what ``cluster.json`` says), ``tls.certificate``, ``tls.key``,
  ``tls.ca``, ``tls.serverName``: PEM files that must be on every worker

`options`, `planning` and `batches` decide (pure), `reading` and `source` act.
"""

from waltz.spark.option_values import OptionError
from waltz.spark.session import PUSHDOWN, register, session
from waltz.spark.source import WaltzDataSource

__all__ = ["PUSHDOWN", "OptionError", "WaltzDataSource", "register", "session"]
