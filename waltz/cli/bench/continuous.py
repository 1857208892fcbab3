"""Append to partitions without end, and record each acknowledgement. Touches the network.

Tests and benchmarks append in this way while a cluster changes or fails. Every producer waits for
its append before it begins the next one. So a gap between acknowledgements shows how long a
partition took no appends.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from waltz.client import Client
from waltz.protocol import Lock

_POLL_SECONDS = 0.01
"""The time between two checks of the progress."""

Content = Callable[[int, int, int], bytes]
"""Returns the data of an append.

Called with the partition, the number of the producer in the partition, and the number of the append
at the producer. Both numbers begin at 0.
"""

OnAcknowledged = Callable[[int, int, int], None]
"""Called with an append's partition, its number at its producer, and its transaction id."""


class ContinuousAppends:
    """Runs producers that append without end, while the async context is open.

    Each partition has ``producers`` producers. They are distributed over ``clients``. A producer
    pauses ``pause_seconds`` between two appends. With ``locks``, all appends of a producer take one
    append lock, which belongs to this producer only.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        partitions: Iterable[int],
        content: Content,
        *,
        producers: int = 1,
        pause_seconds: float = 0.0,
        locks: bool = False,
        on_acknowledged: OnAcknowledged = lambda _partition, _count, _id: None,
    ) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """The data of each acknowledged append, by partition and transaction id."""
        self.times: dict[int, list[float]] = {partition: [] for partition in partitions}
        """When appends were acknowledged, by partition, in seconds of the monotonic clock."""
        self._clients = clients
        self._content = content
        self._producers = producers
        self._pause_seconds = pause_seconds
        self._locks = locks
        self._on_acknowledged = on_acknowledged
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def __aenter__(self) -> Self:
        for partition in self.times:
            for number in range(self._producers):
                client = self._clients[number % len(self._clients)]
                self._tasks.append(asyncio.create_task(self._produce(client, partition, number)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def finish(self, seconds: float) -> None:
        """Begin no more appends; wait until all appends in flight are acknowledged.

        Raises TimeoutError if this takes longer than ``seconds``, and the error of a producer that
        has failed.
        """
        self._stopping = True
        async with asyncio.timeout(seconds):
            await asyncio.gather(*self._tasks)

    async def wait_for_progress(self, seconds: float, appends: int) -> None:
        """Wait until every partition has ``appends`` more acknowledged appends.

        Raises AssertionError after ``seconds``, and the error of a producer that has failed.
        """
        wanted = {partition: len(times) + appends for partition, times in self.times.items()}
        deadline = time.monotonic() + seconds
        while True:
            behind = [p for p, num_wanted in wanted.items() if len(self.times[p]) < num_wanted]
            if not behind:
                return
            self.check_running()
            assert time.monotonic() < deadline, (
                f"partitions {behind} acknowledged fewer than {appends} appends in {seconds} s"
            )
            await asyncio.sleep(_POLL_SECONDS)

    def check_running(self) -> None:
        """Raise the error of a producer that has failed."""
        for task in self._tasks:
            if task.done():
                task.result()

    def longest_pause(self, partition: int, since: float) -> float:
        """Return the longest time between acknowledgements after ``since``, in seconds.

        ``since`` is a time of the monotonic clock. The pauses are measured from ``since`` to the
        first acknowledgement after it, and then from one acknowledgement to the next. The time
        after the last acknowledgement is not included.
        """
        moments = [since, *(moment for moment in self.times[partition] if moment >= since)]
        pauses = (after - before for before, after in itertools.pairwise(moments))
        return max(pauses, default=0.0)

    async def _produce(self, client: Client, partition: int, producer: int) -> None:
        """Append one transaction after the other, as the producer with the number ``producer``."""
        locks = [Lock("producer", producer)] if self._locks else []
        for append_number in itertools.count():
            if self._stopping:
                return
            data = self._content(partition, producer, append_number)
            transaction_id = await client.append(partition, data, append_locks=locks)
            self.acknowledged[partition, transaction_id] = data
            self.times[partition].append(time.monotonic())
            self._on_acknowledged(partition, append_number, transaction_id)
            await asyncio.sleep(self._pause_seconds)
