"""Pure. The scrubber searches the logs for damaged records; the storage then repairs them itself.

* `findings`: the damaged records that are known
* `scrubber`: what to check next, and what was found
* `repair_plan`: which damaged records to take from which peer
"""
