"""The threads of the client with callbacks: what they keep in memory, and how they end."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from tests.support.eventually import eventually
from waltz.client import ClientClosed
from waltz.sync.callbacks.workers import Workers

EXIT_DURING_A_CALL = """
import atexit, threading, time
from tests.support.recording import Record, Recording, Say
from waltz.sync import opened
from waltz.sync.callbacks import CallbackClient
from waltz.testing import SyncCluster
applying, exits = threading.Event(), threading.Event()
def before(transaction):
    applying.set()
    assert exits.wait(60)
    time.sleep(0.3)
    print("applied", flush=True)
cluster = SyncCluster().__enter__()
client = CallbackClient(opened(cluster.connect()), Recording(before=before))
atexit.register(exits.set)
client.submit(Say(Record(), "x"))
assert applying.wait(60)
"""


def test_exit_waits_for_the_transaction_that_is_applied() -> None:
    """A daemon thread ends anywhere in its work when the interpreter ends, also in a library."""
    ended = subprocess.run(
        [sys.executable, "-c", EXIT_DURING_A_CALL],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "applied\n", "")


async def test_workers_that_are_shut_down_refuse_work() -> None:
    """No thread would take it, and the caller would wait forever."""
    workers = Workers(1, 1)
    workers.shut_down()
    for call in (workers.apply, workers.retry):
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(call(int), 20)


class Batch:
    """Stands for the transactions of a call."""

    def succeed(self) -> None:
        pass

    def fail(self) -> None:
        raise ValueError("bad")


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("fails", [False, True])
async def test_ended_call_leaves_nothing_in_memory(fails: bool) -> None:
    """A partition without new transactions would keep its last batch for long."""
    workers = Workers(1, 1)
    batch = Batch()
    freed = weakref.ref(batch)
    try:
        await workers.apply(batch.fail if fails else batch.succeed)
    except ValueError:
        assert fails
    del batch
    await eventually(lambda: freed() is None)
    workers.shut_down()


async def test_call_that_is_cancelled_before_a_thread_takes_it_is_not_run() -> None:
    workers = Workers(1, 1)
    release = asyncio.Event()
    loop = asyncio.get_running_loop()
    ran: list[str] = []

    def occupy() -> None:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(60)

    occupying = asyncio.create_task(workers.apply(occupy))
    cancelled = asyncio.create_task(workers.apply(ran.append, "cancelled"))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    release.set()
    await occupying
    await workers.apply(ran.append, "next")
    assert ran == ["next"]
    workers.shut_down()
