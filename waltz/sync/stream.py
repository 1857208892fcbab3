"""Streams of transactions as iterators. Touches threads.

The asyncio stream runs on the event loop of the client's thread. An iterator on another thread
waits for the next batch of that stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar

from waltz.client import BatchStream, ClientClosed, ColumnBatch, LogStream, Transaction
from waltz.client.core.errors import new_instance
from waltz.client.core.values import DataT_co
from waltz.sync.event_loop import EventLoopThread

BatchT = TypeVar("BatchT")


class _BlockingStream(Generic[BatchT]):
    """Waits for the batches of ``stream``; ``batches`` yields them on the event loop of ``thread``.

    The stream is closed by `close`, at the end of a ``with`` block, and when its last transaction
    was returned. Leaving a ``for`` loop before the last transaction does not close the stream.
    """

    def __init__(
        self,
        thread: EventLoopThread,
        stream: LogStream[Any] | BatchStream,
        batches: AsyncIterator[BatchT],
    ) -> None:
        self._thread = thread
        self._stream = stream
        self._batches = batches
        self._taking = threading.Lock()
        """Held while a thread takes transactions, so that several threads may iterate."""
        self._arrived: deque[BatchT | Exception | None] = deque()
        """What the next call returns: a batch, the error of the stream, or None for its end.

        An error stays here, so that each later call raises it, too. Otherwise later calls and other
        threads would see the end of ``batches``, which follows the error, and conclude that the
        stream has ended without an error.
        """
        self._arriving = asyncio.Lock()
        """Held on the client's thread while a call waits for the stream."""
        self._closed = False
        """Whether `close` was called."""

    def close(self) -> None:
        """Close the stream. Threads that wait for it get ClientClosed. May be called repeatedly."""
        self._closed = True
        if not self._thread.stopped:
            # ClientClosed: another thread has closed the client meanwhile, and with it the stream.
            with contextlib.suppress(ClientClosed):
                self._thread.call(self._stream.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next_batch(self) -> BatchT:
        """Wait for the next batch and return it. The caller holds ``_taking``.

        Raises StopIteration at the end of the stream. After an error of the stream, each call
        raises a new instance of this error.
        """
        if self._closed:
            raise ClientClosed
        # Not `call`: an interruption, such as KeyboardInterrupt, must neither end the stream nor
        # lose the batch that arrives meanwhile. The next call takes that batch.
        self._thread.result(self._thread.start(self._await_batch()))
        arrived = self._arrived[0]
        if isinstance(arrived, Exception):
            raise new_instance(arrived)
        self._arrived.popleft()
        if arrived is None:
            raise StopIteration
        return arrived

    async def _await_batch(self) -> None:
        """Wait until ``_arrived`` has an entry."""
        async with self._arriving:  # An interrupted call may still wait for the same batch.
            if self._arrived:
                return
            try:
                self._arrived.append(await anext(self._batches, None))
            except Exception as error:  # Not raised: the caller may have been interrupted.
                self._arrived.append(error)


class SyncStream(_BlockingStream[Sequence[Transaction[DataT_co]]], Generic[DataT_co]):
    """An iterator over transactions of one or several partitions.

    Each transaction is returned once, in order within its partition. Several threads may iterate:
    then each transaction is returned to one of them. An error of the stream is raised by every
    later call, too, so that each thread gets it.

    The stream is closed by `close`, at the end of a ``with`` block, and when its last transaction
    was returned. Leaving a ``for`` loop before the last transaction does not close the stream.
    """

    def __init__(self, thread: EventLoopThread, stream: LogStream[DataT_co]) -> None:
        super().__init__(thread, stream, stream.batches())
        self._buffered: deque[Transaction[DataT_co]] = deque()
        """The transactions of the last batch that were not returned yet."""

    def __iter__(self) -> Iterator[Transaction[DataT_co]]:
        return self

    def __next__(self) -> Transaction[DataT_co]:
        """Return the next transaction.

        Raises StopIteration at the end, and the errors of `waltz.LogStream`.
        """
        with self._taking:
            if not self._buffered:
                self._buffered.extend(self._next_batch())
            return self._buffered.popleft()

    def batches(self) -> Iterator[Sequence[Transaction[DataT_co]]]:
        """Return an iterator over lists of the transactions that have arrived. No list is empty."""
        # Not a generator, which would end with its first error, and refuse overlapping calls. The
        # iterator never ends by its second argument, because `_take_batch` never returns None.
        return iter(self._take_batch, None)

    def _take_batch(self) -> Sequence[Transaction[DataT_co]]:
        """Return the transactions that have arrived. Raises the errors of `__next__`."""
        with self._taking:
            # First return the rest of a batch of which `__next__` has returned a part.
            batch = list(self._buffered) or self._next_batch()
            self._buffered.clear()
            return batch


class SyncBatchStream(_BlockingStream[ColumnBatch]):
    """An iterator over batches of transactions as columns; see `waltz.LogClient.batches`.

    It is closed like a `SyncStream`, and its errors are raised in the same way.
    """

    def __init__(self, thread: EventLoopThread, stream: BatchStream) -> None:
        super().__init__(thread, stream, aiter(stream))

    def __iter__(self) -> Iterator[ColumnBatch]:
        return self

    def __next__(self) -> ColumnBatch:
        """Return the next batch. Raises StopIteration at the end, and the stream's errors."""
        with self._taking:
            return self._next_batch()
