"""The storage process. It touches the network, threads, the disk and the environment.

* `node`: starts and stops everything below
* `environment`: the network, disks, clocks and ZooKeeper, which a simulation replaces
* `connections`, `admin_handler`: requests of servers and of administrators
* `request_intake`: which requests of a connection begin now, and which wait
* `engine_thread`, `parallel_flushes`: the threads that serve servers, run the engine, and flush
* `mailbox`, `outside_jobs`: answers and jobs that pass from one thread to another
* `posix_disk`: files of the operating system
* `wal_engine`, `wal_commits`, `logged_disk`: the engine ``wal``, with a write-ahead log
* `scrubbing`: the checks of the scrubber, in the lanes of the partitions
* `self_repair`: replaces damaged records by those of other storages
* `peer_comparison`: compares the replicas with those of other storages
* `peers`: the other storages, by ZooKeeper, and the state of their replicas
* `peer_pull`: copies records of another storage, on the request of an administrator
* `flattening`: writes the write-ahead log of a stopped storage to its segment files
* `config`, `metrics`: settings, metrics and health
"""
