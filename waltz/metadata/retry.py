"""Repeating what got no answer from the store, and finding out what became of a write.

Effects: the store's, and waiting on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from typing import TypeVar

from waltz.metadata.store import (
    Connection,
    MetadataStore,
    NodeMissing,
    StoreUnavailable,
    VersionConflict,
)
from waltz.net.core.backoff import Backoff

_BACKOFF = Backoff(1.0, 8.0)
T = TypeVar("T")
log = logging.getLogger(__name__)


def retry_delays() -> Iterator[float]:
    """Return the seconds to wait before each repetition: 0.1, then 1, 2, 4, 8, 8, …

    The first delay is for a request that a reconnection has interrupted.
    """
    return chain((0.1,), _BACKOFF.delays())


@contextlib.contextmanager
def reconnections(store: MetadataStore) -> Iterator[asyncio.Event]:
    """Have an event, inside, that is set whenever the store has got a connection again."""
    reconnected = asyncio.Event()

    def on_connection(connection: Connection) -> None:
        if connection is Connection.CONNECTED:
            reconnected.set()

    forget = store.health.on_change(on_connection)
    try:
        yield reconnected
    finally:
        forget()


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait until ``event`` is set, or ``seconds`` have passed."""
    # Not wait_for, which up to Python 3.11 forgets a cancellation that comes with the event.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def until_answered(store: MetadataStore, operation: Callable[[], Awaitable[T]]) -> T:
    """Repeat ``operation``, which must bear it, for as long as it raises StoreUnavailable.

    It is repeated as soon as the connection is back, or after a delay if it was never gone. There
    is no limit: whoever wants one puts asyncio.timeout around it.
    """
    with reconnections(store) as reconnected:
        for delay in retry_delays():
            reconnected.clear()
            try:
                return await operation()
            except StoreUnavailable as problem:
                log.warning("%s; trying again within %g s", problem, delay)
                await wait_at_most(reconnected, delay)
    raise AssertionError("the delays never end")


async def compare_and_set(store: MetadataStore, path: str, data: bytes, version: int) -> int:
    """Write ``data`` if the node is at ``version``, whatever it takes; return the new version.

    An answer that was lost is made up for: if the node is one version on and holds ``data``, the
    write happened. So this is for data that means the same whoever wrote it, never for a counter.
    Raises VersionConflict, NodeMissing.
    """
    try:
        return await store.set(path, data, version)
    except StoreUnavailable:
        log.warning("no answer about a write of %s; looking for it", path)

    async def look_and_write() -> int:
        node = await store.get(path)
        if node is None:
            raise NodeMissing(path)
        if node.version == version:
            return await store.set(path, data, version)
        if node.version == version + 1 and node.data == data:
            return node.version
        raise VersionConflict(path, version)

    return await until_answered(store, look_and_write)
