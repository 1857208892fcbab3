"""The interface of a client: every public method, with its parameters, defaults and meaning.

The real client and the mock client implement the few methods at the end; `waltz.sync` delegates to
these methods. So a parameter is added in one place. Waits on the event loop.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, cast, overload

from waltz.client.core.log_stream import LogStream
from waltz.client.core.metrics import Appending, ClientMetrics
from waltz.client.core.values import DataT, Draft, StreamBounds, stream_bounds
from waltz.client.deadlines import in_time
from waltz.client.log_bulk import LogBulk
from waltz.client.options import ClientOptions
from waltz.client.submitting import Build, submit
from waltz.protocol.locks import Lock
from waltz.protocol.records import NO_TRANSACTION
from waltz.runtime.core.json_metrics import JsonMetrics

T = TypeVar("T")


class LogClient(abc.ABC, Generic[DataT]):
    """One application's access to one cluster.

    `waltz.connect` opens a `Client`, which is the real one; `waltz.mock.MockClient` is for tests.
    ``LogClient[bytes]`` appends and reads bytes; with a serializer the type is that of the
    serializer's values.

    A client belongs to the event loop on which it was opened. If it permanently loses its session
    with ZooKeeper, every call raises ClientFailed, also those in progress; an append that was sent
    raises AppendUncertain.

    All timeouts are in seconds. The default is that of the client's options, and without one there
    is no timeout.
    """

    def __init__(
        self,
        options: ClientOptions,
        appending: Appending,
        *,
        cluster_name: str,
        num_partitions: int,
        client_id: int,
    ) -> None:
        self._options = options
        self._cluster_name = cluster_name
        self._num_partitions = num_partitions
        self._client_id = client_id
        self._metrics = ClientMetrics(
            cluster_name, client_id, appending, asyncio.get_running_loop().time
        )

    @property
    def cluster_name(self) -> str:
        """The name that the cluster got when it was created."""
        return self._cluster_name

    @property
    def num_partitions(self) -> int:
        """The number of partitions of the cluster; they are numbered from 0."""
        return self._num_partitions

    @property
    def client_id(self) -> int:
        """The id under which this client appends. No other client has or had it."""
        return self._client_id

    @property
    def metrics(self) -> JsonMetrics:
        """The metrics of this client, in the form of a server's."""
        return self._metrics.json

    @property
    @abc.abstractmethod
    def pending(self) -> int:
        """The number of appends without an outcome; `flush` waits for them."""

    @property
    @abc.abstractmethod
    def bulk(self) -> LogBulk:
        """Ranges and batches, for pipelines. Servers of Waltz 0.13.2 do not offer them."""

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
        timeout: float | None = None,  # noqa: ASYNC109 - it expires as a named error
    ) -> int:
        """Append one transaction and return its id when a quorum has it on disk.

        ``mark`` is the last transaction that the caller's decision takes into account. The server
        refuses the append if another client took one of the write or read locks after it. Without a
        ``mark`` the locks are checked against the last transaction that this client has been fed
        when it sends the append. The caller may not have seen that transaction, so locks without a
        mark protect no decision. `submit` sets the mark.

        Whatever happens to connections and servers, the transaction is appended at most once: the
        client sends it again only when it is certain that it is not in the log. Appends of one
        client may overlap; their order in the log is not the order of the calls.

        Raises:
            LockFailed: A lock was taken after ``mark``. The transaction is not in the log.
            AppendUncertain: The time ran out, or the client was closed, after the append was sent
                and before its outcome was known. A cancelled append is in doubt as well.
            ClusterUnreachable: The time ran out. The transaction is not in the log and never will
                be.
            ClientAhead: The log ends before the last transaction that this client has seen.
            ServerTooOld: The server does not know a kind of lock. Nothing was sent.
            DataTooLarge: The data exceeds 64 MiB. Nothing was sent.
            PartitionUnknown: The cluster has no such partition.
            ClientClosed: The client is closed.
        """
        draft: Draft[DataT] = Draft(data, header, write_locks, read_locks, append_locks, mark)
        return await self._append(partition, draft, mark, timeout)

    async def submit(
        self,
        partition: int,
        build: Build[DataT],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it expires as a named error
    ) -> int | None:
        """Append the transaction that ``build`` returns, and call ``build`` again after a conflict.

        ``build`` gets an `Attempt` and returns a `Draft`, or None if there is nothing to append. It
        may be a coroutine function. It must decide by a state that reflects every transaction up to
        the draft's mark, which is ``attempt.mark`` unless the draft has one, and after a conflict
        also the transaction ``attempt.conflict``.

        Returns the transaction id, or None. ``timeout`` bounds the whole call: the mount, ``build``
        and all attempts.

        Raises:
            LockFailed: The time ran out between two attempts.
            TypeError: ``build`` returned something else.

        It also raises what `append` raises.
        """
        self._check(partition)
        seconds = self._options.append_timeout if timeout is None else timeout
        mount = partial(self._mount, partition)
        return await submit(partition, build, mount, partial(self._append, partition), seconds)

    async def mount(
        self,
        partition: int,
        mark: int | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it expires as a named error
    ) -> int:
        """Prepare the partition for appends and return the last transaction that was fed.

        The first append does the same from the partition's high-water mark. After a first call with
        a ``mark`` the server feeds every transaction after it, so that a mark of another log raises
        ClientAhead.

        Raises:
            AnswerLate: The time ran out.
            PartitionUnknown: The cluster has no such partition.
            ClientClosed: The client is closed.
        """
        self._check(partition)
        work = self._mount(partition, mark)
        return await self._in_time(work, timeout, f"partition {partition} was not mounted")

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

        ``partitions`` is a number, whose stream begins after the transaction ``after``, or a
        mapping from each partition to the transaction after which its stream begins. Every
        transaction comes once, in the order of its partition; partitions are merged as their
        transactions arrive.

        ``until`` is the last transaction, or a mapping of last transactions. A partition without
        one has no end: the stream waits for further transactions.

        With ``data`` each transaction has its data, which is read ahead within a bound on memory.

        Raises:
            PartitionUnknown: The cluster has no such partition.

        Iterating over the stream raises ClientAhead, DataCorrupt, ClientClosed, and
        ClusterUnreachable if ZooKeeper does not answer.
        """
        marks, ends = stream_bounds(partitions, after, until)
        for partition in marks:
            self._check(partition)
        return self._stream(marks, ends, data)

    async def read(
        self,
        partition: int,
        transaction_id: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it expires as a named error
    ) -> DataT:
        """Return the data of one transaction after verifying its checksum.

        Raises:
            TransactionNotFound: The log does not reach the transaction.
            DataCorrupt: The data failed its checksum in every attempt.
            AnswerLate: The time ran out.
            PartitionUnknown: The cluster has no such partition.
            ClientClosed: The client is closed.
        """
        self._check(partition)
        missing = f"the data of transaction {transaction_id} of partition {partition} did not come"
        data = await self._in_time(self._read_data(partition, transaction_id), timeout, missing)
        return cast(DataT, self._deserialize(data))

    async def high_water_mark(
        self,
        partition: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it expires as a named error
    ) -> int:
        """Return the id of the partition's last committed transaction, -1 if there is none.

        Raises:
            AnswerLate: The time ran out.
            PartitionUnknown: The cluster has no such partition.
            ClientClosed: The client is closed.
        """
        self._check(partition)
        missing = f"no server answered with the high-water mark of partition {partition}"
        return await self._in_time(self._read_mark(partition), timeout, missing)

    async def flush(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it expires as a named error
    ) -> None:
        """Return when every append that was called before this has its outcome.

        Raises:
            AnswerLate: The time ran out. The appends continue.
            ClientClosed: The client is closed.
        """
        self._check()
        missing = "not every append called before flush had its outcome"
        await self._in_time(self._flush(), timeout, missing)
        self._check()

    @abc.abstractmethod
    async def close(self) -> None:
        """Close all connections. Appends that are in doubt raise AppendUncertain.

        A second call has no effect.
        """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _in_time(self, work: Awaitable[T], seconds: float | None, missing: str) -> T:
        if seconds is None:
            seconds = self._options.answer_timeout
        return await in_time(work, seconds, missing)

    def _deserialize(self, data: bytes) -> Any:
        serializer = self._options.serializer
        return data if serializer is None else serializer.deserialize(data)

    def _count_received(self, partition: int, transactions: int) -> None:
        self._metrics.of(partition).received += transactions

    # The methods that an implementation provides.

    @abc.abstractmethod
    def _check(self, partition: int | None = None) -> None:
        """Raise ClientClosed, ClientFailed; with a partition also PartitionUnknown."""

    @abc.abstractmethod
    async def _append(
        self, partition: int, draft: Draft[DataT], mark: int | None, seconds: float | None
    ) -> int: ...

    @abc.abstractmethod
    async def _mount(self, partition: int, mark: int | None = None) -> int: ...

    @abc.abstractmethod
    def _stream(
        self, marks: Mapping[int, int], ends: Mapping[int, int], data: bool
    ) -> LogStream[Any]: ...

    @abc.abstractmethod
    async def _read_data(self, partition: int, transaction_id: int) -> bytes: ...

    @abc.abstractmethod
    async def _read_mark(self, partition: int) -> int: ...

    @abc.abstractmethod
    async def _flush(self) -> None: ...
