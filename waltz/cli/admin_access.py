"""Connect verbs to the admin ports of storages. Touches ZooKeeper and the network.

A storage has two ports: servers append and read through one, and commands and the operator manage
replicas through the other, the admin port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from waltz.admin import StorageAdmin
from waltz.admin.core.steps import partitions_text
from waltz.cli.running import Failed
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.storage_maps import ChangeRefused, StorageMaps
from waltz.net import TCP, Network, TlsConfig

STORAGE_ANSWER_SECONDS = 10.0
"""The time limit for one action at a storage: a connection, a query, or a step of a change."""


async def open_admin(
    cluster: Cluster,
    maps: StorageMaps,
    storage: str,
    tls: TlsConfig,
    seconds: float = STORAGE_ANSWER_SECONDS,
    *,
    network: Network = TCP,
) -> StorageAdmin:
    """Connect to the admin port of ``storage``; ``maps`` are the storages of ``cluster``.

    Raises ChangeRefused if the storage is not in ``maps``, Failed if it does not answer within
    ``seconds``, DialFailed if there is no connection, and RemoteFailure if the storage belongs to
    another cluster. Raises StoreError, NoCluster or MalformedMetadata if the key of the cluster
    cannot be read from ZooKeeper.
    """
    port = maps.connections.admin_ports.get(storage)
    if port is None:
        known = ", ".join(sorted(maps.connections.admin_ports)) or "none"
        raise ChangeRefused(f"Storage {storage} is not in the cluster; its storages are: {known}.")
    params = await cluster.store_params()
    try:
        async with asyncio.timeout(seconds):
            return await StorageAdmin.open(storage, port, tls, params, network)
    except TimeoutError:
        raise Failed(
            f"storage {storage} did not answer within {seconds:g} s; find the cause with: "
            "waltz storage validate"
        ) from None


def check_held(storage: str, wanted: Iterable[int], held: Collection[int]) -> None:
    """Raise Failed if ``storage``, which holds the partitions ``held``, lacks a ``wanted`` one."""
    if missing := sorted(set(wanted) - set(held)):
        raise Failed(
            f"storage {storage} does not hold {partitions_text(missing)}; it holds "
            f"{partitions_text(sorted(held)) if held else 'none'}"
        )
