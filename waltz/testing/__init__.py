"""A cluster in one process, for tests: real nodes, with network, disks, ZooKeeper in memory.

Touches event loops and threads, and nothing outside of this process.

* `cluster`: `InProcessCluster`, which runs on one event loop; `nodes`: its servers and storages
* `blocking`: `SyncCluster`, for tests without asyncio and the fixture of `waltz.pytest_plugin`
* `faults`, `append_faults`: faults of appends, on demand and from a seed
* `network`, `transport`: connections in memory; `interceptors`: what may change their bytes;
  `frames`: faults of single frames
* `disk`: the disks; `torn_files`: their files after a loss of power
* `zookeeper`: the metadata store; `znodes`: its nodes
* `engine`: the storage engine without threads; `clock`: an event loop on virtual time

A test opens a client of a cluster:

    from waltz.testing import InProcessCluster

    async def test_transfers() -> None:
        async with InProcessCluster(partitions=2, seed=7) as cluster:
            async with cluster.connect() as client:      # in place of waltz.connect
                await transfer(client, ...)
"""

from waltz.runtime.extras import needs_extra

with needs_extra("waltz.testing", "testing"):
    from waltz.testing.blocking import SyncCluster
    from waltz.testing.clock import NothingToWaitFor, VirtualTimeLoop, run
    from waltz.testing.cluster import InProcessClient, InProcessCluster
    from waltz.testing.disk import MemoryDisk
    from waltz.testing.faults import Faults
    from waltz.testing.frames import FrameFault, FrameReplacement, FrameRule
    from waltz.testing.network import MemoryNetwork
    from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper

__all__ = [
    "Faults",
    "FrameFault",
    "FrameReplacement",
    "FrameRule",
    "InProcessClient",
    "InProcessCluster",
    "MemoryDisk",
    "MemoryNetwork",
    "MemoryStore",
    "MemoryZooKeeper",
    "NothingToWaitFor",
    "SyncCluster",
    "VirtualTimeLoop",
    "run",
]
