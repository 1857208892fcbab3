"""The interface of a stream of transactions. Pure."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator
from typing import Generic, Self

from waltz.client.core.values import DataT_co, Transaction


class LogStream(abc.ABC, Generic[DataT_co]):
    """A stream of transactions of one or several partitions. `LogClient.stream` returns it.

    Each transaction is returned once, in order within its partition. Iterate over a stream once:
    either over the stream itself, which yields transactions, or over `batches`. The end of the loop
    closes the stream, and so does `aclose`.
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
        """Yield lists of the transactions that have arrived, each with 1 to 1,000 transactions.

        Raises ClientAhead, DataCorrupt, PermissionDenied, ClientFailed, ClientClosed,
        DataUnreadable, and ClusterUnreachable if ZooKeeper does not answer.
        """

    @abc.abstractmethod
    async def aclose(self) -> None:
        """Close the stream and its connections. A second call has no effect."""
