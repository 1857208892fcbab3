"""The client library: append to a cluster and stream from it, with asyncio.

What decides is pure, one partition at a time:

* `mount`: getting a feed going; `feed`: a stream's position; `appends`: the fate of appends
* `questions`: reads and marks; `read_ahead`: the memory of reads; `codec`: the hot messages
* `directory`: which server has which partition; `values`, `errors`: what the API gives and takes
* `batches`: what becomes of each append of a batch; `append_call`: how those of one call ended;
  `in_flight`: how much is under way at a time
* `api`: the interface that the real client and the mock satisfy; `serializers`; `measures`

What acts drives those over the network: `link` and `links` (connections), `ticker` (time),
`appender`, `asker`, `stream` (with `inline`, its data, and `batched`), `bulk` (ranges and batches),
`submitting`, `standing` and `client`, the API itself, opened by `connecting`. `deadlines` bounds
waiting. `settings` reads configuration files.
"""

from waltz.client.api import LogBulk, LogClient, LogStream
from waltz.client.bulk import HeaderRange, RecordRange
from waltz.client.client import Client
from waltz.client.connecting import connect, connect_as_configured
from waltz.client.core.batches import Absent, Appended, Refused
from waltz.client.core.errors import (
    AnswerLate,
    AppendUncertain,
    ClientAhead,
    ClientClosed,
    ClientFailed,
    ClusterNotFound,
    ClusterUnreachable,
    DataCorrupt,
    DataTooLarge,
    LockFailed,
    PartitionUnknown,
    ServerTooOld,
    TransactionNotFound,
    WaltzError,
)
from waltz.client.core.serializers import (
    BytesSerializer,
    DataclassSerializer,
    JsonSerializer,
    TextSerializer,
)
from waltz.client.core.values import Attempt, Draft, Serializer, Transaction
from waltz.client.settings import ClientOptions
from waltz.client.stream import Stream

__all__ = [
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
    "DataCorrupt",
    "DataTooLarge",
    "DataclassSerializer",
    "Draft",
    "HeaderRange",
    "JsonSerializer",
    "LockFailed",
    "LogBulk",
    "LogClient",
    "LogStream",
    "PartitionUnknown",
    "RecordRange",
    "Refused",
    "Serializer",
    "ServerTooOld",
    "Stream",
    "TextSerializer",
    "Transaction",
    "TransactionNotFound",
    "WaltzError",
    "connect",
    "connect_as_configured",
]
