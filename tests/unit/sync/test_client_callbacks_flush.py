"""`flush` of the client with callbacks: refused where no context can end, instead of waiting."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.recording import Recording, Say
from waltz.sync import WrongThread, opened
from waltz.sync.callbacks import CallbackClient
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
