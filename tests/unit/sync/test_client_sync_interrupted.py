"""Interrupted calls of the blocking client: a stream goes on, and other work is cancelled."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import waltz
from waltz.client import BatchStream, ColumnBatch
from waltz.protocol.records import RecordBatch
from waltz.sync import SyncClient, opened
from waltz.sync.event_loop import EventLoopThread
from waltz.sync.stream import SyncBatchStream
from waltz.testing import SyncCluster

Wait = Callable[["concurrent.futures.Future[Any]"], object]


class RaisedByHandler(Exception):
    """An error that is raised by the handler of a signal."""


@pytest.fixture
def client() -> Iterator[SyncClient[bytes]]:
    with SyncCluster(partitions=1) as cluster, opened(cluster.connect()) as client:
        yield client


@pytest.fixture
def thread() -> Iterator[EventLoopThread]:
    thread = EventLoopThread("interrupted")
    yield thread
    thread.stop()


def interrupt(
    thread: EventLoopThread,
    call: Callable[[], object],
    error: type[BaseException],
    wait: Wait = lambda _: None,
) -> None:
    """Make ``call``, and raise ``error`` in its wait for the thread, after ``wait``."""

    def result(future: concurrent.futures.Future[Any]) -> Any:
        wait(future)
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thread, "result", result)
        with pytest.raises(error):
            call()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RaisedByHandler])
def test_interrupted_call_whatever_is_raised_cancels_its_work(
    thread: EventLoopThread, error: type[BaseException]
) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    interrupt(thread, lambda: thread.call(work()), error, lambda _: begun.wait(60))
    thread.call(asyncio.sleep(0))
    assert cancelled.is_set()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RaisedByHandler])
def test_interrupted_wait_for_a_stream_does_not_end_the_stream(
    client: SyncClient[bytes], error: type[BaseException]
) -> None:
    with client.stream({0: -1}, data=True) as stream:
        interrupt(client.thread, lambda: next(stream), error)
        interrupt(client.thread, lambda: next(stream), error)
        client.append(0, b"later")
        assert next(stream).data == b"later"


def test_batch_that_arrives_during_an_interruption_is_returned_by_the_next_call(
    client: SyncClient[bytes],
) -> None:
    client.append(0, b"first")
    with client.stream({0: -1}, data=True) as stream:
        interrupt(
            client.thread,
            lambda: next(stream),
            KeyboardInterrupt,
            lambda future: concurrent.futures.wait([future], 60),
        )
        client.append(0, b"second")
        assert [next(stream).data, next(stream).data] == [b"first", b"second"]


@pytest.mark.parametrize("error", [StopIteration, concurrent.futures.CancelledError])
def test_submit_whose_build_raises_an_error_of_futures_raises_runtime_error(
    client: SyncClient[bytes], error: type[Exception]
) -> None:
    def build(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
        raise error

    with pytest.raises(RuntimeError, match=f"build raised {error.__name__}") as raised:
        client.submit(0, build, timeout=1)
    assert isinstance(raised.value.__cause__, error)
    assert client.append(0, b"goes on") == 0


class FailingStream(BatchStream):
    """A stream that fails, and has ended then."""

    def __init__(self) -> None:
        pass

    async def __aiter__(self) -> AsyncIterator[ColumnBatch]:
        for failed in (True,):
            if failed:
                raise ZeroDivisionError
            yield ColumnBatch(0, RecordBatch.of([]))


def test_error_during_an_interruption_is_raised_by_the_next_call(thread: EventLoopThread) -> None:
    stream = SyncBatchStream(thread, FailingStream())
    interrupt(
        thread,
        lambda: next(stream),
        KeyboardInterrupt,
        lambda future: concurrent.futures.wait([future], 60),
    )
    with pytest.raises(ZeroDivisionError):
        next(stream)


def test_error_of_a_batch_stream_is_raised_by_every_call_with_its_traceback(
    thread: EventLoopThread,
) -> None:
    stream, raised = SyncBatchStream(thread, FailingStream()), []
    for _ in range(2):
        with pytest.raises(ZeroDivisionError) as error:
            next(stream)
        raised.append(error)
    assert raised[0].value is not raised[1].value
    assert [each.traceback[-1].name for each in raised] == ["__aiter__"] * 2
