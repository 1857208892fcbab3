"""Define an application that counts under a lock, with a state that follows from the log.

It appends two kinds of transactions to each partition. A *number* is the next number of the
partition's count, appended under a lock, so that several applications count together and skip no
number. A *note* is unique data that names its application, appended without a checked lock. The
application can be stopped, and started again with another client: it then continues after the
transactions that it has received.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from typing import Any

import waltz
from waltz.client.opening import Opening

_NUMBER, _NOTE = 1, 2
"""The headers of the two kinds of transactions."""

_BATCH_NOTES = 3
_PAUSE_S = 0.005


class Counting:
    """Appends to each of ``partitions`` and follows them all, from `start` to `stop`.

    Every transaction is checked when it arrives; `check` compares the acknowledgements with them.
    """

    def __init__(self, name: str, partitions: Iterable[int]) -> None:
        self.name = name
        self.logs: dict[int, list[bytes]] = {partition: [] for partition in partitions}
        """The data of all transactions that have arrived, by partition and in order."""
        self.counts = dict.fromkeys(self.logs, 0)
        """The last number that has arrived, by partition."""
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """The acknowledged notes, by partition and transaction id."""
        self.absent: dict[int, set[bytes]] = {partition: set() for partition in self.logs}
        """The notes that the client reported not to be in the log, by partition."""
        self._num_notes = dict.fromkeys(self.logs, 0)
        """How many notes were made, by partition: this makes each of them unique."""
        self._num_done = {(header, p): 0 for header in (_NUMBER, _NOTE) for p in self.logs}
        """How many appends were acknowledged, by header and partition."""
        self._arrived = asyncio.Condition()
        """Notified when a transaction has been added to ``logs``."""
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
            self._spawn(self._append_numbers(client, partition))
            self._spawn(self._append_notes(client, partition))

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

    async def wait_for_progress(self, seconds: float, appends: int = 5) -> None:
        """Wait until ``appends`` more of each kind are acknowledged in each partition."""
        wanted = {kind: done + appends for kind, done in self._num_done.items()}
        deadline = time.monotonic() + seconds
        while behind := [kind for kind, count in wanted.items() if self._num_done[kind] < count]:
            for task in (*self._appending, self._following):
                assert task is not None
                if task.done():
                    task.result()
            late = f"{self.name} made no progress for {seconds:g} s: {behind} (header, partition)"
            assert time.monotonic() < deadline, late
            await asyncio.sleep(0.01)

    async def wait_for_arrival(self, partition: int, transaction_id: int) -> None:
        """Wait until a transaction has arrived in the feed."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.logs[partition]) > transaction_id)

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
            if transaction.header == _NUMBER:
                number = self.counts[partition] = self.counts[partition] + 1
                assert transaction.data == b"%d" % number, "a lock was not honoured"
            log.append(transaction.data)
            async with self._arrived:
                self._arrived.notify_all()

    async def _append_numbers(self, client: waltz.Client[bytes], partition: int) -> None:
        """Append one number after the other, each decided by the state up to its mark."""

        async def build(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
            conflict = -1 if attempt.conflict is None else attempt.conflict
            await self.wait_for_arrival(partition, max(attempt.mark, conflict))
            return waltz.Draft(
                b"%d" % (self.counts[partition] + 1),
                header=_NUMBER,
                write_locks=[waltz.Lock("count", partition)],
                mark=len(self.logs[partition]) - 1,
            )

        while not self._stopping:
            transaction_id = await client.submit(partition, build)
            assert transaction_id is not None
            self._num_done[_NUMBER, partition] += 1
            await asyncio.sleep(_PAUSE_S)

    async def _append_notes(self, client: waltz.Client[bytes], partition: int) -> None:
        """Append notes in batches, or one by one if the server has no batches."""
        while not self._stopping:
            notes = [self._new_note(partition) for _ in range(_BATCH_NOTES)]
            try:
                outcomes = await client.bulk.append(partition, notes)
            except waltz.ServerTooOld:
                outcomes = [await self._one_by_one(client, partition, note) for note in notes]
            for note, outcome in zip(notes, outcomes, strict=True):
                match outcome:
                    case waltz.Appended(transaction_id):
                        self.acknowledged[partition, transaction_id] = note.data
                        self._num_done[_NOTE, partition] += 1
                    case waltz.Absent():
                        self.absent[partition].add(note.data)
                    case waltz.Refused():
                        # A note takes an append lock, which is never checked.
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
        data = f"{self.name} {self._num_notes[partition]} ".encode() + b"x" * 200
        self._num_notes[partition] += 1
        lock = waltz.Lock(self.name, partition)
        return waltz.Draft(data, header=_NOTE, append_locks=[lock])
