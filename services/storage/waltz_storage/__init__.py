"""The storage node: it stores the records of partitions, and has no locks and no quorums.

* `core`: the logic: log, control file, partitions, engine; uses files only through a `Disk`
* `inspect`: reads the files of a stopped storage, and never changes them
* `shell`: the process: ports, threads, the disk of the operating system, settings, metrics
* `main`: the command ``waltz-storage``

A request arrives in `shell.connections`, waits in a lane of `core.engine`, is checked by
`core.partitions.fencing` and executed by `core.partitions.partition`. An append is written by
`core.log.partition_log`, flushed by `shell.parallel_flushes` or `shell.wal_engine`, and then
answered.
"""
