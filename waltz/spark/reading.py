"""Reads slices of the log for Spark: one client on one event loop. Network and ZooKeeper.

Spark calls from one thread and takes one batch after the other; the event loop runs while it waits
for a batch, and at no other time. What arrives meanwhile stays in the sockets' buffers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from waltz.client import Client, Transaction, WaltzError, connect
from waltz.net import TlsConfig
from waltz.spark.batches import to_arrow
from waltz.spark.planning import Slice

T = TypeVar("T")

_CONNECT_SECONDS = 10.0
_BATCH_ROWS = 8192
_BATCH_BYTES = 16 << 20


class ReadTimedOut(WaltzError):
    """Servers left the reader without an answer for too long."""


@dataclass(frozen=True, slots=True)
class Where:
    """The cluster to read from."""

    zookeeper: str
    root: str
    tls: TlsConfig


class LogReader:
    """A client of one cluster, for one thread. Close it, or let the process end."""

    def __init__(self, where: Where, timeout_seconds: float) -> None:
        """Connect. ``timeout_seconds`` is how long an answer may take, then and later.

        Raises what `waltz.connect` raises.
        """
        self._where = where
        self._timeout_seconds = timeout_seconds
        self._loop = asyncio.new_event_loop()
        try:
            self._client = self._run(self._connected())
        except BaseException:
            self._loop.close()
            raise

    @property
    def num_partitions(self) -> int:
        """How many partitions the cluster has."""
        return self._client.num_partitions

    def marks(self, partitions: tuple[int, ...]) -> dict[int, int]:
        """Return the high-water marks of ``partitions``. Raises ReadTimedOut."""

        async def ask() -> list[int]:
            return await asyncio.gather(*map(self._client.high_water_mark, partitions))

        where = f"{self._where.zookeeper}{self._where.root}"
        marks = self._run(self._in_time(ask(), f"not every log of {where} told its end"))
        return dict(zip(partitions, marks, strict=True))

    def read(self, part: Slice) -> Iterator[Any]:
        """Yield the transactions of ``part`` in order, as Arrow batches.

        Raises ReadTimedOut when nothing more comes, and what streams raise.
        """
        batches = self._batches(part)
        try:
            while (batch := self._run(anext(batches, None))) is not None:
                yield batch
        finally:
            self._run(batches.aclose())

    def close(self) -> None:
        """Close the connections."""
        self._run(self._client.close())
        self._loop.close()

    async def _connected(self) -> Client:
        where, seconds = self._where, min(self._timeout_seconds, _CONNECT_SECONDS)
        return await connect(
            where.zookeeper, root=where.root, tls=where.tls, connect_timeout=seconds
        )

    async def _batches(self, part: Slice) -> AsyncGenerator[Any]:
        silence = f"nothing came from partition {part.partition}"
        rows: list[Transaction] = []
        size = 0
        after, until = part.first - 1, part.last
        async with self._client.stream(
            part.partition, after=after, until=until, data=True
        ) as stream:
            batches = stream.batches()
            while some := await self._in_time(anext(batches, None), silence):
                rows += some
                size += sum(len(transaction.data) for transaction in some)
                if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                    yield to_arrow(rows)
                    rows, size = [], 0
        if rows:
            yield to_arrow(rows)

    def _run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self._loop.run_until_complete(wait())

    async def _in_time(self, work: Awaitable[T], silence: str) -> T:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await work
        except TimeoutError:
            raise ReadTimedOut(
                f"{silence} within {self._timeout_seconds:g} s: check that servers and storages "
                "are running and reachable, or raise the option timeoutSeconds"
            ) from None


class Readers:
    """The readers of a worker process, which does one task after the other, by cluster."""

    def __init__(self) -> None:
        self._open: dict[Where, LogReader] = {}

    def read(self, where: Where, part: Slice, timeout_seconds: float) -> Iterator[Any]:
        """Yield what `LogReader.read` does, over connections that stay open for the next task."""
        reader = self._open.get(where)
        if reader is None:
            reader = self._open[where] = LogReader(where, timeout_seconds)
        try:
            yield from reader.read(part)
        except Exception:
            # The next attempt begins with new connections.
            del self._open[where]
            reader.close()
            raise
