"""Pure. The storage's logic: logs of records, the control file, partitions, write-ahead log.

The core reads and writes files only through a `Disk` object, which its callers pass. Tests and
simulations pass disks that fail. The core starts no thread: `engine.Engine` returns the work that
the shell must do.

Some docstrings name a *planted bug*: a change of the code, in tests/mutants, that the tests find.
The planted bug shows the failure that a line of the code prevents.

* `log`: the records of one partition, in segment files
* `control`: sessions, marks and switches of all partitions, in the control file
* `wal`: the write-ahead log for the changes of all segment files, used by the engine ``wal``
* `partitions`: what each request does to a partition, and which requests are refused
* `scrub`: searching all logs for damaged records, a little at a time
* `engine`: the order of requests, and rounds of appends that share their flushes
* `disk`, `errors`: the interface to the disk, and why requests are refused
* `admin_changes`: the text of an administrative change, for the log of the process
"""
