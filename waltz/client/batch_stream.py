"""A stream of `ColumnBatch` values. Touches the network through the client's requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Self

from waltz.client.core.column_batch import ColumnBatch
from waltz.client.core.errors import ITERATED_TWICE, ClientClosed
from waltz.client.request_client import RequestClient
from waltz.client.stream_ranges import COLUMN_LIMITS, StreamRanges, read_ranges


class BatchStream:
    """A stream of the transactions of one or several partitions, as columns.

    `LogClient.batches` returns it. Each transaction is in exactly one batch, in order within its
    partition. Iterate over a stream once. The end of the loop closes the stream, and so does
    `aclose`.

    Iterating raises ServerTooOld, and the errors of `LogStream.batches` except DataUnreadable.

    ``after`` and ``until`` are those of `StreamRanges`. ``count_received`` is called with the
    partition and the number of transactions of each batch, ``on_end`` when the stream is closed.
    """

    def __init__(
        self,
        request_client: RequestClient,
        after: Mapping[int, int],
        until: Mapping[int, int],
        count_received: Callable[[int, int], None],
        on_end: Callable[[BatchStream], None],
    ) -> None:
        self._changed = asyncio.Event()
        """Set when an answer arrives, when the stream fails, and when it is closed."""
        self._ranges = StreamRanges(
            request_client, after, until, wake=self._changed.set, limits=COLUMN_LIMITS
        )
        self._count_received = count_received
        self._on_end = on_end
        self._failure: Exception | None = None
        """The argument of `fail`; None before."""
        self._begun = False
        """Whether a loop over the stream has begun."""
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def __aiter__(self) -> AsyncIterator[ColumnBatch]:
        if self._begun:
            raise ClientClosed(ITERATED_TWICE)
        if self._closed:
            raise ClientClosed
        self._begun = True
        try:
            async with aclosing(read_ranges(self._ranges, self._wait)) as arriving:
                async for partition, records in arriving:
                    self._count_received(partition, records.count)
                    yield ColumnBatch(partition, records)
            # `read_ranges` ends without an error if a server is too old for ranges.
            if self._ranges.unsupported is not None:
                raise self._ranges.unsupported
        finally:
            await self.aclose()

    def fail(self, error: Exception) -> None:
        """Make the iteration yield the batches that have arrived, and then raise ``error``."""
        if self._failure is None:
            self._failure = error
        self._changed.set()

    async def aclose(self) -> None:
        """Close the stream. A second call has no effect."""
        if not self._closed:
            self._closed = True
            self._ranges.end()
            self._changed.set()
            self._on_end(self)

    async def _wait(self) -> None:
        """Wait until ``_changed`` is set next. Raises the error of `fail`, or ClientClosed.

        `read_ranges` calls this only after it has yielded all ranges that have arrived, so the
        error comes after them.
        """
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise ClientClosed
        self._changed.clear()
        await self._changed.wait()
