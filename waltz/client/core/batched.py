"""What streams have that are made of batches: single transactions, an ``async with``. Pure."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator
from typing import Generic, Self

from waltz.client.core.values import DataT_co, Transaction


class BatchedStream(abc.ABC, Generic[DataT_co]):
    """Transactions of one or several partitions: each once, in order within its partition."""

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
        """Yield transactions as they come. Never an empty list."""

    @abc.abstractmethod
    async def aclose(self) -> None:
        """End the stream. May be called again."""
