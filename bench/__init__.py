"""Measure throughput, latency and memory of a local cluster: `python -m bench --help`.

* `cluster` runs a local cluster, `load` puts load on it, `cpu_times` reads the CPU time it uses.
* `__main__` is about appends, `streaming` about reads and the pause after a fault, `engines` about
  the storage engines, `soak` about memory.
* `followers` and `following` measure deliveries to many followers.
* `cold_reads` is about appends beside reads of old transactions, `moves` about appends beside moves
  of partitions.
* `reader_process` runs the followers, and the reads of `cold_reads`, in processes of their own.
* `yardstick` runs a *yardstick*, which is another program that does comparable work.
* `compare` compares two commits, `peers` compares Waltz with other systems, `spark` is about Spark.

An append is *open* from its sending until its answer. The *window* of a client is the number of
appends that it keeps open. A *shape* of load is a number of clients and their window. Nothing here
is part of the product.
"""
