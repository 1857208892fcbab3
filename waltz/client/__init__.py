"""The asyncio client library: append to the partitions of a cluster, and stream from them.

Connects to ZooKeeper and to the servers of the cluster. `waltz.client.core` makes the decisions,
and the modules of this folder carry them out.

* `log_client`, `log_bulk`: the interface of clients, which `Client` implements; `client_base`: the
  operations behind the interface
* `client`, `bulk`, `stream`, `batch_stream`: `Client` and its streams
* `connecting`, `opening`: open a `Client`; `settings`: reads its options from a file; `location`:
  finds the cluster; `tls_check`: compares the TLS settings of client and servers
* `outside`: dials the addresses by which clients outside the cluster's network reach its processes
* `core`: the decisions about one partition, and the values, without any input or output
* `appender`, `request_client`, `stream_ranges`, `stream_data`: send the messages that `core`
  requests, and return the results to the callers
* `link`, `links`: the connections to servers
* `membership_state`: whether the client is open, failed or closed. It fails when it can no longer
  follow in ZooKeeper which server owns which partition
* `append_call`: one call of append; `append_errors`: the errors of such calls; `append_outcome`:
  finds the outcome of an append that raised AppendUncertain; `in_flight`: limits the appends that
  have no outcome yet
* `follower`: `StateFollower`, which keeps a state up to date with the log
* `submitting`: the retries of `LogClient.submit`
* `deadlines`: the timeouts of calls; `ticker`: calls `core` at regular intervals, because `core`
  has no clock
* `options`: the options of a client
* `replica_reader`: reads committed records directly from storages, for Spark
"""

from waltz.client.batch_stream import BatchStream
from waltz.client.client import Client
from waltz.client.connecting import connect, connect_as_configured
from waltz.client.core.batches import Absent, Appended, Refused
from waltz.client.core.column_batch import ColumnBatch
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
    DataUnreadable,
    LockFailed,
    PartitionUnknown,
    PermissionDenied,
    ServerTooOld,
    TransactionNotFound,
    WaltzError,
)
from waltz.client.core.log_stream import LogStream
from waltz.client.core.serializers import (
    BytesSerializer,
    DataclassSerializer,
    JsonSerializer,
    TextSerializer,
)
from waltz.client.core.values import Attempt, Draft, Serializer, Transaction
from waltz.client.follower import FollowedState, StateFollower
from waltz.client.log_bulk import HeaderRange, LogBulk, RecordRange
from waltz.client.log_client import LogClient
from waltz.client.options import ClientOptions, ConnectOptions

__all__ = [
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
    "LockFailed",
    "LogBulk",
    "LogClient",
    "LogStream",
    "PartitionUnknown",
    "PermissionDenied",
    "RecordRange",
    "Refused",
    "Serializer",
    "ServerTooOld",
    "StateFollower",
    "TextSerializer",
    "Transaction",
    "TransactionNotFound",
    "WaltzError",
    "connect",
    "connect_as_configured",
]
