"""The Waltz server: orders, locks and replicates appends, recovers after faults, feeds clients.

Pure, from the inside out; each takes values and returns values or effects:
* `recovery`, `recovery_messages`: which mark a new store session may resolve, and what each replica
  must do; the same as messages
* `log_tail`, `replica_session`, `replication`: a store session: quorum appends and catching up
* `standby`, `carried`, `store_reads`, `store`: a partition's store: one session after another, over
  ZooKeeper's metadata; what outlives a session; reads from replicas
* `lock_table`, `waiting_lines`, `append_queue`, `append_batches`: which appends may go, in which
  order; what becomes of a batch
* `data_cache`, `reads`: data of single transactions; `recent_records`, `range_reads`: ranges
* `feed_cache`, `feeds`, `feeding`: feeds
* `clients`, `partition`: one partition: appends, mounts, feeds, reads
* `older_storages`: what storages of an older protocol version are asked instead

Shells: `client_connection`, `storage_links`, `node`, `http`, `main`; settings: `config`.
"""
