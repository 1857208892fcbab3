"""``waltz perf``: generate load and measure a cluster.

`load` appends a fixed number of transactions and records their durations. `continuous` appends
without end; tests and benchmarks use it to check a cluster that changes.
"""
