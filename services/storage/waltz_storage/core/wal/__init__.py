"""Pure. The write-ahead log (WAL) of a storage: one log for the changes of all its files.

`docs/decisions/write-ahead-log.md` has the design and the invariants 1 to 6. Its terms:

* a *transaction* is a list of *operations* on files, and after a crash all or none are applied; a
  transaction of a client is called a *record* here
* a *region* is one of these files, or its number, by which operations name it; the *catalogue*
  says which file each region is
* a *replay* at the start of the storage applies the transactions in the log to the files
* a *checkpoint* flushes the files that transactions have changed, and so *passes* these
  transactions: a replay begins after the last transaction that was passed
* *direct data* are data of a large record, which are written to its file and not to the log; the
  transaction has a *Check*, an operation with their place and checksum
* a *plain* storage directory has complete segment files, and needs nothing of its log

The format:

* `checksums`: the checksum algorithms that a WAL can name
* `operations`: what a transaction does to memory: write, move, zero, and check
* `transaction_blocks`: a transaction as blocks of 4096 bytes, and back
* `ring`: transaction ids, and the space of a log that wraps
* `wal_header`: the first blocks of the file: its cluster, its checksum, and its checkpoint
* `wal_scan`: all transactions since the checkpoint, and whether the log ends torn or damaged

The files that the log changes:

* `catalogue`: which file each region of memory is
* `region_buffers`: changes of a file that are not written to it yet
* `region_files`: apply operations to files, and flush the files

The use of the log:

* `wal_file`: create the file of the log, recover its header, read its blocks
* `wal_writer`: append transactions, give up the space of old ones
* `logged_changes`: find the operations that a replay could apply wrongly, before they are written
* `logged_files`: commit transactions and make checkpoints
* `wal_replay`: replay the log
* `logged_file_state`: a file as readers see it while changes of it are queued
* `log_directory`: tie a separate directory of the log to the storage directory
* `wal_start`: start the log of a storage directory, plain or not
* `checkpoint_lag`: how long the oldest transaction waits for a checkpoint

`shell.wal_commits` groups the commits of all threads, `shell.logged_disk` is the disk that the
partitions use, and `shell.wal_engine` connects both with a storage directory.
"""
