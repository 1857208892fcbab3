"""Check the ports of storages, and read the last id of a replica. Touches the network.

Neither function disturbs a running cluster. `check_ports` only opens connections.
`max_transaction_id` names the session that the storage has persisted. If it named a newer one, the
storage would refuse the requests of the present session from then on, and so end that session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from waltz.admin.storage_admin import StorageAdmin, admin_address
from waltz.metadata.core.formats import StoreParams
from waltz.metadata.core.storage_maps import StorageMaps
from waltz.net import (
    TCP,
    ConnectionLost,
    DialFailed,
    Network,
    RemoteFailure,
    RpcConnection,
    TlsConfig,
    split_address,
)
from waltz.protocol import storage as messages


@dataclass(frozen=True, slots=True)
class PortProblems:
    """Why each of the two ports of a storage does not answer; None if that port answers."""

    storage_problem: str | None
    admin_problem: str | None


async def check_ports(
    maps: StorageMaps,
    tls: TlsConfig,
    params: StoreParams,
    *,
    timeout_seconds: float,
    network: Network = TCP,
) -> Mapping[str, PortProblems]:
    """Connect to both ports of every storage in ZooKeeper's maps; return the problems by storage.

    All storages are checked concurrently. Each port has ``timeout_seconds``.
    """
    identity = params.key, params.num_partitions
    names = sorted({*maps.groups.groups, *maps.connections.admin_ports})

    async def check(storage: str) -> PortProblems:
        admin_port = maps.connections.admin_ports.get(storage)
        storage_problem = await _opening_problem(
            lambda: RpcConnection.open_storage(
                split_address(storage), tls, identity, network=network
            ),
            timeout_seconds,
        )
        if admin_port is None:
            return PortProblems(storage_problem, "ZooKeeper has no admin port of this storage")
        admin_problem = await _opening_problem(
            lambda: RpcConnection.open_admin(
                admin_address(storage, admin_port), tls, identity, network
            ),
            timeout_seconds,
        )
        return PortProblems(storage_problem, admin_problem)

    checked = await asyncio.gather(*(check(storage) for storage in names))
    return dict(zip(names, checked, strict=True))


async def max_transaction_id(
    admin: StorageAdmin,
    storage: str,
    partition: int,
    tls: TlsConfig,
    params: StoreParams,
    *,
    offline: bool,
    network: Network = TCP,
) -> int:
    """Return the last id that a storage holds of ``partition``, committed or not.

    ``offline`` must be True if the partition is switched off at the storage, and False if it is on:
    otherwise the storage refuses the request. Raises RemoteFailure, DialFailed, ConnectionLost.
    """
    session = (await admin.session_info(partition)).last_session_id
    identity = params.key, params.num_partitions
    connection = await RpcConnection.open_storage(
        split_address(storage), tls, identity, network=network
    )
    try:
        answer = await connection.call(
            lambda seq: messages.MaxTransactionIdRequest(session, seq, partition, offline),
            messages.MaxTransactionIdResponse,
        )
    finally:
        connection.close()
    last_id: int = answer.transaction_id
    return last_id


async def _opening_problem(
    open_connection: Callable[[], Coroutine[Any, Any, RpcConnection]], timeout_seconds: float
) -> str | None:
    """Open a connection and close it; return why it cannot be opened, None if it can."""
    try:
        async with asyncio.timeout(timeout_seconds):
            (await open_connection()).close()
    except TimeoutError:
        return f"no answer within {timeout_seconds:g} s"
    except (DialFailed, ConnectionLost, RemoteFailure) as problem:
        return str(problem)
    return None
