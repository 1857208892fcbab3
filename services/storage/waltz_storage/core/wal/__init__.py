"""Pure. The write-ahead log (WAL) of a storage: one log for the changes of all its files.

* `checksums`: the checksum algorithms that a WAL can name
* `operations`: what a transaction does to memory: copy, move, zero, and check
* `transaction_blocks`: a transaction as blocks of 4096 bytes, and back
* `ring`: transaction ids, and the space of a log that wraps
* `wal_header`: the first blocks of the file: its cluster, its checksum, and its checkpoint
* `wal_scan`: all transactions since the checkpoint, and whether the log ends torn or damaged
"""
