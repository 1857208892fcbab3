"""Pure. The scrubber: it searches the logs for damaged records, a little at a time.

* `findings`: the damaged records that are known
* `scrubber`: what to check next, and what was found
"""
