"""`flush` of the client with callbacks, in unusual places.

It is refused where no context can end, instead of waiting.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.recording import Record, Recording, Say
from waltz.sync import WrongThread, opened
from waltz.sync.callbacks import CallbackClient, InCallback
from waltz.testing import SyncCluster

FORKED = """
import os
from tests.support.recording import Recording, Say
from waltz.sync import WrongProcess, opened
from waltz.sync.callbacks import CallbackClient
from waltz.testing import SyncCluster
with SyncCluster() as cluster, CallbackClient(opened(cluster.connect()), Recording()) as client:
    cluster.suspend_feed(0)
    client.submit(Say(Recording().record, "open"))
    child = os.fork()
    if child == 0:
        try:
            client.flush(5)
        except WrongProcess as error:
            os._exit(7 if str(os.getppid()) in str(error) else 1)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    cluster.resume_feed(0)
    client.flush(60)
print("the parent goes on")
"""

MAIN_HAS_ENDED = """
import threading
from tests.support.recording import Record, Recording, Say
from waltz.sync import opened
from waltz.sync.callbacks import CallbackClient
from waltz.testing import SyncCluster
cluster = SyncCluster().__enter__()
client = CallbackClient(opened(cluster.connect()), Recording())
record = Record()
def work():
    threading.main_thread().join()
    for number in range(3):
        client.submit(Say(record, "late", lock="a"))
        client.flush(60)
    print([event[0] for event in record.of("late")], flush=True)
threading.Thread(target=work).start()
"""


def test_flush_in_a_fork_is_refused_and_does_not_affect_the_client() -> None:
    ended = subprocess.run(
        # Python 3.12 and later warn of any fork of a process with threads.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the parent goes on\n", "")


def test_threads_submit_and_flush_after_the_main_thread_has_ended() -> None:
    """A ThreadPoolExecutor takes no work then: no context would end, and `flush` would hang.

    The client is not closed, as in a program whose threads work until they have nothing to do.
    """
    ended = subprocess.run(
        [sys.executable, "-c", MAIN_HAS_ENDED],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    events = str(["completion", "application"] * 3) + "\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, events, "")


@pytest.fixture
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster() as cluster:
        yield cluster


@pytest.fixture
def client(cluster: SyncCluster) -> Iterator[CallbackClient[bytes]]:
    with CallbackClient(opened(cluster.connect()), Recording()) as client:
        yield client


def test_flush_on_the_clients_own_thread_is_refused(
    cluster: SyncCluster, client: CallbackClient[bytes]
) -> None:
    cluster.suspend_feed(0)
    client.submit(Say(Recording().record, "open"))

    async def flush() -> None:
        client.flush(1)

    with pytest.raises(WrongThread, match="would never return"):
        client.log.thread.call(flush())
    cluster.resume_feed(0)
    client.flush(60)


def test_flush_of_a_closed_client_returns(
    cluster: SyncCluster, client: CallbackClient[bytes]
) -> None:
    cluster.suspend_feed(0)
    client.submit(Say(Recording().record, "ended by close"))
    client.close()
    client.flush(1)


@pytest.mark.parametrize("willing", [True, False])
def test_flush_in_execute_on_the_thread_that_submits_is_refused(
    client: CallbackClient[bytes], willing: bool
) -> None:
    """It would wait for the context that is executed."""
    record = Record()
    with pytest.raises(InCallback, match="flush was called in a callback"):
        client.submit(Say(record, "x", during=lambda: client.flush(1), willing=willing))
    assert record.of("x") == [("exception", "InCallback")]
    client.flush(60)  # The thread may wait again.


def test_flush_in_a_callback_on_the_thread_that_submits_is_refused(
    client: CallbackClient[bytes],
) -> None:
    refused: list[InCallback] = []

    class Flushing(Say):
        def on_completion(self, result: bool) -> None:
            # A context that is submitted here ends the refusal for itself only.
            client.submit(Say(self.record, "nested", willing=False))
            try:
                client.flush(1)
            except InCallback as error:
                refused.append(error)

    client.submit(Flushing(Record(), "x", willing=False))
    assert len(refused) == 1
    client.flush(60)


def test_submit_in_execute_does_not_wait_at_the_limit(cluster: SyncCluster) -> None:
    """The context that is executed takes the only place, and cannot end before."""
    record = Record()
    with CallbackClient(
        opened(cluster.connect()), Recording(), max_in_flight=1, submit_timeout=1.0
    ) as client:
        client.submit(Say(record, "outer", during=lambda: client.submit(Say(record, "inner"))))
        client.flush(60)
    assert record.of("inner") == record.of("outer") == [("completion", True), ("application",)]
