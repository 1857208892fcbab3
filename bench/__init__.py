"""Measure throughput, latency and memory of a local cluster: `python -m bench --help`.

* `cluster`: a local cluster under load; `load`: the load generator; `cpu_times`: CPU times
* `__main__`: rates and latencies; `streaming`: reads and pauses; `engines`: storage engines
* `followers`, `following`, `reader_process`: deliveries to many followers
* `cold_reads`: appends beside reads of old transactions; `soak`: memory
* `yardstick`: runs a *yardstick*, which is another program that does comparable work
* `compare`, `peers`, `spark`: two commits, other systems, Spark

Nothing here is part of the product.
"""
