"""The errors that the client library raises. Their texts say what happened and what to do. Pure."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from waltz.client.core.batches import BatchOutcome
from waltz.protocol.records import ReqId


class WaltzError(Exception):
    """Base class of the errors of the client library.

    Errors can be pickled and copied, so that an executor of processes can return them.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # The method of Exception would make pickle call __init__ with ``args``. They have the text,
        # and not the parameters of __init__.
        return _restore, (type(self), self.args), self.__dict__


def _restore(error_class: type[WaltzError], args: tuple[Any, ...]) -> WaltzError:
    """Return an error with ``args``, without calling its ``__init__``."""
    return error_class.__new__(error_class, *args)


class ClusterUnreachable(WaltzError):
    """ZooKeeper, or the server of a partition, did not answer in time.

    If an append raises this error, the transaction is not in the log and never will be.
    """


def no_answer_of_zookeeper(seconds: float | None) -> ClusterUnreachable:
    """Return the error of a client that could not be opened within ``seconds`` (None: no limit)."""
    limit = "" if seconds is None else f" within {seconds:g} s"
    return ClusterUnreachable(
        f"ZooKeeper did not answer{limit}: check that a majority of its servers is running"
    )


class AnswerLate(ClusterUnreachable):
    """A call other than an append, such as a read, mount or flush, did not end within its timeout.

    Such a call changes nothing in the log. The appends that a flush waited for continue.
    """


class ClusterNotFound(WaltzError):
    """There is no cluster at the given root in ZooKeeper, or its creation did not finish."""


class ClientFailed(WaltzError):
    """The client can no longer find the servers. Close the client and open another one.

    An append that raises this error is not in the log. An append whose outcome is unknown raises
    AppendUncertain instead. ``reason`` is the cause of the failure.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            "this client can no longer follow which server owns which partition: "
            f"{reason}; close it and open another with waltz.connect"
        )
        self.reason = reason


class ClientClosed(WaltzError):
    """The client or stream is closed. An append that raises this error is not in the log."""

    def __init__(
        self, text: str = "this client is closed: open another with waltz.connect"
    ) -> None:
        super().__init__(text)


ITERATED_TWICE = "a stream can be iterated over only once: open another stream"
"""The text of the ClientClosed that the second loop over a stream raises."""

ErrorFactory = Callable[[], ClientClosed | ClientFailed]
"""Returns the error that a call of a closed or failed client raises.

Every call raises a new instance, because an exception instance has the traceback of one call.
"""


class PartitionUnknown(WaltzError, LookupError):
    """The cluster has no such partition."""

    def __init__(self, partition: int, num_partitions: int) -> None:
        super().__init__(
            f"there is no partition {partition}: the cluster has partitions 0 to "
            f"{num_partitions - 1}"
        )
        self.partition = partition


class TransactionNotFound(WaltzError, LookupError):
    """The partition's log ends before the transaction, or the id is negative."""

    def __init__(self, partition: int, transaction_id: int, log_mark: int) -> None:
        super().__init__(
            f"partition {partition} has no transaction {transaction_id}: its log ends at "
            f"{log_mark}; read it after a stream has returned it"
        )
        self.partition = partition
        self.transaction_id = transaction_id
        self.log_mark = log_mark


class DataCorrupt(WaltzError):
    """A transaction's data did not match its checksum in any attempt."""

    def __init__(self, partition: int, transaction_id: int, attempts: int) -> None:
        super().__init__(
            f"the data of transaction {transaction_id} of partition {partition} did not match "
            f"its checksum in {attempts} attempts: check the disks of the storages and the network"
        )
        self.partition = partition
        self.transaction_id = transaction_id


class DataUnreadable(WaltzError, ValueError):
    """The client's serializer cannot read the data of a transaction.

    ``data`` is the transaction's data in bytes. ``__cause__`` is the error that the serializer
    raised. The option ``unreadable`` of the client makes streams skip such transactions, or makes
    streams and reads return the bytes.
    """

    def __init__(self, partition: int, transaction_id: int, data: bytes, error: Exception) -> None:
        super().__init__(
            f"the serializer cannot read the {len(data)} bytes of transaction {transaction_id} of "
            f"partition {partition} ({type(error).__name__}: {error}): use the serializer that "
            "wrote them, or open the client with unreadable='raw', or for streams with "
            "unreadable='skip'"
        )
        self.partition = partition
        self.transaction_id = transaction_id
        self.data = data


