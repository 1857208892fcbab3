"""Waltz: a distributed write-ahead log for services that must agree.

An application opens a client, reads the transactions of a partition, decides from them what to
append, and appends it with locks. The server refuses the append if a transaction that the decision
did not take into account has taken one of these locks:

    import asyncio
    import waltz

    async def main() -> None:
        async with waltz.connect("127.0.0.1:2181", root="/waltz") as client:
            async def sign(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
                seen = [t.data async for t in client.stream(0, until=attempt.mark, data=True)]
                return waltz.Draft(b"guest %d" % len(seen), write_locks=[waltz.Lock("guests", 1)])
            print(await client.submit(0, sign))

    asyncio.run(main())

``attempt.mark`` is the id of the last transaction that the client knows to be in the log. ``sign``
reads the log up to this transaction, so its decision takes no later one into account.
`LogClient.submit` appends the draft with this mark. If a transaction after the mark has taken the
lock, `LogClient.submit` makes a new attempt: it calls ``sign`` again. A program that calls
`LogClient.append` must pass the mark itself. Without a mark, locks do not protect the decision.

* `waltz.sync`: the same client for programs without asyncio; its calls block
* `waltz.StateFollower`: applies the transactions of the log to an application's state, with asyncio
* `waltz.sync.callbacks`: the same with threads: it calls the application for each transaction
* `waltz.state`: a base class for such an application that keeps its state in an SQL database
* `waltz.testing`: a whole cluster in one process, for tests

Connections use TLS by default. The argument ``tls``, the environment, a ``cluster.json`` or the
servers' declaration in ZooKeeper can say otherwise: see `connect`.
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

_DEFINED_IN = {
    "Lock": "waltz.protocol",
    "PLAINTEXT": "waltz.net",
    "ReqId": "waltz.protocol",
    "TlsConfig": "waltz.net",
    "ZooKeeperAccess": "waltz.metadata.zookeeper_access",
}
"""The module that defines each of these names; `waltz.client` defines the rest of ``__all__``."""


def __getattr__(name: str) -> object:
    """Import the module that defines ``name`` when a program first uses the name (PEP 562).

    Python imports ``waltz`` before any package in it, so every process of Waltz imports this
    module. Without this function each of them would import the whole client, which takes longer
    than starting Python.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_DEFINED_IN.get(name, "waltz.client")), name)
    globals()[name] = value  # The next use finds the name without this function.
    return value


def __dir__() -> list[str]:
    """Return all names of the package, including public names that are not imported yet."""
    return sorted({*globals(), *__all__})
