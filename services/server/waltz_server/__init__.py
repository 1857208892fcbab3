"""The Waltz server: the process that owns partitions of the log.

It orders appends, checks their locks, replicates them to storages and feeds clients.

* `core`: all decisions, pure. One `Partition` object per partition, with parts from `appends`
  (codec, locks, order), `replication` (store sessions, recovery, quorum) and `reads` (feeds, single
  transactions, ranges). `access` decides what a client may do.
* `shell`: performs the effects that the core requests: on sockets, ZooKeeper, timers, log lines.
* `main`: the command ``waltz-server``.

docs/concepts.md explains the terms: partition, mark, lock, quorum, store session, generation, feed.
"""
