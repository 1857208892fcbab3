"""``waltz perf``: generate load and measure a cluster.

`load` is a bounded load with measured durations, `continuous` an endless one for checks while a
cluster changes; tests and benchmarks use it, too.
"""
