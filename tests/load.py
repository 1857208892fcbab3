"""Appends while a cluster is disturbed, and the checks of the log afterwards."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field

import waltz
from waltz.client.opening import Opening
from waltz.local import LocalCluster

_PAUSE_S = 0.002
"""The pause between two appends of a producer; it keeps the log short enough to read afterwards."""


def client_of(cluster: LocalCluster) -> Opening[waltz.Client]:
    return waltz.connect(cluster.zookeeper, root=cluster.root, tls=cluster.tls)


@dataclass
class Load:
    """Several producers on every partition, each with one open append at a time.

    The checks cover the transactions since the start of the load.
    """

    cluster: LocalCluster
    producers: int = 4
    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)
    times: dict[int, list[float]] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _clients: list[waltz.Client] = field(default_factory=list)
    _stopping: bool = False

    async def __aenter__(self) -> Load:
        partitions = range(self.cluster.plan.shape.partitions)
        self._clients = [await client_of(self.cluster) for _ in range(2)]
        reader = self._clients[0]
        self.marks = {
            partition: await reader.high_water_mark(partition) for partition in partitions
        }
        self.times = {partition: [] for partition in partitions}
        for partition in partitions:
            for number in range(self.producers):
                client = self._clients[number % len(self._clients)]
                self._tasks.append(asyncio.create_task(self._produce(client, partition, number)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()

    async def finish(self, seconds: float) -> None:
        """Wait for the open appends, and start no others."""
        self._stopping = True
        async with asyncio.timeout(seconds):
            await asyncio.gather(*self._tasks)

    async def progress(self, seconds: float, appends: int = 5) -> None:
        """Wait until every partition has ``appends`` further acknowledged appends."""
        wanted = {partition: len(times) + appends for partition, times in self.times.items()}
        deadline = time.monotonic() + seconds
        while any(len(self.times[partition]) < count for partition, count in wanted.items()):
            self._check_producers()
            behind = [p for p, count in wanted.items() if len(self.times[p]) < count]
            assert time.monotonic() < deadline, (
                f"partitions {behind} made no progress for {seconds} s"
            )
            await asyncio.sleep(0.01)

    def longest_pause(self, since: float) -> float:
        """Return the longest time without an acknowledgement in any partition."""
        longest = 0.0
        for times in self.times.values():
            recent = [since, *(moment for moment in times if moment >= since)]
            longest = max(longest, *(b - a for a, b in itertools.pairwise(recent)))
        return longest

    async def check(self) -> None:
        """Assert that no acknowledged append is lost, none is there twice, and readers agree."""
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

    async def _produce(self, client: waltz.Client, partition: int, number: int) -> None:
        count = 0
        while not self._stopping:
            data = b"%d/%d/%d/%d " % (id(self), partition, number, count) + b"x" * 200
            count += 1
            lock = waltz.Lock("producer", number)
            transaction_id = await client.append(partition, data, append_locks=[lock])
            self.acknowledged[partition, transaction_id] = data
            self.times[partition].append(time.monotonic())
            await asyncio.sleep(_PAUSE_S)

    def _check_producers(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()


async def read_log(client: waltz.Client, partition: int, after: int = -1) -> list[bytes]:
    """Return the data of every transaction after ``after``, in order."""
    mark = await client.high_water_mark(partition)
    log: list[bytes] = []
    async for transaction in client.stream(partition, after=after, until=mark, data=True):
        assert transaction.id == after + 1 + len(log)
        log.append(transaction.data)
    return log
