"""Pure. The scrubber searches the logs for damaged records; the storage then repairs them itself.

After each pass of the scrubber through all logs, the storage compares some of its replicas with
those of other storages. `shell.scrubbing`, `shell.self_repair` and `shell.peer_comparison` act on
the decisions of this package.

* `findings`: the damaged records that are known
* `scrubber`: what to check next, and what was found
* `repair_plan`: which damaged records to take from which peer
* `comparison_plan`: which partitions to compare, and how far
* `differences`: the differences between replicas that are known
* `listing`: lists of texts for a log line
"""
