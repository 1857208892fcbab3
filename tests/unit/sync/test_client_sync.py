"""The blocking client on a cluster in one process."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import waltz
from waltz.client.submitting import Build
from waltz.sync import SyncClient, WrongProcess, WrongThread, opened
from waltz.sync.event_loop import EventLoopThread
from waltz.sync.submitting import submit
from waltz.testing import SyncCluster


@pytest.fixture
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster(partitions=2) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: SyncCluster) -> Iterator[SyncClient[bytes]]:
    with opened(cluster.connect()) as client:
        yield client


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Run ``work`` on a thread; add its result or its error to the list."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def test_sync_client_has_the_methods_of_the_asyncio_client(client: SyncClient[bytes]) -> None:
    assert client.num_partitions == 2
    assert client.append(0, b"a", header=3) == 0
    assert client.append(0, b"b") == 1
    assert client.read(0, 1) == b"b"
    assert client.high_water_mark(0) == 1
    assert client.mount(0) == 1
    client.flush()
    assert client.pending == 0
    assert [(t.id, t.header, t.data) for t in client.stream(0, until=1, data=True)] == [
        (0, 3, b"a"),
        (1, 0, b"b"),
    ]
    batches = list(client.stream({0: -1}, until=1).batches())
    assert [t.id for batch in batches for t in batch] == [0, 1]
    stream = client.stream({0: -1}, until=1)
    assert next(stream).id == 0
    rest = stream.batches()
    assert [t.id for t in next(rest)] == [1]
    assert next(rest, None) is None, "no transaction is in two batches"
    assert client.metrics()["gauges"]["waltz-client.client-id"]["value"] == client.client_id


def test_sync_client_raises_the_same_errors(client: SyncClient[bytes]) -> None:
    with pytest.raises(waltz.PartitionUnknown):
        client.append(7, b"x")
    with pytest.raises(waltz.TransactionNotFound):
        client.read(0, 5)
    row = [waltz.Lock("row", 1)]
    client.append(0, b"x", write_locks=row)
    with pytest.raises(waltz.LockFailed):
        client.append(0, b"y", write_locks=row, mark=-1)


READS: list[Callable[[SyncClient[Any]], Iterator[Any]]] = [
    lambda client: client.stream(0, until=1, data=True),
    lambda client: client.stream(0, until=1, data=True).batches(),
]


@pytest.mark.parametrize("read", READS)
def test_error_of_a_stream_is_raised_by_every_call_on_every_thread(
    cluster: SyncCluster,
    client: SyncClient[bytes],
    read: Callable[[SyncClient[Any]], Iterator[Any]],
) -> None:
    """All threads but one took the error for the end of the log, and a range for complete."""
    for data in (b"not json", b"2"):
        client.append(0, data)
    with opened(cluster.connect(serializer=waltz.JsonSerializer())) as reader:
        stream = read(reader)
        threads = [in_thread(lambda: list(stream)) for _ in range(3)]
        for thread, _ in threads:
            thread.join(60)
        raised = [result for _, results in threads for result in results]
        assert [type(error) for error in raised] == [waltz.DataUnreadable] * 3
        assert len({id(error) for error in raised}) == 3, "each thread has its own traceback"
        with pytest.raises(waltz.DataUnreadable):
            next(stream)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt also in a process that was started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("attempt", range(50))
def test_interrupted_call_cancels_its_work(attempt: int) -> None:
    """An append must not go on after Ctrl-C, which can come as soon as its work has begun."""
    cancelled = threading.Event()
    loop = EventLoopThread("interrupted")
    caller = threading.main_thread().ident
    assert caller is not None

    async def work() -> None:
        try:
            while True:
                signal.pthread_kill(caller, signal.SIGINT)
                # Python does not end a wait for a signal that came just before the wait.
                await asyncio.sleep(5)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    try:
        with pytest.raises(KeyboardInterrupt):
            loop.call(work())
        # The loop does what it was asked in this order: without a cancellation before it, this
        # call returns while the work still waits.
        loop.call(asyncio.sleep(0))
        assert cancelled.is_set(), f"attempt {attempt}"
    finally:
        loop.stop()


def test_interrupted_submit_cancels_its_work() -> None:
    cancelled = threading.Event()
    loop = EventLoopThread("interrupted")

    async def submit_async(build: Build[bytes]) -> int | None:
        try:
            draft = build(waltz.Attempt(0, 1, -1))
            assert inspect.isawaitable(draft)
            await draft
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return None

    def interrupted(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            submit(loop, interrupted, submit_async)
        loop.call(asyncio.sleep(0))
        assert cancelled.is_set()
    finally:
        loop.stop()


def test_build_runs_on_the_calling_thread_and_may_use_the_client(
    client: SyncClient[bytes],
) -> None:
    threads = []

    def build(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
        threads.append(threading.current_thread())
        if attempt.number == 1:
            client.append(0, b"in between", write_locks=[waltz.Lock("row", 1)])
        seen = list(client.stream(0, until=attempt.mark))
        return waltz.Draft(b"%d" % len(seen), write_locks=[waltz.Lock("row", 1)])

    client.append(0, b"first")
    assert client.submit(0, build) == 2
    assert client.read(0, 2) == b"2"
    assert threads == [threading.current_thread()] * 2
    assert client.submit(0, lambda _: None) is None


def test_submit_raises_the_error_of_build(client: SyncClient[bytes]) -> None:
    def build(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.submit(0, build)
    with pytest.raises(KeyboardInterrupt):
        client.submit(0, lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    assert client.append(0, b"goes on") == 0


def test_submit_timeout_during_build_is_raised(client: SyncClient[bytes]) -> None:
    entered = threading.Event()

    def build(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
        entered.wait(0.2)
        return waltz.Draft(b"late")

    with pytest.raises(waltz.ClusterUnreachable, match="build did not return"):
        client.submit(0, build, timeout=0.02)


def test_threads_share_a_client_and_a_stream(client: SyncClient[bytes]) -> None:
    count = 50
    workers = [in_thread(lambda: [client.append(0, b"x") for _ in range(count)]) for _ in range(4)]
    for thread, _ in workers:
        thread.join(60)
    ids = [i for _, results in workers for i in results[0]]
    assert sorted(ids) == list(range(4 * count))
    stream = client.stream(0, until=4 * count - 1)
    takers = [in_thread(lambda: [t.id for t in stream]) for _ in range(3)]
    for thread, _ in takers:
        thread.join(60)
    assert sorted(i for _, results in takers for i in results[0]) == list(range(4 * count))


def test_close_wakes_waiting_threads(cluster: SyncCluster) -> None:
    client = opened(cluster.connect())
    stream = client.stream(0, data=True)
    client.append(0, b"x")
    assert next(stream).id == 0
    waiting, results = in_thread(lambda: next(stream))
    other, others = in_thread(client.close)
    client.close()
    waiting.join(60)
    other.join(60)
    assert isinstance(results[0], waltz.ClientClosed)
    assert others == [None]
    with pytest.raises(waltz.ClientClosed):
        client.append(0, b"x")
    with pytest.raises(waltz.ClientClosed):
        next(stream)
    stream.close()


def test_closed_stream_raises_client_closed(client: SyncClient[bytes]) -> None:
    with client.stream(0) as stream:
        waiting, results = in_thread(lambda: next(stream))
    waiting.join(60)
    assert isinstance(results[0], waltz.ClientClosed)


def test_call_on_the_clients_own_thread_is_refused(client: SyncClient[bytes]) -> None:
    async def call() -> None:
        client.append(0, b"x")

    with pytest.raises(WrongThread, match="would never return"):
        client._thread.call(call())


def test_failed_opening_leaves_no_thread() -> None:
    before = set(threading.enumerate())

    async def fails() -> waltz.LogClient[bytes]:
        raise waltz.ClusterNotFound("nothing there")

    with pytest.raises(waltz.ClusterNotFound):
        opened(fails())
    assert set(threading.enumerate()) <= before


FORKED = """
import os, sys
from waltz.sync import WrongProcess, opened
from waltz.testing import SyncCluster
cluster = SyncCluster()
cluster.start()
client = opened(cluster.connect())
client.append(0, b"before")
child = os.fork()
if child == 0:
    try:
        client.append(0, b"in the child")
    except WrongProcess as error:
        assert str(os.getppid()) in str(error)
        sys.exit(7)
    sys.exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert client.append(0, b"after") == 1
print("the parent goes on")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # Python 3.12 and later warn of any fork of a process with threads.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_fork_cannot_use_the_client_and_does_not_affect_it() -> None:
    ended = run(FORKED)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the parent goes on\n", "")


def test_process_ends_without_closing_its_client() -> None:
    ended = run(
        "from waltz.sync import opened\n"
        "from waltz.testing import SyncCluster\n"
        "cluster = SyncCluster()\n"
        "cluster.start()\n"
        "client = opened(cluster.connect())\n"
        "stream = client.stream(0)\n"
        "client.append(0, b'x')\n"
        "next(stream)\n"
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_wrong_process_error_names_the_opening_process() -> None:
    assert str(os.getpid()) in str(WrongProcess(os.getpid()))


async def test_sync_client_works_in_a_thread_of_an_asyncio_program(
    cluster: SyncCluster,
) -> None:
    def work() -> int:
        with opened(cluster.connect()) as client:
            return client.append(0, b"x")

    assert await asyncio.to_thread(work) == 0
