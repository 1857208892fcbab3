"""The storage process. It touches the network, threads, the disk and the environment.

* `node`: starts and stops everything below
* `connections`, `admin_handler`: requests of servers and of administrators
* `engine_thread`, `parallel_flushes`: the threads that run the engine, and flush
* `posix_disk`: files of the operating system
* `scrubbing`: the checks of the scrubber, in the lanes of the partitions
* `config`, `metrics`: settings, metrics and health
"""
