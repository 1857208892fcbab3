"""The interface of a stream of transactions, as every client offers it. Pure."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator
from typing import Generic, Self

from waltz.client.core.values import DataT_co, Transaction


class LogStream(abc.ABC, Generic[DataT_co]):
    """Transactions of one or several partitions: each once, in order within its partition.

    `LogClient.stream` returns it. Iterate over it once, with ``async for`` or with `batches`.
    Leaving the loop ends the stream, and so does `aclose`.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def __aiter__(self) -> AsyncIterator[Transaction[DataT_co]]:
        async for batch in self.batches():
            for transaction in batch:
                yield transaction

    @abc.abstractmethod
    def batches(self) -> AsyncIterator[list[Transaction[DataT_co]]]:
        """Yield transactions as they arrive, up to 1,000 at a time, never an empty list.

        Raises ClientAhead, DataCorrupt, ClientFailed, ClientClosed.
        """

    @abc.abstractmethod
    async def aclose(self) -> None:
        """End the stream and close its connections. A second call has no effect."""
