"""Pure. The storage's logic: logs of records, the control file, partitions, rounds of appends.

It reads and writes files only through the `Disk` it is given, so tests and simulations supply disks
that fail, and it starts no thread: `engine.Engine` returns what the shell must do.

* `log`: the records of one partition, in segment files
* `control`: sessions, marks and switches of all partitions, in the control file
* `partitions`: what each request does to a partition, and which requests are refused
* `engine`: the order of requests, and rounds of appends that share their flushes
* `disk`, `errors`: the interface to the disk, and why requests are refused
"""
