"""What can go wrong for an application, by name: each says what happened and what to do. Pure."""

from __future__ import annotations

from collections.abc import Callable

from waltz.client.core.batches import BatchOutcome
from waltz.protocol.records import ReqId


class WaltzError(Exception):
    """Base of the errors that the client library raises on purpose."""


class ClusterUnreachable(WaltzError):
    """ZooKeeper, or the server of a partition, did not answer in time.

    Raised by an append, it means that nothing of it is in the log, or ever will be.
    """


class AnswerLate(ClusterUnreachable):
    """A question was not answered in the time given to it, or not all that `flush` waits for.

    Nothing was changed by asking; appends that `flush` waited for go on.
    """


class ClusterNotFound(WaltzError):
    """ZooKeeper has no finished cluster at the given root."""


class ClientFailed(WaltzError):
    """The client cannot find the servers any more, and will not by itself: open another one.

    An append that raises this is not in the log; one whose fate is open raises AppendUncertain.
    ``reason`` says why, as far as it is known.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            "this client no longer follows which server has which partition: "
            f"{reason}; close it and open another with waltz.connect"
        )
        self.reason = reason


class ClientClosed(WaltzError):
    """The client was closed; an append that raises this is not in the log."""

    def __init__(self) -> None:
        super().__init__("this client is closed: open another with waltz.connect")


Ending = Callable[[], ClientClosed | ClientFailed]
"""Makes the error of calls on what has ended: a new one for each, as each has its own traceback."""


class PartitionUnknown(WaltzError, LookupError):
    """The cluster has no such partition."""

    def __init__(self, partition: int, num_partitions: int) -> None:
        super().__init__(
            f"there is no partition {partition}: the cluster has partitions 0 to "
            f"{num_partitions - 1}"
        )
        self.partition = partition


class TransactionNotFound(WaltzError, LookupError):
    """The partition's log does not reach the transaction asked for."""

    def __init__(self, partition: int, transaction_id: int, log_mark: int) -> None:
        super().__init__(
            f"partition {partition} has no transaction {transaction_id}: its log ends at "
            f"{log_mark}; ask again once the transaction has been seen in a stream"
        )
        self.partition = partition
        self.transaction_id = transaction_id
        self.log_mark = log_mark


class DataCorrupt(WaltzError):
    """A transaction's data did not match its checksum, several times over."""

    def __init__(self, partition: int, transaction_id: int, attempts: int) -> None:
        super().__init__(
            f"the data of transaction {transaction_id} of partition {partition} did not match "
            f"its checksum in {attempts} attempts: check the storage nodes and the network"
        )
        self.partition = partition
        self.transaction_id = transaction_id


class DataTooLarge(WaltzError, ValueError):
    """The data exceeds what one transaction may hold; nothing was sent."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"{size} bytes of data exceed the {limit} that a transaction may hold: store them "
            "elsewhere and append a reference, or split them"
        )


class ClientAhead(WaltzError):
    """The caller has seen more than the log holds: its mark or the cluster is the wrong one."""

    def __init__(self, partition: int, client_mark: int, log_mark: int) -> None:
        super().__init__(
            f"partition {partition} ends at transaction {log_mark}, but this client has seen "
            f"{client_mark}: its mark belongs to another cluster, or the log was lost and "
            "restored; find out which before going on"
        )
        self.partition = partition
        self.client_mark = client_mark
        self.log_mark = log_mark


class LockFailed(WaltzError):
    """A lock was taken by a transaction that the append's mark does not cover.

    ``transaction_id`` is what the caller must have seen before trying again.
    """

    def __init__(self, partition: int, transaction_id: int) -> None:
        super().__init__(
            f"a lock in partition {partition} was taken at or before transaction "
            f"{transaction_id}: apply the log up to there, decide again, append again"
        )
        self.partition = partition
        self.transaction_id = transaction_id


class AppendUncertain(WaltzError):
    """An append was sent, and it is not known whether it is in the log or will be.

    ``req_id`` is the request id it was last sent under: a transaction with that id is this append.
    ``outcomes`` is for a batch: what is known of each of its appends, None where nothing is;
    ``req_id`` is then that of the first unknown one, and the others count on from it.
    """

    def __init__(
        self,
        partition: int,
        req_id: ReqId,
        reason: str,
        outcomes: tuple[BatchOutcome | None, ...] = (),
    ) -> None:
        if outcomes:
            what = (
                f"of {outcomes.count(None)} of the {len(outcomes)} appends of a batch to "
                f"partition {partition} the fate is unknown; the first was sent as {req_id} "
                f"({reason}): look for the request ids in the log before appending those again"
            )
        else:
            what = (
                f"an append to partition {partition} was sent as {req_id}, and its fate is "
                f"unknown ({reason}): look for that request id in the log before appending again"
            )
        super().__init__(what)
        self.partition = partition
        self.req_id = req_id
        self.outcomes = outcomes


class ServerTooOld(WaltzError):
    """The partition's server speaks a protocol version without this feature; nothing was sent."""

    def __init__(self, partition: int, version: int, feature: str) -> None:
        super().__init__(
            f"the server of partition {partition} speaks protocol version {version}, which has "
            f"no {feature}: upgrade the server"
        )
        self.partition = partition
