"""The Waltz server: orders, locks and replicates appends, recovers after faults, feeds clients.

Pure, from the inside out; each takes values and returns values or effects:
* `recovery`: which mark a new store session may resolve, and what each replica must do
* `replication`: a store session: quorum appends and catching up
* `store`: a partition's store: one session after another, over ZooKeeper's metadata
* `lock_table`, `feed_cache`, `data_cache`, `feeds`: what a partition remembers and feeds
* `partition`: one partition: appends, mounts, feeds, reads

Shells: `client_connection`, `storage_links`, `node`, `http`, `main`; settings: `config`.
"""
