"""The interface of a client: every public method, with its parameters, defaults and meaning.

`Client` implements the abstract methods of `LogClient` and of its base. The blocking client of
`waltz.sync` takes most of its method signatures from `LogClient`. Waits on the event loop.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal, Self, Unpack, cast, overload

from waltz.client.append_outcome import search_log
from waltz.client.batch_stream import BatchStream
from waltz.client.client_base import ClientBase
from waltz.client.core.arguments import (
    check_bounds,
    check_build,
    check_position,
    check_req_id,
    check_timeout,
    checked_id,
    checked_mark,
)
from waltz.client.core.batches import Absent, Appended
from waltz.client.core.log_stream import LogStream
from waltz.client.core.values import DataT, Draft, StreamBounds, stream_bounds
from waltz.client.deadlines import in_time
from waltz.client.log_bulk import LogBulk
from waltz.client.submitting import Build, submit
from waltz.protocol.locks import Lock
from waltz.protocol.records import NO_TRANSACTION, ReqId
from waltz.runtime.core.json_metrics import JsonMetrics


class LogClient(ClientBase[DataT]):
    """One application's access to one cluster.

    `waltz.connect` opens a `Client`, which implements this class. `waltz.testing` opens clients of
    a cluster that runs in the process of a test. ``LogClient[bytes]`` appends and reads bytes. The
    type of a client with a serializer is that of the serializer's values.

    A client belongs to the event loop on which it was opened. If a client can no longer follow the
    servers in ZooKeeper, its present and later calls raise ClientFailed; an append that was sent
    raises AppendUncertain.

    An argument of a wrong type raises TypeError, and a wrong value raises ValueError. Then nothing
    was sent.

    All timeouts are in seconds. A call without a timeout uses the timeout of the client's options.
    If that is None, the call waits without a limit.
    """

    @property
    def cluster_name(self) -> str:
        """The name that the cluster got when it was created."""
        return self._cluster_name

    @property
    def num_partitions(self) -> int:
        """The number of partitions of the cluster. Partitions are numbered from 0."""
        return self._num_partitions

    @property
    def client_id(self) -> int:
        """The id of this client, which its transactions have. No other client ever has this id."""
        return self._client_id

    @property
    def metrics(self) -> JsonMetrics:
        """The metrics of this client, in the JSON form of a server's metrics."""
        return self._metrics.json

    @property
    @abc.abstractmethod
    def pending(self) -> int:
        """The number of append calls without an outcome. `flush` waits for these calls."""

    @property
    @abc.abstractmethod
    def bulk(self) -> LogBulk:
        """Reads of ranges and appends of batches. Servers of Waltz 0.13.2 do not support them."""

    async def append(
        self,
        partition: int,
        data: DataT,
        *,
        header: int = 0,
        write_locks: Iterable[Lock] = (),
        read_locks: Iterable[Lock] = (),
        append_locks: Iterable[Lock] = (),
        mark: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> int:
        """Append one transaction to ``partition``; return its id when a quorum has it on disk.

        The transaction has ``data`` and ``header``, and takes ``write_locks`` and ``append_locks``.
        ``mark`` is the id of the last transaction that the caller's decision takes into account.
        The server refuses the append if a later transaction took one of ``write_locks`` or
        ``read_locks``, even a transaction of this client. In rare cases the server refuses an
        append without such a conflict: different locks can share an entry of its lock table.

        If ``mark`` is None, the mark is the last transaction that the log has when the append
        arrives at the server (before protocol version 6: the last transaction that the client has
        received). The caller may not have seen this transaction, so locks without a mark protect no
        decision. `submit` sets the mark. A mark beyond the end of the log raises ClientAhead. But a
        mark is a plain number: the mark of another partition or cluster cannot be detected if this
        log reaches it, and with such a mark the locks protect no decision.

        Whatever happens to connections and servers, the transaction is appended at most once: the
        client sends it again only when it is certain that the transaction is not in the log.
        Appends of one client may overlap. They are sent in the order of the calls. Their order in
        the log differs from it only if one of them is sent again.

        Raises:
            LockFailed: A lock was taken after ``mark``. The transaction is not in the log.
            AppendUncertain: ``timeout`` passed, or the client was closed, after the append was sent
                and before its outcome was known. The transaction may or may not be in the log. The
                same is true for an append that is cancelled.
            ClusterUnreachable: ``timeout`` passed. The transaction is not in the log and never will
                be.
            ClientAhead: The log ends before ``mark``, or before the last transaction that this
                client has received. The transaction is not in the log.
            ServerTooOld: The server does not support a kind of lock. Nothing was sent.
            DataTooLarge: The data exceeds 64 MiB. Nothing was sent.
            TypeError: An argument has a wrong type, such as a tuple in place of a `Lock`.
            ValueError: The header has more than 32 bits, or the mark is below -1.
            PermissionDenied: The client has no right to make this request.
            PartitionUnknown: The cluster has no such partition.
            ClientClosed: The client is closed.
        """
        check_timeout(timeout)
        draft: Draft[DataT] = Draft(data, header, write_locks, read_locks, append_locks, mark)
        # The mark is passed twice: `_append` uses only the last one, which `submit` may replace.
        return await self._append(partition, draft, mark, timeout)

    async def submit(
        self,
        partition: int,
        build: Build[DataT],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> int | None:
        """Append the transaction that ``build`` returns, and call ``build`` again after a conflict.

        ``build`` gets an `Attempt` and returns a `Draft`, or None if there is nothing to append.
        ``build`` may be a coroutine function. The state by which ``build`` decides must contain
        every transaction up to the mark of the draft; a draft without a mark gets ``attempt.mark``.
        After a conflict, the state must also contain the transaction ``attempt.conflict``.

        Returns the id of the transaction in ``partition``, None if ``build`` returned None.
        ``timeout`` limits the whole call: the mount, ``build`` and all attempts.

        Raises:
            LockFailed: The timeout passed after a conflict, before the next attempt was sent.
            TypeError: ``build`` returned neither a `Draft` nor None.

        This method also raises the other errors of `append`, and the errors of ``build``.
        """
        self._check(partition)
        check_build(build)
        check_timeout(timeout)
        seconds = self._options.append_timeout if timeout is None else timeout
        mount, append = partial(self._mount, partition), partial(self._append, partition)
        return await submit(partition, build, mount, append, seconds, self._problems)

    async def mount(
        self,
        partition: int,
        mark: int | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> int:
        """Prepare ``partition`` for appends; return the largest id known to be in its log.

        Without this call, the first append mounts the partition after its high-water mark. With a
        ``mark``, the first mount is after this transaction: a server of a protocol version before 6
        then feeds all later transactions. If the log ends before ``mark``, because the mark belongs
        to another log, appends raise ClientAhead.

        Raises:
            AnswerLate: ``timeout`` passed.
            PermissionDenied: The client has no right to make this request.
            PartitionUnknown: The cluster has no such partition.
            ClientClosed: The client is closed.
        """
        self._check(partition)
        checked_mark(mark)
        check_timeout(timeout)
        missing = f"partition {partition} was not mounted"
        return await self._in_time(self._mount(partition, mark), timeout, missing)

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: Literal[True],
        **bounds: Unpack[StreamBounds],
    ) -> LogStream[DataT]: ...

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: Literal[False] = False,
        **bounds: Unpack[StreamBounds],
    ) -> LogStream[None]: ...

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: bool,
        **bounds: Unpack[StreamBounds],
    ) -> LogStream[DataT | None]: ...

    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        after: int = NO_TRANSACTION,
        until: int | Mapping[int, int] | None = None,
        data: bool = False,
    ) -> LogStream[Any]:
        """Return a stream of one partition, or of several.

        ``partitions`` is one partition, whose stream begins after the transaction ``after``, or a
        mapping from each partition to the transaction after which its stream begins. Every
        transaction is returned once, in the order of its partition. Transactions of different
        partitions are returned in the order of their arrival.

        ``until`` is the last transaction to return, or a mapping from partition to its last
        transaction. For a partition without a last transaction, the stream never ends: it waits for
        new transactions.

        With ``data``, transactions have their data. The client reads data ahead, in limited memory.

        Raises:
            PartitionUnknown: The cluster has no such partition.

        Iterating over the stream raises ClientAhead, DataCorrupt, PermissionDenied, ClientClosed,
        ClientFailed, DataUnreadable, and ClusterUnreachable if ZooKeeper does not answer.
        """
        marks, ends = self._checked_bounds(partitions, after, until)
        return self._stream(marks, ends, data)

    def batches(
        self,
        partitions: int | Mapping[int, int],
        *,
        after: int = NO_TRANSACTION,
        until: int | Mapping[int, int] | None = None,
    ) -> BatchStream:
        """Return a stream of transactions as columns, for programs that read a log fast.

        ``partitions``, ``after`` and ``until`` are those of `stream`. Each `ColumnBatch` has
        thousands of transactions of one partition, with their data as bytes: the client's
        serializer is not used. Servers support this from protocol version 5 on.

        Raises:
            PartitionUnknown: The cluster has no such partition.

        Iterating over the stream raises ServerTooOld, and the errors of `stream` except
        DataUnreadable.
        """
        return self._batches(*self._checked_bounds(partitions, after, until))

    async def read(
        self,
        partition: int,
        transaction_id: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> DataT:
        """Return the data of one transaction after verifying its checksum.

        Raises:
            TransactionNotFound: The log of ``partition`` ends before ``transaction_id``.
            DataCorrupt: The data did not match their checksum in any attempt.
            DataUnreadable: The serializer cannot read the data.
            AnswerLate: ``timeout`` passed.
            PermissionDenied: The client has no right to make this request.
            PartitionUnknown: The cluster has no such partition.
            ClientClosed: The client is closed.
        """
        self._check(partition)
        checked_id("transaction_id", transaction_id)
        check_timeout(timeout)
        missing = (
            f"the data of transaction {transaction_id} of partition {partition} did not arrive"
        )
        data = await self._in_time(self._read_data(partition, transaction_id), timeout, missing)
        return cast(DataT, self._deserializer.read_one(partition, transaction_id, data))

    async def high_water_mark(
        self,
        partition: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> int:
        """Return the id of the last committed transaction of ``partition``, -1 if there is none.

        Raises:
            AnswerLate: ``timeout`` passed.
            PermissionDenied: The client has no right to make this request.
            PartitionUnknown: The cluster has no such partition.
            ClientClosed: The client is closed.
        """
        self._check(partition)
        check_timeout(timeout)
        missing = f"no server answered with the high-water mark of partition {partition}"
        return await self._in_time(self._read_mark(partition), timeout, missing)

    async def outcome(
        self,
        req_id: ReqId,
        *,
        after: int = NO_TRANSACTION,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> Appended | Absent | None:
        """Return the outcome of an append that raised AppendUncertain.

        ``req_id`` is that of the error. The client reads the request ids in the partition's log
        after ``after``, which may be any transaction from before the append. Without ``timeout``
        there is no limit, whatever the options are.

        Returns `Appended` if the append is in the log, and `Absent` if it is not and never will be.
        The client that made the append returns one of these, unless the log has lost transactions.
        Another client returns `Absent` only if the log proves it, by a transaction of a later
        append of the same client, or of a later generation of the partition. Without this proof
        the result is None: the append is not in the log so far, and may still get there.

        Raises ClientAhead if the log ends before ``after``, and the errors of `mount`.
        """
        check_req_id(req_id)
        self._check(req_id.partition)
        check_position("after", after)
        check_timeout(timeout)
        missing = f"the outcome of append {req_id} was not found"
        # Not `_in_time`: the option ``answer_timeout`` does not limit a read of the whole log.
        return await in_time(self._outcome(req_id, after), timeout, missing, self._problems)

    async def flush(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> None:
        """Wait until every append that was called before this call has an outcome.

        Raises:
            AnswerLate: ``timeout`` passed. The appends continue.
            ClientClosed: The client is closed.
        """
        self._check()
        check_timeout(timeout)
        missing = "not every append called before flush had its outcome"
        await self._in_time(self._flush(), timeout, missing)
        # If the client was closed meanwhile, the appends have ended because of that.
        self._check()

    @abc.abstractmethod
    async def close(self) -> None:
        """Close all connections. Appends that were sent and have no outcome raise AppendUncertain.

        A second call has no effect.
        """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _checked_bounds(
        self, partitions: int | Mapping[int, int], after: int, until: int | Mapping[int, int] | None
    ) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Check the arguments of `stream`, and return them in the form of `stream_bounds`.

        Raises PartitionUnknown, ClientClosed, ClientFailed, TypeError and ValueError.
        """
        check_bounds(partitions, after, until)
        marks, ends = stream_bounds(partitions, after, until)
        for partition in marks:
            self._check(partition)
        return marks, ends

    async def _outcome(self, req_id: ReqId, after: int) -> Appended | Absent | None:
        """Return what `outcome` returns, without a timeout."""
        is_settled = req_id.client_id == self.client_id and await self._wait_for_outcome(req_id)
        # A stream that begins beyond the log's end is empty, and would prove nothing.
        await self._check_mark(req_id.partition, after)
        # A settled append is in the log up to this mark, or never.
        mark = await self._read_mark(req_id.partition)
        stream = self.stream(req_id.partition, after=after, until=mark)
        return await search_log(stream, req_id, is_settled=is_settled)
