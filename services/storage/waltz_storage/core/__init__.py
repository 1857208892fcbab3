"""Pure. The storage's logic: logs of records, the control file, partitions, write-ahead log.

The core reads and writes files only through a `Disk` object, which its callers pass. Tests and
simulations pass disks that fail. The core starts no thread: `engine.Engine` returns the work that
the shell must do.

Some docstrings name a *planted bug*: a change of the code, in tests/mutants, that the tests find.
The planted bug shows the failure that a line of the code prevents.

Terms of this package (docs/concepts.md explains sessions and marks in context):

* *record*: a transaction in a log, with a header and checksums. Its id is the transaction id. The
  *wire form* is its layout in messages, the *disk form* its layout in files (`log.segment_format`).
* *store session*, or session: the right of one server to write the replicas of a partition. It
  begins with a *recovery*: the server reads the state of each replica, and a *vote* over these
  states decides which records are committed. Longer logs are then truncated, shorter ones filled.
* *low-water mark*: the last record that was committed when the session began. The *local low-water
  mark* is the last record that this log had then.
* *flushed mark*: the last record of a log that was flushed.
* *torn*: a write that a crash has interrupted is torn: only a part of it is on the disk.
* *damaged*: a record that was flushed, and that is invalid or unreadable now.
* *peer*: another storage that has a replica of the same partition.
* *switch*: a partition has a read switch and a write switch. While an administrator has turned off
  the read switch, the storage refuses reads of the partition's records. While the write switch is
  off, it refuses all other requests to the partition.

Modules:

* `log`: the records of one partition, in segment files
* `control`: sessions, marks and switches of all partitions, in the control file
* `wal`: the write-ahead log for the changes of all segment files, used if the setting
  ``storage.engine`` is ``wal``
* `partitions`: what each request does to a partition, and which requests are refused
* `scrub`: searching all logs for damaged records, a little at a time
* `engine`: the order of requests, and rounds of appends that share their flushes
* `disk`, `errors`: the interface to the disk, and why requests are refused
* `admin_changes`: the text of an administrative change, for the log of the process
"""
