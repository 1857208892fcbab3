"""The client: what applications open, append with, and stream from. Network and ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, cast, overload

from waltz.client.appender import Appender
from waltz.client.bulk import Bulk
from waltz.client.core.directory import Directory
from waltz.client.core.errors import (
    ClusterNotFound,
    ClusterUnreachable,
    Ending,
    TransactionNotFound,
)
from waltz.client.core.metrics import ClientMetrics, measured
from waltz.client.core.serializers import append_of
from waltz.client.core.values import DataT, Draft, StreamBounds, stream_bounds
from waltz.client.deadlines import in_time
from waltz.client.membership_state import MembershipState
from waltz.client.request_client import RequestClient
from waltz.client.settings import ClientOptions
from waltz.client.stream import Stream, StreamSources
from waltz.client.submitting import Build, submit
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.formats import ClusterParams
from waltz.metadata.membership import ClientMembership
from waltz.metadata.store import StoreError
from waltz.protocol import CLIENT_SERVER, ProtocolSpec
from waltz.protocol.locks import Lock
from waltz.protocol.records import NO_TRANSACTION
from waltz.runtime.metrics import Registry

T = TypeVar("T")


class Client(Generic[DataT]):
    """One application's access to one cluster. Open it with `waltz.connect`.

    ``Client[bytes]`` appends and reads bytes; with a serializer it is what that takes and makes.

    It belongs to the event loop that it was opened on. Should it lose track of the servers for
    good, every call, also one under way, raises ClientFailed (AppendUncertain for what was sent).
    """

    def __init__(
        self,
        cluster: Cluster,
        params: ClusterParams,
        client_id: int,
        options: ClientOptions,
        *,
        owns_store: bool,
        spec: ProtocolSpec = CLIENT_SERVER,
    ) -> None:
        self._cluster = cluster
        self._params = params
        self._client_id = client_id
        self._options = options
        self._owns_store = owns_store
        self._spec = spec
        self._directory = Directory()
        self._request_client = RequestClient(client_id, self._directory, options.tls, spec)
        self._appender = Appender(
            client_id,
            self._directory,
            options.tls,
            self._request_client,
            max_in_flight=options.max_in_flight,
            long_wait_seconds=options.long_wait_seconds,
            spec=spec,
        )
        self._metrics = ClientMetrics(
            params.name, client_id, self._appender, asyncio.get_running_loop().time
        )
        self._streams: set[Stream[Any]] = set()
        self._membership_state = MembershipState(
            ClientMembership(cluster, self._directory.replace),
            client_id,
            params.num_partitions,
            self._fail,
        )

    @classmethod
    async def over(
        cls,
        cluster: Cluster,
        options: ClientOptions,
        *,
        owns_store: bool = False,
        spec: ProtocolSpec = CLIENT_SERVER,
    ) -> Client:
        """Open a client of a cluster whose metadata store is open already.

        ``spec`` is what it offers to servers: all versions, or fewer to act out an older client.
        Raises ClusterNotFound, ClusterUnreachable.
        """
        try:
            async with asyncio.timeout(options.connect_timeout_seconds):
                params = await cluster.params()
                client_id = await cluster.next_client_id()
        except NoCluster as error:
            raise ClusterNotFound(str(error)) from error
        except TimeoutError:
            raise ClusterUnreachable(
                f"ZooKeeper did not answer within {options.connect_timeout_seconds:g} s: "
                "check that a majority of it is running"
            ) from None
        return cls(cluster, params, client_id, options, owns_store=owns_store, spec=spec)

    @property
    def num_partitions(self) -> int:
        """How many partitions the cluster has; they are numbered from 0."""
        return self._params.num_partitions

    @property
    def bulk(self) -> Bulk:
        """Ranges and batches, for pipelines; servers of Waltz 0.13.2 do not offer them."""
        return Bulk(self._membership_state, self._request_client, self._appender, self._options)

    @property
    def cluster_name(self) -> str:
        """The name given to the cluster when it was created."""
        return self._params.name

    @property
    def client_id(self) -> int:
        """The id under which this client appends; no other client has or had it."""
        return self._client_id

    @property
    def pending(self) -> int:
        """How many appends have no outcome yet; `flush` waits for them."""
        return self._appender.pending

    @property
    def metrics(self) -> Registry:
        """What this client metrics, to be shown as a server's are."""
        return self._metrics.registry

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
        timeout: float | None = None,  # noqa: ASYNC109 - an append that was sent needs more than a cancellation
    ) -> int:
        """Append one transaction and return its id, when a quorum has it on disk.

        Write and read locks protect a decision only together with ``mark``: the last transaction
        that the caller took into account, after which nobody else may have taken them. Without it
        they are checked against what this client has been fed by the time of sending, which says
        nothing of what the caller knew; `submit` brings the two together.

        Appends of one client may overlap; their order in the log is the log's.

        Whatever happens to connections and servers, the transaction is appended once: it is sent
        again only when it is certain that it is not in the log. ``timeout`` is in seconds; by
        default the client's, or none.

        Raises LockFailed when a lock was taken after ``mark``, and this client has been fed up to
        the transaction that took it, or has no time left for that; AppendUncertain when time ran
        out, or the client was closed, before the fate of what was sent is known (a cancellation
        leaves it unknown to the caller as well); ClusterUnreachable when time ran out and it is
        not in the log, nor ever will be; ClientAhead, ServerTooOld, DataTooLarge,
        PartitionUnknown, ClientClosed.
        """
        draft: Draft[DataT] = Draft(data, header, write_locks, read_locks, append_locks, mark)
        return await self._append(partition, draft, mark, timeout)

    async def submit(
        self,
        partition: int,
        build: Build[DataT],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in append
    ) -> int | None:
        """Append what ``build`` makes of the present state; have it made again after a conflict.

        ``build`` gets an `Attempt` and returns a `Draft`, or None if there is nothing to do. It
        must decide by a state that reflects everything up to the draft's mark (by default
        ``attempt.mark``), and after a lock failure at least ``attempt.conflict``; it may be a
        coroutine function that waits for that. Returns the transaction id, or None.

        ``timeout`` (seconds; by default the client's for appends, or none) bounds the whole call:
        waiting for the partition, ``build`` and all attempts. When it runs out between attempts,
        with nothing under way, the error is the LockFailed of the last one. Otherwise this raises
        what `append` raises, but LockFailed, and TypeError if ``build`` returns anything else.
        """
        self._membership_state.check_partition(partition)
        seconds = self._options.append_timeout_seconds if timeout is None else timeout
        mount = partial(self._appender.mount, partition)
        return await submit(partition, build, mount, partial(self._append, partition), seconds)

    async def mount(
        self,
        partition: int,
        mark: int | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - expires as a named error
    ) -> int:
        """Make ready to append, and return the last transaction that this client has been fed.

        Appending does it by itself, from the partition's high-water mark. A first call with
        ``mark`` has everything after it fed, so that ClientAhead tells a mark of another log.

        ``timeout`` is in seconds, here and below; by default the client's for answers, or none.
        Raises AnswerLate when it has run out, PartitionUnknown, ClientClosed.
        """
        self._membership_state.check_partition(partition)
        work = self._appender.mount(partition, mark)
        return await self._in_time(work, timeout, f"partition {partition} was not mounted")

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: Literal[True],
        **bounds: Unpack[StreamBounds],
    ) -> Stream[DataT]: ...

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: Literal[False] = False,
        **bounds: Unpack[StreamBounds],
    ) -> Stream[None]: ...

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: bool,
        **bounds: Unpack[StreamBounds],
    ) -> Stream[DataT | None]: ...

    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        after: int = NO_TRANSACTION,
        until: int | Mapping[int, int] | None = None,
        data: bool = False,
    ) -> Stream[Any]:
        """Return a stream of one partition after the id ``after``, or of several, each after its.

        Every transaction comes once, in the order of its partition; partitions are merged as they
        arrive. Without ``until`` (ids, inclusive) it goes on for ever, waiting for what comes.
        With ``data`` each transaction has its data, read ahead within bounds of memory.

        Raises PartitionUnknown; iterating raises ClientAhead, DataCorrupt, ClientClosed, and
        ClusterUnreachable when ZooKeeper, which a stream asks once, does not answer.
        """
        marks, ends = stream_bounds(partitions, after, until)
        for partition in marks:
            self._membership_state.check_partition(partition)
        options = self._options
        sources = StreamSources(
            directory=self._directory,
            tls=options.tls,
            spec=self._spec,
            request_client=self._request_client,
            new_client_id=self._new_client_id,
            deserialize=self._deserialize,
            buffer=options.stream_buffer,
            handed=self._handed,
            ended=self._streams.discard,
        )
        stream: Stream[Any] = Stream(sources, marks, ends, data=data)
        self._streams.add(stream)
        return stream

    async def read(
        self,
        partition: int,
        transaction_id: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - expires as a named error
    ) -> DataT:
        """Return the data of one transaction, its checksum verified.

        Raises TransactionNotFound, DataCorrupt, AnswerLate when time has run out,
        PartitionUnknown, ClientClosed.
        """
        self._membership_state.check_partition(partition)
        missing = f"the data of transaction {transaction_id} of partition {partition} did not come"
        data = await self._in_time(self._data(partition, transaction_id), timeout, missing)
        return cast(DataT, self._deserialize(data))

    async def high_water_mark(
        self,
        partition: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - expires as a named error
    ) -> int:
        """Return the id of the partition's last committed transaction, -1 if there is none.

        Raises AnswerLate when time has run out, PartitionUnknown, ClientClosed.
        """
        self._membership_state.check_partition(partition)
        missing = f"no server told the high-water mark of partition {partition}"
        return await self._in_time(self._request_client.read_mark(partition), timeout, missing)

    async def flush(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as in mount
        """Return when every append called before this has its outcome.

        Raises AnswerLate when time has run out (the appends go on), ClientClosed.
        """
        self._membership_state.check()
        missing = "not every append called before flush had its outcome"
        await self._in_time(self._appender.flush(), timeout, missing)
        self._membership_state.check()

    async def close(self) -> None:
        """Close everything. Unresolved appends raise AppendUncertain. May be called again."""
        if not self._membership_state.close():
            return
        for stream in list(self._streams):
            await stream.aclose()
        await self._appender.close()
        await self._request_client.close()
        await self._membership_state.end()
        if self._owns_store:
            await self._cluster.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _append(
        self, partition: int, draft: Draft[DataT], mark: int | None, seconds: float | None
    ) -> int:
        self._membership_state.check_partition(partition)
        append = append_of(draft, self._options.serializer, mark)
        if seconds is None:
            seconds = self._options.append_timeout_seconds
        return await measured(
            self._metrics.of(partition),
            self._appender.append(partition, append, seconds),
            asyncio.get_running_loop().time,
        )

    async def _new_client_id(self) -> int:
        try:
            return await self._cluster.next_client_id()
        except StoreError as error:
            self._membership_state.check()
            raise ClusterUnreachable(f"ZooKeeper gave a stream no id: {error}") from error

    def _handed(self, partition: int, transactions: int) -> None:
        self._metrics.of(partition).received += transactions

    async def _data(self, partition: int, transaction_id: int) -> bytes:
        mark = self._request_client.known_mark(partition)
        if transaction_id > mark:
            # Not asked for blindly: a server of 0.13.2 never forgets that an id was missing.
            mark = await self._request_client.read_mark(partition)
        if not NO_TRANSACTION < transaction_id <= mark:
            raise TransactionNotFound(partition, transaction_id, mark)
        return await self._request_client.read_data(partition, transaction_id)

    async def _in_time(self, work: Awaitable[T], seconds: float | None, missing: str) -> T:
        if seconds is None:
            seconds = self._options.answer_timeout_seconds
        return await in_time(work, seconds, missing)

    def _deserialize(self, data: bytes) -> Any:
        serializer = self._options.serializer
        return data if serializer is None else serializer.deserialize(data)

    def _fail(self, why: Ending) -> None:
        """Have every call fail from now on; connections that are left are closed by `close`."""
        self._appender.end(why)
        self._request_client.end(why)
        for stream in self._streams:
            stream.fail(why())
