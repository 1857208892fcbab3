"""Pure. The order in which requests are executed.

* `engine`: a lane per partition, and the work that the shell must do next
* `rounds`: appends of several partitions that become durable together
"""
