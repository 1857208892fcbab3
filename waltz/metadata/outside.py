"""Read, follow and change the outside addresses of a cluster. Touches ZooKeeper.

The znode ``outside`` below the cluster's root exists only if the Kubernetes operator, or an
administrator, has opened access from outside the network of the cluster (spec/zookeeper.md section
12).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable

from waltz.metadata.cluster import Cluster, VersionedValue
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.outside_addresses import OutsideAddresses
from waltz.metadata.optional_znodes import read_optional, try_write
from waltz.metadata.retry import until_answered
from waltz.metadata.store import NodeMissing, OnChange

log = logging.getLogger(__name__)


async def read_outside_addresses(
    cluster: Cluster, on_change: OnChange | None = None
) -> VersionedValue[OutsideAddresses] | None:
    """Read the outside addresses; None if the cluster has none. Raises MalformedMetadata.

    ``on_change`` is called once after a change, also if the znode is created or deleted.
    """
    return await until_answered(cluster.store, lambda: _read_once(cluster, on_change))


async def follow_outside_addresses(
    cluster: Cluster,
) -> AsyncGenerator[OutsideAddresses | None, None]:
    """Yield the present outside addresses, and the new ones after each change (None: none exist).

    If several changes follow quickly, only the addresses after the last change are yielded. After a
    lost connection, the same addresses can be yielded again. Data that cannot be decoded are logged
    and not yielded: the caller keeps the previous addresses, which may still be right.
    """
    changed = asyncio.Event()
    while True:
        changed.clear()
        try:
            stored = await read_outside_addresses(cluster, changed.set)
        except MalformedMetadata as problem:
            log.error(
                "outside addresses cannot be used: %s; keeping the previous ones; correct the "
                "znode",
                problem,
            )
        else:
            yield None if stored is None else stored.value
        await changed.wait()


async def change_outside_addresses(
    cluster: Cluster, change: Callable[[OutsideAddresses], OutsideAddresses]
) -> OutsideAddresses:
    """Write what ``change`` returns for the present addresses; return the new addresses.

    For a cluster without the znode, ``change`` gets no addresses. Nothing is written if the
    addresses stay equal. ``change`` is called again if another process has written meanwhile, or if
    the answer to a write is lost. So ``change`` may get its own result, and must then return an
    equal one.

    Raises MalformedMetadata if the znode cannot be decoded; it stays as it is, because a newer
    version of Waltz may have written it. Raises AccessDenied without the permission to write,
    NodeMissing if there is no cluster, and what ``change`` raises.
    """

    async def try_once() -> OutsideAddresses | None:
        return await _try_change(cluster, change)

    while True:
        written = await until_answered(cluster.store, try_once)
        if written is not None:
            return written


async def delete_outside_addresses(cluster: Cluster) -> bool:
    """Delete the znode with the outside addresses; return whether there was one.

    Clients that use outside addresses cannot connect any more; their open connections stay.
    """
    path = cluster.paths.outside
    if await until_answered(cluster.store, lambda: cluster.store.get(path)) is None:
        return False

    async def delete() -> None:
        # A missing node was deleted by another process, or by a call whose answer was lost.
        with contextlib.suppress(NodeMissing):
            await cluster.store.delete(path)

    await until_answered(cluster.store, delete)
    return True


async def _try_change(
    cluster: Cluster, change: Callable[[OutsideAddresses], OutsideAddresses]
) -> OutsideAddresses | None:
    """Try to change the addresses once; return None if the znode changed meanwhile."""
    stored = await _read_once(cluster)
    before = OutsideAddresses() if stored is None else stored.value
    after = change(before)
    if after == before:
        return after
    is_written = await try_write(cluster.store, cluster.paths.outside, after.encode(), stored)
    return after if is_written else None


async def _read_once(
    cluster: Cluster, on_change: OnChange | None = None
) -> VersionedValue[OutsideAddresses] | None:
    """Read the outside addresses, without retries."""
    return await read_optional(
        cluster.store,
        cluster.paths.outside,
        OutsideAddresses.decode,
        on_change,
        remedy="correct the znode, or delete it with: waltz cluster outside remove --all",
    )
