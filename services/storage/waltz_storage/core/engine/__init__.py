"""Pure. The order in which requests are done.

* `engine`: a lane per partition, and what the shell must do next
* `rounds`: appends of several partitions that become durable together
"""