class DataTooLarge(WaltzError, ValueError):
    """The data of a transaction, or of a batch, exceeds the limit. Nothing was sent."""

    def __init__(self, size: int, limit: int, *, batch: bool = False) -> None:
        if batch:
            remedy = "of a batch: append it as several batches"
        else:
            remedy = "of a transaction: store them elsewhere and append a reference, or split them"
        super().__init__(f"{size} bytes of data exceed the limit of {limit} {remedy}")


class ClientAhead(WaltzError):
    """The log ends before the mark of an append, a mount or a stream.

    The mark belongs to another partition or cluster, or the log was lost and restored. An append
    that raises this error is not in the log.
    """

    def __init__(self, partition: int, client_mark: int, log_mark: int) -> None:
        super().__init__(
            f"partition {partition} ends at transaction {log_mark}, but the mark is transaction "
            f"{client_mark}: it belongs to another partition or cluster, or the log was lost "
            "and restored; stop, and find out which before you continue"
        )
        self.partition = partition
        self.client_mark = client_mark
        self.log_mark = log_mark


class LockFailed(WaltzError):
    """A lock was taken after the mark of the append. The append is not in the log.

    A later transaction took this lock or, in rare cases, another lock with the same hash. The
    caller must apply the log up to ``transaction_id`` before it decides and appends again.
    """

    def __init__(self, partition: int, transaction_id: int) -> None:
        super().__init__(
            f"a lock in partition {partition} was taken at or before transaction "
            f"{transaction_id}: apply the log up to that transaction, decide again, append again"
        )
        self.partition = partition
        self.transaction_id = transaction_id


class AppendUncertain(WaltzError):
    """An append was sent and is in doubt: it may be in the log now or later, or never.

    ``req_id`` is the request id of the append. If the append is in the log, its transaction has
    this request id. Find out with `LogClient.outcome`, or with ``waltz log find``, before you
    append again. ``summary`` is the text of the error without this advice.

    For a batch, ``outcomes`` has the outcome of each append, None for an append in doubt.
    ``req_id`` is the request id of the first append in doubt. The sequence numbers of
    the following appends in the batch are consecutive.
    """

    def __init__(
        self,
        partition: int,
        req_id: ReqId,
        reason: str,
        outcomes: tuple[BatchOutcome | None, ...] = (),
    ) -> None:
        if outcomes:
            summary = (
                f"partition {partition}: {outcomes.count(None)} of the {len(outcomes)} appends of "
                f"a batch are in doubt; the first was sent as {req_id} ({reason})"
            )
            remedy = "find the outcome of each with client.outcome before you append it again"
        else:
            summary = (
                f"partition {partition}: an append was sent as {req_id} and is in doubt ({reason})"
            )
            remedy = (
                "find its outcome with client.outcome(error.req_id), or with: waltz log find "
                f"{req_id}, before you append it again"
            )
        super().__init__(f"{summary}: {remedy}")
        self.partition = partition
        self.req_id = req_id
        self.summary = summary
        self.outcomes = outcomes


class ServerTooOld(WaltzError):
    """The protocol version of the partition's server lacks a feature. Nothing was sent."""

    def __init__(self, partition: int, version: int, feature: str) -> None:
        super().__init__(
            f"the server of partition {partition} speaks protocol version {version}, which has "
            f"no {feature}: upgrade the server"
        )
        self.partition = partition


class PermissionDenied(WaltzError):
    """The server refused a request, because the client has no right to make it.

    An append that raises this error is not in the log. ``reason`` is the text of the server, which
    has the names by which it knows the client, and how an administrator grants the right.
    """

    def __init__(self, partition: int, reason: str) -> None:
        super().__init__(f"partition {partition}: the server refused the request: {reason}")
        self.partition = partition
        self.reason = reason


def new_instance(error: Exception) -> Exception:
    """Return a copy of ``error`` to raise in one more call.

    Each call needs its own instance, because an instance collects the traceback of the call that
    raises it. The copy begins with the cause and the traceback of ``error``. If ``error`` cannot be
    copied, return ``error`` itself. Every `WaltzError` can be copied.
    """
    try:
        new = copy.copy(error)
    except Exception:
        return error
    new.__cause__ = error.__cause__
    return new.with_traceback(error.__traceback__)
