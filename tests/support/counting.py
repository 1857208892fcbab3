"""Define an application that counts under a lock, with a state that follows from the log.

The application can be stopped, and started with another client from the marks that it has stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from typing import Any

import waltz
from waltz.client.opening import Opening

_COUNT, _NOTE = 1, 2
"""Headers: the next number of the count, and data that name the application."""

_BATCH = 3
_PAUSE_S = 0.005


class Counting:
    """Appends to each of ``partitions`` and follows them all, from `start` to `stop`.

    ``logs`` has the data of all their transactions, ``counts`` the last numbers. Every transaction
    is checked when it arrives.
    """

    def __init__(self, name: str, partitions: Iterable[int]) -> None:
        self.name = name
        self.logs: dict[int, list[bytes]] = {partition: [] for partition in partitions}
        self.counts = dict.fromkeys(self.logs, 0)
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.absent: dict[int, set[bytes]] = {partition: set() for partition in self.logs}
        self._notes = dict.fromkeys(self.logs, 0)
        self._done = {(header, p): 0 for header in (_COUNT, _NOTE) for p in self.logs}
        self._grown = asyncio.Condition()
        self._client: waltz.Client[bytes] | None = None
        self._following: asyncio.Task[None] | None = None
        self._appending: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self, opening: Opening[waltz.Client[bytes]]) -> None:
        """Start, for the first time or again, with a new client."""
        client = self._client = await opening
        self._stopping = False
        self._following = asyncio.create_task(self._follow(client))
        for partition in self.logs:
            self._spawn(self._count(client, partition))
            self._spawn(self._note(client, partition))

    async def stop(self, seconds: float) -> None:
        """Wait for the open appends, and close the client."""
        self._stopping = True
        async with asyncio.timeout(seconds):
            await asyncio.gather(*self._appending)
        await self.close()

    async def catch_up(self, opening: Opening[waltz.Client[bytes]], seconds: float) -> None:
        """Follow the log up to its end without appending."""
        async with asyncio.timeout(seconds), opening as client:
            until = {p: await client.high_water_mark(p) for p in self.logs}
            await self._follow(client, until)

    async def close(self) -> None:
        """Close the client and cancel the open appends."""
        tasks = [*self._appending, *([self._following] if self._following else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._appending, self._following = [], None
        if self._client is not None:
            await self._client.close()

    async def wait_for_progress(self, seconds: float, each: int = 5) -> None:
        """Wait until ``each`` further appends of each kind are acknowledged in each partition."""
        wanted = {kind: done + each for kind, done in self._done.items()}
        deadline = time.monotonic() + seconds
        while behind := [kind for kind, count in wanted.items() if self._done[kind] < count]:
            for task in (*self._appending, self._following):
                assert task is not None
                if task.done():
                    task.result()
            late = f"{self.name} made no progress for {seconds:g} s: {behind} (header, partition)"
            assert time.monotonic() < deadline, late
            await asyncio.sleep(0.01)

    async def reached(self, partition: int, transaction_id: int) -> None:
        """Wait until a transaction has arrived in the feed."""
        async with self._grown:
            await self._grown.wait_for(lambda: len(self.logs[partition]) > transaction_id)

    def check(self) -> None:
        """Assert that each append is in the log exactly as acknowledged, and only there."""
        for (partition, transaction_id), data in self.acknowledged.items():
            assert self.logs[partition][transaction_id] == data, "an acknowledged append is lost"
        for partition, log in self.logs.items():
            assert self.absent[partition].isdisjoint(log), "an append reported absent is in the log"
            own = [data for data in log if data.startswith(f"{self.name} ".encode())]
            assert len(set(own)) == len(own), "a transaction is in the log twice"

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._appending.append(asyncio.create_task(work))

    async def _follow(
        self, client: waltz.Client[bytes], until: dict[int, int] | None = None
    ) -> None:
        marks = {partition: len(log) - 1 for partition, log in self.logs.items()}
        async for transaction in client.stream(marks, until=until, data=True):
            partition, log = transaction.partition, self.logs[transaction.partition]
            assert transaction.id == len(log), "transactions are missing, repeated or out of order"
            if transaction.header == _COUNT:
                number = self.counts[partition] = self.counts[partition] + 1
                assert transaction.data == b"%d" % number, "a lock was not honoured"
            log.append(transaction.data)
            async with self._grown:
                self._grown.notify_all()

    async def _count(self, client: waltz.Client[bytes], partition: int) -> None:
        async def build(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
            conflict = -1 if attempt.conflict is None else attempt.conflict
            await self.reached(partition, max(attempt.mark, conflict))
            return waltz.Draft(
                b"%d" % (self.counts[partition] + 1),
                header=_COUNT,
                write_locks=[waltz.Lock("count", partition)],
                mark=len(self.logs[partition]) - 1,
            )

        while not self._stopping:
            number = await client.submit(partition, build)
            assert number is not None
            self._done[_COUNT, partition] += 1
            await asyncio.sleep(_PAUSE_S)

    async def _note(self, client: waltz.Client[bytes], partition: int) -> None:
        """Append in batches, or one by one if the server has no batches."""
        while not self._stopping:
            notes = [self._new_note(partition) for _ in range(_BATCH)]
            try:
                outcomes = await client.bulk.append(partition, notes)
            except waltz.ServerTooOld:
                outcomes = [await self._one_by_one(client, partition, note) for note in notes]
            for note, outcome in zip(notes, outcomes, strict=True):
                match outcome:
                    case waltz.Appended(number):
                        self.acknowledged[partition, number] = note.data
                        self._done[_NOTE, partition] += 1
                    case waltz.Absent():
                        self.absent[partition].add(note.data)
                    case waltz.Refused():
                        raise AssertionError("an append lock was checked")
            await asyncio.sleep(_PAUSE_S)

    async def _one_by_one(
        self, client: waltz.Client[bytes], partition: int, note: waltz.Draft[bytes]
    ) -> waltz.Appended:
        locks = note.append_locks
        return waltz.Appended(
            await client.append(partition, note.data, header=_NOTE, append_locks=locks)
        )

    def _new_note(self, partition: int) -> waltz.Draft[bytes]:
        data = f"{self.name} {self._notes[partition]} ".encode() + b"x" * 200
        self._notes[partition] += 1
        lock = waltz.Lock(self.name, partition)
        return waltz.Draft(data, header=_NOTE, append_locks=[lock])
