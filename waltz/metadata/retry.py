"""Retry operations that ZooKeeper did not answer. Touches ZooKeeper and the event loop.

An answer may be lost after ZooKeeper has executed the operation. A read is simply repeated. A write
must not be repeated without a check. If ZooKeeper has executed the first compare-and-set, the
second one fails with a version conflict, and the caller would assume that another process has
written. So after a lost answer, `compare_and_set` first reads whether its write was executed
(test_write_whose_answer_was_lost_succeeds).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import chain
from typing import TypeVar

from waltz.metadata.store import (
    MetadataStore,
    Node,
    NodeMissing,
    OperationTimedOut,
    SessionState,
    StoreUnavailable,
    VersionConflict,
)
from waltz.net.core.backoff import Backoff

_BACKOFF = Backoff(1.0, 8.0)
"""The delays before the second retry and all later ones."""
T = TypeVar("T")
log = logging.getLogger(__name__)


def retry_delays() -> Iterator[float]:
    """Return the seconds to wait before each retry: 0.1, then 1, 2, 4, 8, 8, …

    The first delay is short, because a request that was interrupted by a reconnection can be sent
    again immediately.
    """
    return chain((0.1,), _BACKOFF.delays())


@contextlib.contextmanager
def reconnections(store: MetadataStore) -> Iterator[asyncio.Event]:
    """Yield an event that is set whenever the store's connection is open again."""
    reconnected = asyncio.Event()

    def on_state(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            reconnected.set()

    unsubscribe = store.health.on_change(on_state)
    try:
        yield reconnected
    finally:
        unsubscribe()


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait until ``event`` is set, or ``seconds`` have passed."""
    # Not asyncio.wait_for: up to Python 3.11 it ignores a cancellation of this task that arrives at
    # the same time as the event.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def until_answered(store: MetadataStore, operation: Callable[[], Awaitable[T]]) -> T:
    """Call ``operation`` until it does not raise StoreUnavailable; return its result.

    ZooKeeper may have executed a call that raised StoreUnavailable, so ``operation`` must do no
    harm if it is executed twice. The next call begins as soon as the store is connected again, and
    at the latest after a delay of `retry_delays`. The number of calls is not limited. A caller that
    needs a time limit uses asyncio.timeout.
    """
    with reconnections(store) as reconnected:
        for delay in retry_delays():
            reconnected.clear()
            try:
                return await operation()
            except StoreUnavailable as problem:
                log.warning("%s; retrying within %g s", problem, delay)
                await wait_at_most(reconnected, delay)
    raise AssertionError("the delays never end")


@contextlib.asynccontextmanager
async def answered_within(seconds: float | None) -> AsyncIterator[None]:
    """Limit the time of the ``async with`` block, which waits for ZooKeeper, to ``seconds``.

    None: no limit. After this time the block is cancelled, and OperationTimedOut is raised. A
    TimeoutError that the block itself raises is passed on.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise OperationTimedOut(f"ZooKeeper has not answered within {seconds:g} s") from None


async def compare_and_set(store: MetadataStore, path: str, data: bytes, version: int) -> int:
    """Write ``data`` if the node is at ``version``, retrying as needed; return the new version.

    After a lost answer, this function takes the write for executed if the node is at
    ``version + 1`` and contains ``data``. But another process may have written the same data at the
    same version. So use this function only where it does not matter which process wrote the data.
    For example, do not increment a counter with it, such as that of `Cluster.next_server_id`: two
    processes that write the same number would both use that number.

    Raises VersionConflict, NodeMissing.
    """
    # ANY_VERSION (-1) would overwrite a write that another process has made since the read.
    assert version >= 0, "a compare-and-set needs the version that was read"
    try:
        return await store.set(path, data, version)
    except StoreUnavailable:
        log.warning(
            "%s: no answer to a write; reading the node to see whether it was executed", path
        )

    async def read() -> Node:
        node = await store.get(path)
        if node is None:
            raise NodeMissing(path)
        return node

    async def check_and_write() -> int:
        node = await read()
        if node.version == version:
            try:
                return await store.set(path, data, version)
            except VersionConflict:
                # The node that was read above is out of date: after a reconnection, the server of
                # ZooKeeper may be a follower that has not seen the first write. Once it has refused
                # this write, it is up to date, so read the node again.
                node = await read()
        if node.version == version + 1 and node.data == data:
            return node.version
        raise VersionConflict(path, version)

    return await until_answered(store, check_and_write)
