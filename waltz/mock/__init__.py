"""A cluster inside the process, for the tests of applications: no network, and faults on demand.

* `log`: a partition's log and its locks (pure); `faults`: what goes wrong, from a seed (pure)
* `shared`: the logs that clients share; `cluster`: `MockCluster`, which tests make and disturb
* `client`, `stream`, `bulk`: what the application gets, with the interface of `waltz.Client`
* `partition`: what a client keeps of a partition that it has mounted

::

    from waltz import mock

    async def test_transfers() -> None:
        cluster = mock.MockCluster(partitions=2, seed=7, faults=mock.Faults(lost=0.2))
        async with cluster.connect() as client:      # as waltz.connect, which it stands for
            cluster.fail_next_lock(0)
            await transfer(client, ...)

`MockClient` and `waltz.Client` both satisfy `waltz.LogClient`. For a blocking client give
``cluster.connect()`` to `waltz.sync.opened`, for one with callbacks to
`waltz.sync.callbacks.CallbackClient`. Several clients of one mock cluster, also on several
threads and event loops, share its logs.
"""

from waltz.mock.bulk import MockBulk
from waltz.mock.client import MockClient
from waltz.mock.cluster import MockCluster
from waltz.mock.faults import Faults
from waltz.mock.stream import MockStream

__all__ = ["Faults", "MockBulk", "MockClient", "MockCluster", "MockStream"]
