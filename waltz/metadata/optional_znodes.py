"""Read and write the znodes below the root that a cluster may lack. Touches ZooKeeper.

These znodes are extensions of this implementation: the access rules, what servers declare about
TLS, and the outside addresses (spec/zookeeper.md sections 10 to 12). Nothing here is retried after
a lost connection: callers use `waltz.metadata.retry`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from waltz.metadata.cluster import VersionedValue
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.store import (
    MetadataStore,
    NodeExists,
    NodeMissing,
    OnChange,
    VersionConflict,
)

T = TypeVar("T")


async def read_optional(
    store: MetadataStore,
    path: str,
    decode: Callable[[bytes], T],
    on_change: OnChange | None = None,
    *,
    remedy: str = "",
) -> VersionedValue[T] | None:
    """Read the znode at ``path``; None if it does not exist.

    ``on_change`` is called once after a change, also if the znode is created or deleted. Raises
    MalformedMetadata, whose text has the path and ``remedy``.
    """
    node = await store.get(path, on_change)
    if node is None:
        return None
    try:
        return VersionedValue(decode(node.data or b""), node.version)
    except MalformedMetadata as problem:
        reason = f"{problem.reason}; {remedy}" if remedy else problem.reason
        raise MalformedMetadata(f"{problem.kind} at {path} in ZooKeeper", reason) from problem


async def try_write(
    store: MetadataStore, path: str, data: bytes, stored: VersionedValue[Any] | None
) -> bool:
    """Write ``data`` if the znode has not changed since it was read; return whether it was written.

    ``stored`` is what the caller has read. None: the znode did not exist, and is created now.
    Raises NodeMissing if the parent, the root of the cluster, does not exist. Raises AccessDenied.
    """
    try:
        if stored is None:
            await store.create(path, data)
        else:
            await store.set(path, data, stored.version)
    except (NodeExists, VersionConflict):
        return False
    except NodeMissing:
        if stored is None:
            raise  # The root of the cluster is missing.
        return False  # The znode was deleted meanwhile.
    return True
