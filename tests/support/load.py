"""Put load on a cluster that a test disturbs, and check the log afterwards."""

from __future__ import annotations

from contextlib import AsyncExitStack

import waltz
from waltz.cli.bench.continuous import ContinuousAppends
from waltz.client.opening import Opening
from waltz.local import LocalCluster

_PRODUCERS = 4
_CLIENTS = 2
_PAUSE_S = 0.002
"""The pause of a producer between appends, so that the log stays short and is read quickly."""


def client_of(cluster: LocalCluster) -> Opening[waltz.Client]:
    """Return a client of a local cluster, for use in ``async with``."""
    return waltz.connect(cluster.zookeeper, root=cluster.root, tls=cluster.tls)


class Load:
    """Several producers on every partition, each with one append in flight.

    The checks look only at transactions since the beginning of the load.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.marks: dict[int, int] = {}
        """Where each partition's log ended when the load began."""
        self._stack = AsyncExitStack()
        self._appends: ContinuousAppends

    @property
    def acknowledged(self) -> dict[tuple[int, int], bytes]:
        """The data of the acknowledged appends, by partition and transaction id."""
        return self._appends.acknowledged

    async def __aenter__(self) -> Load:
        clients = [
            await self._stack.enter_async_context(client_of(self.cluster)) for _ in range(_CLIENTS)
        ]
        partitions = range(self.cluster.plan.shape.partitions)
        self.marks = {p: await clients[0].high_water_mark(p) for p in partitions}
        self._appends = ContinuousAppends(
            clients,
            partitions,
            self._unique_data,
            producers=_PRODUCERS,
            pause_seconds=_PAUSE_S,
            locks=True,
        )
        await self._stack.enter_async_context(self._appends)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def finish(self, seconds: float) -> None:
        """Wait until the appends in flight are acknowledged, and begin no others."""
        await self._appends.finish(seconds)

    def _unique_data(self, partition: int, producer: int, count: int) -> bytes:
        """Return data that no other append has, also of no other load in this process."""
        return b"%d/%d/%d/%d " % (id(self), partition, producer, count) + b"x" * 200

    async def wait_for_progress(self, seconds: float, appends: int = 5) -> None:
        """Return when every partition has ``appends`` more acknowledged appends."""
        await self._appends.wait_for_progress(seconds, appends)

    def longest_pause(self, since: float) -> float:
        """Return the longest time after ``since`` in which a partition had no acknowledgement."""
        return max(self._appends.longest_pause(partition, since) for partition in self.marks)

    async def check(self) -> None:
        """Assert that no acknowledged append is lost or in the log twice, and readers agree."""
        async with client_of(self.cluster) as one, client_of(self.cluster) as two:
            for partition, mark in self.marks.items():
                log = await read_log(one, partition, mark)
                assert log == await read_log(two, partition, mark)
                assert len(set(log)) == len(log), "a transaction is in the log twice"
                for (appended_to, transaction_id), data in self.acknowledged.items():
                    if appended_to == partition:
                        assert log[transaction_id - mark - 1] == data, (
                            "an acknowledged transaction is lost"
                        )


async def read_log(client: waltz.Client, partition: int, after: int = -1) -> list[bytes]:
    """Return the data of every transaction after ``after``, in order."""
    mark = await client.high_water_mark(partition)
    log: list[bytes] = []
    async for transaction in client.stream(partition, after=after, until=mark, data=True):
        assert transaction.id == after + 1 + len(log)
        log.append(transaction.data)
    return log
