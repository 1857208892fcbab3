"""Run the work of a verb: event loop, time limit, connection to ZooKeeper, exit status.

Touches ZooKeeper and standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

import typer

from waltz.admin import CopyFailed, ServerUnreachable
from waltz.cli.cluster_options import Target
from waltz.cli.log.archive import BadArchive
from waltz.cli.suggested import complete, suggested
from waltz.client import AppendUncertain, WaltzError
from waltz.client.deadlines import TimeLimit
from waltz.client.outside import network_for
from waltz.local import (
    ClusterRunning,
    ClusterUnhealthy,
    ControlFailed,
    NoFreePorts,
    NotRunning,
    PlanError,
    ProcessFailed,
    UnknownProcess,
    ZooKeeperNotStarted,
)
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.paths import BadRoot
from waltz.metadata.core.storage_maps import ChangeRefused
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.lifecycle import ClusterExists, ClusterMismatch
from waltz.metadata.retry import answered_within
from waltz.metadata.store import StoreError
from waltz.metadata.transport import tls_of_cluster
from waltz.net import ConnectionLost, DialFailed, Network, RemoteFailure, TlsConfig, TlsConfigError
from waltz.protocol import UnsupportedByPeer
from waltz.runtime.extras import ExtraMissing
from waltz.runtime.profiles import BadProfile

T = TypeVar("T")

_SESSION_TIMEOUT_MS = 30_000
"""The timeout of a verb's session with ZooKeeper."""
CONNECT_SECONDS = 10.0
"""How long a verb waits for a session with ZooKeeper."""
USUAL_SECONDS = 60.0
"""The default time limit of a verb."""
SERVER_WAITS = 4
"""How often a query of a server may wait for the timeout of an answer.

It waits in the handshake and in each of three requests.
"""


class Failed(Exception):
    """The verb failed; the text says why."""


_EXPECTED = (
    BadArchive,
    BadProfile,
    BadRoot,
    ClusterExists,
    ClusterMismatch,
    ClusterRunning,
    ClusterUnhealthy,
    ConnectionLost,
    CopyFailed,
    DialFailed,
    ExtraMissing,
    Failed,
    MalformedMetadata,
    NoCluster,
    NoFreePorts,
    NotRunning,
    ControlFailed,
    PlanError,
    ProcessFailed,
    ChangeRefused,
    RemoteFailure,
    ServerUnreachable,
    StoreError,
    TlsConfigError,
    UnknownProcess,
    UnsupportedByPeer,
    WaltzError,
    ZooKeeperNotStarted,
)
"""Errors that the user can understand and act on; all others are shown with their traceback."""


def run(work: Coroutine[Any, Any, T], seconds: float | None = USUAL_SECONDS) -> T:
    """Run ``work`` on an event loop and return its result.

    ``work`` fails if it takes longer than ``seconds`` (None: no limit). This and other expected
    errors are printed as one line, and end the program with status 1 (`exit_on_expected_error`).
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    # These loggers report lost connections, which the errors of the verb describe better.
    for name in ("kazoo", "waltz.metadata.kazoo_log"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with exit_on_expected_error():
        return asyncio.run(_within(work, seconds))


@contextlib.contextmanager
def exit_on_expected_error() -> Iterator[None]:
    """If the block raises an expected error, print it as one line, and end with status 1.

    Expected errors are those of `_EXPECTED`, and an OSError that names a file. All other errors are
    raised unchanged.
    """
    try:
        yield
    except _EXPECTED as error:
        print(f"waltz: {error_text(error)}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(1) from None
    except OSError as error:
        if error.filename is None:
            raise
        print(f"waltz: {error.filename}: {error.strerror}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(1) from None


def error_text(error: BaseException) -> str:
    """Return the text that the command line shows for an expected error.

    If the text ends with a command to type, the options that name the cluster are added
    (`suggested.complete`). For an append in doubt, the text names the commands by which the user
    finds its outcome. The ``str`` of this error names methods of the client library instead.
    """
    if not isinstance(error, AppendUncertain):
        return complete(str(error))
    find_command = suggested(f"waltz log find {error.req_id}")
    return complete(
        f"{error.summary}; before you append it again, find its outcome with: {find_command}; "
        "find the cause with: waltz doctor"
    )


@contextlib.asynccontextmanager
async def open_cluster(
    target: Target, connect_seconds: float = CONNECT_SECONDS
) -> AsyncIterator[Cluster]:
    """Connect to the ZooKeeper of ``target`` while the context is open; yield its cluster.

    ``target`` is the cluster that the verb works on, with the ways to connect. Raises StoreError if
    there is no session with ZooKeeper after ``connect_seconds``, or if the credentials for
    ZooKeeper cannot be used; TlsConfigError for unusable TLS files. Whether the cluster exists is
    not checked.
    """
    store = await KazooStore.connect(
        target.zookeeper,
        _SESSION_TIMEOUT_MS,
        target.zookeeper_access,
        connect_timeout_s=connect_seconds,
    )
    try:
        yield Cluster(store, target.root)
    finally:
        await store.close()


async def tls_of(target: Target, cluster: Cluster) -> TlsConfig:
    """Return the TLS settings for the ports of ``cluster``, the cluster of ``target``.

    If ``target`` does not say whether to use TLS, the servers' declaration in ZooKeeper decides. It
    is valid for the ports of storages, too, because a server uses the same settings for its clients
    and for storages. Raises MalformedMetadata, and OperationTimedOut if ZooKeeper does not answer.
    """
    async with answered_within(CONNECT_SECONDS):
        return await tls_of_cluster(cluster, target.tls)


def network_of(target: Target, cluster: Cluster) -> Network:
    """Return the network for the ports of ``cluster``, the cluster of ``target``."""
    return network_for(cluster, target.access)


async def _within(work: Coroutine[Any, Any, T], seconds: float | None) -> T:
    """Await ``work``; raise Failed if it takes longer than ``seconds``."""

    def late_error() -> Failed:
        return Failed(f"the command did not finish within {seconds:g} s and was stopped")

    # Not `asyncio.timeout`: it raises TimeoutError, which ``work`` may also raise for another
    # reason, before this limit has passed.
    async with TimeLimit(seconds, late_error):
        return await work
