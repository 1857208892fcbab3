"""Pure. The scrubber searches the logs for damaged records; the storage then repairs them itself.

After a pass, the storage compares its replicas with those of other storages.

* `findings`: the damaged records that are known
* `scrubber`: what to check next, and what was found
* `repair_plan`: which damaged records to take from which peer
* `comparison_plan`: which partitions to compare, and how far
* `differences`: the differences between replicas that are known
* `listing`: lists of texts for a log line
"""
