"""Waltz: a distributed write-ahead log for services that must agree.

An application opens a client, appends transactions to partitions, and streams them back::

    import asyncio
    import waltz

    async def main() -> None:
        async with waltz.connect("127.0.0.1:2181", root="/waltz") as client:
            account = waltz.Lock("account", 17)
            tx = await client.append(0, b"deposit 5", write_locks=[account])
            async for transaction in client.stream(0, until=tx, data=True):
                print(transaction.id, transaction.data)

    asyncio.run(main())

Connections are secured with TLS unless ``tls=waltz.PLAINTEXT`` is given.
"""

from waltz.client import (
    AppendUncertain,
    Attempt,
    Client,
    ClientAhead,
    ClientClosed,
    ClientFailed,
    ClientOptions,
    ClusterNotFound,
    ClusterUnreachable,
    DataCorrupt,
    DataTooLarge,
    Draft,
    LockFailed,
    PartitionUnknown,
    Serializer,
    ServerTooOld,
    Stream,
    Transaction,
    TransactionNotFound,
    WaltzError,
    connect,
)
from waltz.net import PLAINTEXT, TlsConfig
from waltz.protocol import Lock, ReqId

__all__ = [
    "PLAINTEXT",
    "AppendUncertain",
    "Attempt",
    "Client",
    "ClientAhead",
    "ClientClosed",
    "ClientFailed",
    "ClientOptions",
    "ClusterNotFound",
    "ClusterUnreachable",
    "DataCorrupt",
    "DataTooLarge",
    "Draft",
    "Lock",
    "LockFailed",
    "PartitionUnknown",
    "ReqId",
    "Serializer",
    "ServerTooOld",
    "Stream",
    "TlsConfig",
    "Transaction",
    "TransactionNotFound",
    "WaltzError",
    "connect",
]
