"""Read, follow and change the access rules of a cluster. Touches ZooKeeper.

The znode ``access`` below the cluster's root exists only while the cluster has access rules
(spec/zookeeper.md section 10).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from waltz.metadata.cluster import Cluster, VersionedValue
from waltz.metadata.core.access_rules import AccessRules
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.optional_znodes import read_optional
from waltz.metadata.retry import compare_and_set, until_answered
from waltz.metadata.store import NodeExists, NodeMissing, OnChange, VersionConflict

log = logging.getLogger(__name__)


async def read_access_rules(
    cluster: Cluster, on_change: OnChange | None = None
) -> VersionedValue[AccessRules] | None:
    """Read the access rules; None if the cluster has none. Raises MalformedMetadata.

    ``on_change`` is called once after a change, also if the znode is created or deleted.
    """
    path, decode = cluster.paths.access, AccessRules.decode
    return await until_answered(
        cluster.store, lambda: read_optional(cluster.store, path, decode, on_change)
    )


async def follow_access_rules(cluster: Cluster) -> AsyncIterator[AccessRules | None]:
    """Yield the present access rules, and the new rules after each change (None: there are none).

    If several changes follow quickly, only the rules after the last change are yielded. After a
    lost connection, the same rules can be yielded again. Rules that cannot be decoded are logged
    and not yielded: the caller keeps the previous rules, so damaged data change no right.
    """
    changed = asyncio.Event()
    while True:
        changed.clear()
        try:
            rules = await read_access_rules(cluster, changed.set)
        except MalformedMetadata as problem:
            log.error(
                "access rules cannot be used: %s; keeping the previous rules; correct the znode",
                problem,
            )
        else:
            yield None if rules is None else rules.value
        await changed.wait()


async def change_access_rules(
    cluster: Cluster, change: Callable[[AccessRules], AccessRules]
) -> AccessRules:
    """Write what ``change`` returns for the present rules; return the new rules.

    For a cluster without access rules, ``change`` gets rules without grants. Nothing is written if
    the rules stay equal.

    Raises MalformedMetadata. Raises VersionConflict or NodeMissing if the admin lock was lost, and
    another process has written or deleted the rules meanwhile.
    """
    async with cluster.admin_lock:
        stored = await read_access_rules(cluster)
        before = AccessRules() if stored is None else stored.value
        after = change(before)
        if after == before:
            return after
        path, data = cluster.paths.access, after.encode()
        if stored is None:
            await until_answered(cluster.store, lambda: _create(cluster, data))
        else:
            await compare_and_set(cluster.store, path, data, stored.version)
        return after


async def delete_access_rules(cluster: Cluster) -> bool:
    """Delete the access rules, so that every request is allowed.

    Return whether there were rules.
    """
    path = cluster.paths.access
    async with cluster.admin_lock:
        node = await until_answered(cluster.store, lambda: cluster.store.get(path))
        if node is None:
            return False
        await until_answered(cluster.store, lambda: _delete(cluster, path))
        return True


async def _create(cluster: Cluster, data: bytes) -> None:
    """Create the znode with ``data``.

    If the znode exists with the same data, this succeeds: an earlier call may have created the
    znode, although its answer was lost. Raises VersionConflict if the znode exists with other data,
    or was deleted during this call.
    """
    path = cluster.paths.access
    try:
        await cluster.store.create(path, data)
    except NodeExists:
        node = await cluster.store.get(path)
        if node is None or node.data != data:
            # The version of a znode that has just been created is 0.
            raise VersionConflict(path, 0) from None


async def _delete(cluster: Cluster, path: str) -> None:
    """Delete the znode. A missing znode is no error: a call whose answer was lost deleted it."""
    try:
        await cluster.store.delete(path)
    except NodeMissing:
        return
