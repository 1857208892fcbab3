"""Create and delete the znodes of a cluster. Touches ZooKeeper.

If ZooKeeper does not answer, the creation or deletion fails: nothing is retried, except taking and
releasing the admin lock. The cluster may then be incomplete. The user deletes it, and if needed
creates it again. Source: spec/zookeeper.md section 1.
"""

from __future__ import annotations

import uuid

from waltz.metadata.admin_lock import AdminLock
from waltz.metadata.core.access_rules import AccessRules
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import UNASSIGNED, ClusterParams, StoreParams, encode_id
from waltz.metadata.core.paths import Paths
from waltz.metadata.core.storage_maps import StorageMaps
from waltz.metadata.store import (
    MetadataStore,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    StoreError,
    create_ancestors,
)


class ClusterExists(Exception):
    """A cluster cannot be created: its root exists already. Nothing was changed."""


class ClusterMismatch(Exception):
    """A cluster cannot be deleted: another one, or none, is at the root. Nothing was changed."""


class DeletionIncomplete(StoreError):
    """A cluster is deleted in part. Deleting it again continues."""


_DELETION_ATTEMPTS = 5
"""The most attempts of a deletion while other processes add nodes."""


async def create_cluster(
    store: MetadataStore,
    root: str,
    name: str,
    num_partitions: int,
    *,
    key: uuid.UUID,
    storages: StorageMaps | None = None,
    last_client_id: int = 0,
    last_server_id: int = 0,
    access: AccessRules | None = None,
) -> None:
    """Create every znode of a new cluster.

    ``key`` must be random: storages use it to refuse the servers of another cluster. ``storages``
    are the storages that the cluster begins with (see `storage_maps.assign_everything`); None: no
    storages.

    The ids of clients and servers begin after ``last_client_id`` and ``last_server_id``. A cluster
    that is restored needs these: its logs already have transactions of clients with older ids.
    ``access`` are its first access rules; None: every request is allowed.

    Raises ClusterExists if the root exists already, BadRoot if the root is no valid path, or
    ValueError if ``num_partitions`` is below 1.
    """
    if num_partitions < 1:
        raise ValueError(f"a cluster needs at least one partition, not {num_partitions}")
    paths = Paths(root)
    maps = storages or StorageMaps.empty()
    await create_ancestors(store, root)
    # As Waltz 0.13.2 does, create the root without data first, then set its data.
    try:
        await store.create(root, None)
    except NodeExists as problem:
        raise ClusterExists(await _root_exists_text(store, root)) from problem
    await store.set(root, ClusterParams(name, num_partitions).encode(), 0)
    await store.create(paths.server_descriptors, UNASSIGNED.encode())
    await store.create(paths.ids, None)
    # Each client takes an id here, also a client without ZooKeeper credentials.
    await store.create(paths.client_id, encode_id(last_client_id), anyone_may_write=True)
    await store.create(paths.server_id, encode_id(last_server_id))
    if access is not None:
        # Write the rules before `paths.store` gets its data, without which no server starts. So
        # even after an interrupted creation, no server runs without the rules.
        await store.create(paths.access, access.encode())
    # The node of the lock is a child of `paths.store`. So `paths.store` is created first, without
    # data, and gets its data under the lock.
    lock = AdminLock(store, paths.admin_lock)
    await store.create(paths.store, None)
    await _set_first(store, lock, paths.store, StoreParams(key, num_partitions).encode())
    await store.create(paths.partitions, None)
    # As Waltz 0.13.2 does, create each of these without data, then set its data under the lock.
    for path, data in (
        (paths.group, maps.groups.encode()),
        (paths.assignment, maps.assignments.encode()),
        (paths.connection, maps.connections.encode()),
    ):
        await store.create(path, None)
        await _set_first(store, lock, path, data)


async def delete_cluster(
    store: MetadataStore, root: str, name: str, *, dry_run: bool = False
) -> None:
    """Delete the root and everything below it. The nodes above the root stay.

    ``name`` must be the name of the cluster, so that a mistyped root does not delete another
    cluster. There is one exception: a creation that was interrupted before the root got its data
    leaves a root with neither data nor children. Such a root is deleted, whatever ``name`` is. With
    ``dry_run``, the checks are made, and nothing is deleted.

    The root is deleted last, because it has the name of the cluster: an interrupted deletion can be
    repeated with the same name. The counters of ids are deleted just before the root: as long as
    other nodes of the cluster exist, no process gets an id that was used before.

    Raises ClusterMismatch. Raises DeletionIncomplete if other processes add nodes all the time.
    """
    paths = Paths(root)
    node = await store.get(root)
    if node is None:
        raise ClusterMismatch(f"There is no cluster at {root} in ZooKeeper; nothing was deleted.")
    await _check_name(store, root, node.data, name)
    if dry_run:
        return
    for _ in range(_DELETION_ATTEMPTS):
        try:
            await _delete_tree(store, paths.root, last_child=paths.ids)
        except NodeNotEmpty:
            continue  # Another process has added a node meanwhile.
        return
    raise DeletionIncomplete(
        f"The cluster at {root} in ZooKeeper is deleted in part: other processes add nodes to it. "
        "Stop its servers, and repeat the same command."
    )


async def _check_name(store: MetadataStore, root: str, data: bytes | None, name: str) -> None:
    """Raise ClusterMismatch if a deletion of the cluster ``name`` must not delete ``root``.

    ``data`` are the data of the root; None: the root has no data.
    """
    if data is not None:
        try:
            stored_name = ClusterParams.decode(data).name
        except MalformedMetadata as problem:
            raise ClusterMismatch(
                f"What is at {root} in ZooKeeper is not a Waltz cluster ({problem.reason}); "
                "nothing was deleted."
            ) from problem
        if stored_name != name:
            raise ClusterMismatch(
                f"The cluster at {root} in ZooKeeper is called {stored_name!r}, not {name!r}; "
                "nothing was deleted."
            )
    elif (await store.children(root)).names:
        raise ClusterMismatch(
            f"What is at {root} in ZooKeeper is not a Waltz cluster; nothing was deleted."
        )


async def _set_first(store: MetadataStore, lock: AdminLock, path: str, data: bytes) -> None:
    """Set the data of a new node under the admin lock; refuse a node that has data already."""
    async with lock:
        node = await store.get(path)
        if node is None or node.data is not None:
            raise StoreError(
                f"{path} was changed by another process during the creation of the cluster; "
                "delete the incomplete cluster, and create it again"
            )
        await store.set(path, data, node.version)


async def _root_exists_text(store: MetadataStore, root: str) -> str:
    """Return the text of ClusterExists, which says what is at ``root``."""
    node = await store.get(root)
    data = None if node is None else node.data
    try:
        name = ClusterParams.decode(data or b"").name
    except MalformedMetadata:
        return (
            f"{root} exists already in ZooKeeper, and is not a Waltz cluster; choose another root"
        )
    return f"the cluster {name!r} exists already at {root} in ZooKeeper; choose another root"


async def _delete_tree(store: MetadataStore, path: str, last_child: str = "") -> None:
    """Delete the node at ``path`` and all nodes below it.

    ``last_child`` is the path of the child that is deleted after the other children, "" if their
    order does not matter. A node that another process has deleted meanwhile is no error.
    """
    try:
        children = [f"{path}/{name}" for name in (await store.children(path)).names]
        for child in children:
            if child != last_child:
                await _delete_tree(store, child)
        if last_child in children:
            await _delete_tree(store, last_child)
        await store.delete(path)
    except NodeMissing:
        return
