"""Waltz: a distributed write-ahead log for services that must agree.

An application opens a client, streams the transactions of a partition, decides by what they
say, and appends the next, which is refused if a lock was taken in between::

    import asyncio
    import waltz

    async def main() -> None:
        async with waltz.connect("127.0.0.1:2181", root="/waltz") as client:
            async def sign(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
                seen = [t.data async for t in client.stream(0, until=attempt.mark, data=True)]
                return waltz.Draft(b"guest %d" % len(seen), write_locks=[waltz.Lock("guests", 1)])
            print(await client.submit(0, sign))

    asyncio.run(main())

``sign`` decides by the log up to ``attempt.mark``; when somebody else signed after that, it is
asked again. A lock without such a mark protects no decision: see `Client.append`.

The same without asyncio is `waltz.sync`; an application that applies every transaction to a
state of its own is served by `waltz.sync.callbacks`, and by `waltz.state` if the state is in a
database; `waltz.mock` is a cluster inside the process, for tests.

Connections are secured with TLS unless ``tls=waltz.PLAINTEXT`` is given.
"""

from waltz.client import (
    Absent,
    AnswerLate,
    Appended,
    AppendUncertain,
    Attempt,
    BytesSerializer,
    Client,
    ClientAhead,
    ClientClosed,
    ClientFailed,
    ClientOptions,
    ClusterNotFound,
    ClusterUnreachable,
    ConnectOptions,
    DataclassSerializer,
    DataCorrupt,
    DataTooLarge,
    Draft,
    HeaderRange,
    JsonSerializer,
    LockFailed,
    LogBulk,
    LogClient,
    LogStream,
    PartitionUnknown,
    RecordRange,
    Refused,
    Serializer,
    ServerTooOld,
    TextSerializer,
    Transaction,
    TransactionNotFound,
    WaltzError,
    connect,
    connect_as_configured,
)
from waltz.net import PLAINTEXT, TlsConfig
from waltz.protocol import Lock, ReqId

__all__ = [
    "PLAINTEXT",
    "Absent",
    "AnswerLate",
    "AppendUncertain",
    "Appended",
    "Attempt",
    "BytesSerializer",
    "Client",
    "ClientAhead",
    "ClientClosed",
    "ClientFailed",
    "ClientOptions",
    "ClusterNotFound",
    "ClusterUnreachable",
    "ConnectOptions",
    "DataCorrupt",
    "DataTooLarge",
    "DataclassSerializer",
    "Draft",
    "HeaderRange",
    "JsonSerializer",
    "Lock",
    "LockFailed",
    "LogBulk",
    "LogClient",
    "LogStream",
    "PartitionUnknown",
    "RecordRange",
    "Refused",
    "ReqId",
    "Serializer",
    "ServerTooOld",
    "TextSerializer",
    "TlsConfig",
    "Transaction",
    "TransactionNotFound",
    "WaltzError",
    "connect",
    "connect_as_configured",
]
