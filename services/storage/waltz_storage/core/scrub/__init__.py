"""Pure. The scrubber: it searches the logs for damaged records, a little at a time.

* `token_bucket`: when the next bytes may be read
* `findings`: the damaged records that are known
* `scrubber`: what to check next, and what was found
"""
