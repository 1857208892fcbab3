"""Pure. The partitions of a storage, each with a log and an entry in the control file.

* `fencing`: which requests a partition refuses, and which marks a session may set
* `known_log`: what is known about a log before its files are opened
* `partition`: one open partition, and what each request does to it
* `storage_directory`: all partitions of a storage: open, assign, unassign, switch
* `range_checksum`: the checksum of a range of records, made in slices
* `open_sessions`: which store sessions are used by connected servers
"""
