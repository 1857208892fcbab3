"""Pure. The order in which requests are executed.

* `engine`: a lane per partition, and the work that the shell must do next
* `request_weights`: how many bytes a request or its answer needs in memory
* `rounds`: appends of several partitions that become durable together
"""
