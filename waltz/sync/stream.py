"""A stream of transactions as an iterator. Waits for the thread of the client."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, Self

from waltz.client import ClientClosed, LogStream, Transaction
from waltz.client.core.values import DataT_co
from waltz.sync.event_loop import EventLoopThread


class SyncStream(Generic[DataT_co]):
    """An iterator over transactions of one or several partitions.

    Each transaction is returned once, in order within its partition. Several threads may iterate:
    then each transaction is returned to one of them.

    The stream is closed by `close`, at the end of a ``with`` block, and when its last transaction
    was returned. Leaving a ``for`` loop before the last transaction does not close the stream.
    """

    def __init__(self, thread: EventLoopThread, stream: LogStream[DataT_co]) -> None:
        self._thread = thread
        self._stream = stream
        self._batches = stream.batches()
        self._ready: deque[Transaction[DataT_co]] = deque()
        self._taking = threading.Lock()
        self._closed = False

    def __iter__(self) -> Iterator[Transaction[DataT_co]]:
        return self

    def __next__(self) -> Transaction[DataT_co]:
        """Return the next transaction.

        Raises StopIteration at the end, and the errors of `waltz.LogStream`.
        """
        with self._taking:
            if not self._ready:
                self._ready.extend(self._next_batch())
            return self._ready.popleft()

    def batches(self) -> Iterator[Sequence[Transaction[DataT_co]]]:
        """Yield lists of the transactions that have arrived. No list is empty."""
        while True:
            with self._taking:
                try:
                    batch = list(self._ready) or self._next_batch()
                except StopIteration:
                    return
                self._ready.clear()
            yield batch

    def close(self) -> None:
        """Close the stream. Threads that wait in it get ClientClosed. May be called repeatedly."""
        self._closed = True
        if not self._thread.stopped:
            self._thread.call(self._stream.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next_batch(self) -> Sequence[Transaction[DataT_co]]:
        """Wait for the next transactions. Raises StopIteration at the end of the stream."""
        if self._closed:
            raise ClientClosed
        batch = self._thread.call(self._await_batch())
        if batch is None:
            raise StopIteration
        return batch

    async def _await_batch(self) -> Sequence[Transaction[DataT_co]] | None:
        return await anext(self._batches, None)
