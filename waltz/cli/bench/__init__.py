"""``waltz bench``: generate load and measure a cluster.

`load` appends a fixed number of transactions and records their durations. `continuous` appends
without end; no verb uses it, but tests and benchmarks, while a cluster changes or fails.
`validation` checks the order and the locks of what was appended. The verbs are in `commands` and
`checking`; `producing` is what their appending verbs share.
"""
