"""Waltz: a distributed write-ahead log for services that must agree.

An application opens a client, streams the transactions of a partition, decides by them, and appends
the next transaction. The append is refused if another transaction has taken one of its locks since
the state by which the application decided:

    import asyncio
    import waltz

    async def main() -> None:
        async with waltz.connect("127.0.0.1:2181", root="/waltz") as client:
            async def sign(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
                seen = [t.data async for t in client.stream(0, until=attempt.mark, data=True)]
                return waltz.Draft(b"guest %d" % len(seen), write_locks=[waltz.Lock("guests", 1)])
            print(await client.submit(0, sign))

    asyncio.run(main())

``sign`` decides by the log up to ``attempt.mark``, and `LogClient.submit` appends the draft with
that mark. If another transaction has taken the lock after the mark, ``sign`` is called again. A
program that calls `LogClient.append` must pass the mark itself: without it, locks protect no
decision.

* `waltz.sync`: the same without asyncio
* `waltz.StateFollower`: keeps a state up to date with the log
* `waltz.sync.callbacks`: an application that applies every transaction to a state
* `waltz.state`: a state that follows the log, in an SQL database
* `waltz.testing`: a whole cluster in one process, for tests

Connections use TLS unless the argument ``tls``, the environment, a ``cluster.json`` or the servers'
declaration in ZooKeeper says otherwise: see `connect`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waltz.client import (
        Absent,
        AnswerLate,
        Appended,
        AppendUncertain,
        Attempt,
        BatchStream,
        BytesSerializer,
        Client,
        ClientAhead,
        ClientClosed,
        ClientFailed,
        ClientOptions,
        ClusterNotFound,
        ClusterUnreachable,
        ColumnBatch,
        ConnectOptions,
        DataclassSerializer,
        DataCorrupt,
        DataTooLarge,
        DataUnreadable,
        Draft,
        FollowedState,
        HeaderRange,
        JsonSerializer,
        LockFailed,
        LogBulk,
        LogClient,
        LogStream,
        PartitionUnknown,
        PermissionDenied,
        RecordRange,
        Refused,
        Serializer,
        ServerTooOld,
        StateFollower,
        TextSerializer,
        Transaction,
        TransactionNotFound,
        WaltzError,
        connect,
        connect_as_configured,
    )
    from waltz.metadata.zookeeper_access import ZooKeeperAccess
    from waltz.net import PLAINTEXT, TlsConfig
    from waltz.protocol import Lock, ReqId

__all__ = [
    "PLAINTEXT",
    "Absent",
    "AnswerLate",
    "AppendUncertain",
    "Appended",
    "Attempt",
    "BatchStream",
    "BytesSerializer",
    "Client",
    "ClientAhead",
    "ClientClosed",
    "ClientFailed",
    "ClientOptions",
    "ClusterNotFound",
    "ClusterUnreachable",
    "ColumnBatch",
    "ConnectOptions",
    "DataCorrupt",
    "DataTooLarge",
    "DataUnreadable",
    "DataclassSerializer",
    "Draft",
    "FollowedState",
    "HeaderRange",
    "JsonSerializer",
    "Lock",
    "LockFailed",
    "LogBulk",
    "LogClient",
    "LogStream",
    "PartitionUnknown",
    "PermissionDenied",
    "RecordRange",
    "Refused",
    "ReqId",
    "Serializer",
    "ServerTooOld",
    "StateFollower",
    "TextSerializer",
    "TlsConfig",
    "Transaction",
    "TransactionNotFound",
    "WaltzError",
    "ZooKeeperAccess",
    "connect",
    "connect_as_configured",
]

_PACKAGES = {
    "Lock": "waltz.protocol",
    "PLAINTEXT": "waltz.net",
    "ReqId": "waltz.protocol",
    "TlsConfig": "waltz.net",
    "ZooKeeperAccess": "waltz.metadata.zookeeper_access",
}
"""The packages that define these names; `waltz.client` defines the others of ``__all__``."""


def __getattr__(name: str) -> object:
    """Import the package that defines ``name`` when a program first uses the name (PEP 562).

    Every process of Waltz imports this package before its own. Without this function each of them
    would import the whole client, which takes longer than starting Python.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_PACKAGES.get(name, "waltz.client")), name)
    globals()[name] = value  # the next use finds the name without this function
    return value


def __dir__() -> list[str]:
    """Return all names of the package, also the public names that nothing has imported yet."""
    return sorted({*globals(), *__all__})
