"""A cluster in memory for the tests of applications, with faults on demand.

* `cluster`: `MockCluster`, which a test makes and causes faults in; `shared`: its logs
* `client`, `stream`, `bulk`: the implementation of `waltz.LogClient`
* `log`: the log and the locks of a partition; `faults`: the faults, which follow from a seed
* `partition`: the state of a mounted partition in a client

A test opens a client and causes a fault:

    from waltz import mock

    async def test_transfers() -> None:
        cluster = mock.MockCluster(partitions=2, seed=7, faults=mock.Faults(lost=0.2))
        async with cluster.connect() as client:      # in place of waltz.connect
            cluster.fail_next_lock(0)
            await transfer(client, ...)

`MockClient` and `waltz.Client` both implement `waltz.LogClient`. For a blocking client give
``cluster.connect()`` to `waltz.sync.opened`, and for one with callbacks the result of that to
`waltz.sync.callbacks.CallbackClient`. All clients of a mock cluster share its logs, also on several
threads and event loops.
"""

from waltz.mock.bulk import MockBulk
from waltz.mock.client import MockClient
from waltz.mock.cluster import MockCluster
from waltz.mock.faults import Faults
from waltz.mock.stream import MockStream

__all__ = ["Faults", "MockBulk", "MockClient", "MockCluster", "MockStream"]
