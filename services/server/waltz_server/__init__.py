"""The Waltz server: orders, locks and replicates appends, recovers after faults, feeds clients.

* `core`: all decisions, pure. One `Partition` per partition: `appends` (codec, locks, order),
  `replication` (store sessions, recovery, quorum), `reads` (feeds, single transactions, ranges).
* `shell`: performs the core's effects on sockets, ZooKeeper, timers and the log.
* `main`: the command ``waltz-server``.
"""
