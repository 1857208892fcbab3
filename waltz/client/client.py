"""The client of a cluster. Touches the network and ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self
from uuid import UUID

from typing_extensions import override

from waltz.client.appender import Appender
from waltz.client.batch_stream import BatchStream
from waltz.client.bulk import ClientBulk
from waltz.client.core.directory import Directory
from waltz.client.core.errors import (
    ClientAhead,
    ClusterNotFound,
    ClusterUnreachable,
    ErrorFactory,
    TransactionNotFound,
    no_answer_of_zookeeper,
)
from waltz.client.core.log_stream import LogStream
from waltz.client.core.metrics import CLIENT_GROUP, measure_append
from waltz.client.core.serializers import append_of
from waltz.client.core.values import DataT, Draft
from waltz.client.log_client import LogClient
from waltz.client.membership_state import MembershipState
from waltz.client.options import ClientOptions
from waltz.client.outside import network_for
from waltz.client.request_client import RequestClient
from waltz.client.stream import ServerStream, StreamDependencies
from waltz.client.tls_check import with_tls_of_cluster
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import ClusterParams
from waltz.metadata.membership import ClientMembership
from waltz.metadata.retry import until_answered
from waltz.metadata.store import StoreError
from waltz.net import TCP, Dialer, Network
from waltz.protocol import CLIENT_SERVER, ProtocolSpec
from waltz.protocol.records import NO_TRANSACTION, ReqId
from waltz.runtime.core.json_metrics import JsonKind


class Client(LogClient[DataT]):
    """The client of a cluster, which `waltz.connect` opens."""

    def __init__(
        self,
        cluster: Cluster,
        params: ClusterParams,
        client_id: int,
        options: ClientOptions,
        *,
        owns_store: bool,
        spec: ProtocolSpec = CLIENT_SERVER,
        network: Network = TCP,
    ) -> None:
        self._cluster = cluster
        self._owns_store = owns_store
        self._closing: asyncio.Task[None] | None = None
        """The task of `_close`, which the first call of `close` starts."""
        assert options.tls is not None, "`over` sets it"
        self._dialer = Dialer(options.tls, spec, network)
        self._directory = Directory()
        self._request_client = RequestClient(client_id, self._directory, self._dialer)
        self._appender = Appender(
            client_id,
            self._directory,
            self._dialer,
            self._request_client,
            max_in_flight=options.max_in_flight,
            long_wait_seconds=options.long_wait_seconds,
        )
        super().__init__(
            options,
            self._appender,
            cluster_name=params.name,
            num_partitions=params.num_partitions,
            client_id=client_id,
        )
        self._metrics.json.add(
            CLIENT_GROUP,
            "wrong-stored-ranges",
            JsonKind.COUNTER,
            read=lambda: self._request_client.wrong_stored_ranges,
        )
        self._streams: set[ServerStream[Any] | BatchStream] = set()
        self._membership_state = MembershipState(
            ClientMembership(cluster, self._directory.replace),
            client_id,
            params.num_partitions,
            on_failure=self._fail,
        )

    @classmethod
    async def over(
        cls,
        cluster: Cluster,
        options: ClientOptions,
        *,
        owns_store: bool = False,
        spec: ProtocolSpec = CLIENT_SERVER,
        network: Network = TCP,
    ) -> Self:
        """Open a client of a cluster whose metadata store is already open.

        With ``owns_store``, closing the client closes the metadata store. ``spec`` has the protocol
        versions that the client offers to servers; tests offer fewer versions to act as an older
        client. ``network`` opens the connections: to the outside addresses of servers if
        ``options.access`` is ``"outside"``, otherwise to the registered ones. Without
        ``options.tls`` the client uses TLS unless the servers have declared plaintext. Raises
        ClusterNotFound or ClusterUnreachable.
        """
        try:
            async with asyncio.timeout(options.connect_timeout):
                params = await cluster.params()
                options = await with_tls_of_cluster(cluster, options)
                client_id = await cluster.next_client_id()
        except NoCluster as error:
            raise ClusterNotFound(str(error)) from None
        except (MalformedMetadata, StoreError) as error:
            raise ClusterUnreachable(str(error)) from error
        except TimeoutError:
            raise no_answer_of_zookeeper(options.connect_timeout) from None
        return cls(
            cluster,
            params,
            client_id,
            options,
            owns_store=owns_store,
            spec=spec,
            network=network_for(cluster, options.access, network),
        )

    @property
    @override
    def pending(self) -> int:
        return self._appender.pending

    @property
    @override
    def bulk(self) -> ClientBulk:
        return ClientBulk(
            self._options, self._membership_state, self._request_client, self._appender
        )

    async def cluster_key(self) -> UUID:
        """Read the key of the cluster from ZooKeeper. No other cluster has this key.

        Waits without a limit while ZooKeeper does not answer. Raises ClusterNotFound if the cluster
        was deleted, ClusterUnreachable if ZooKeeper refuses or its data cannot be decoded.
        """
        self._check()
        try:
            return (await until_answered(self._cluster.store, self._cluster.store_params)).key
        except NoCluster as error:
            raise ClusterNotFound(str(error)) from None
        except (MalformedMetadata, StoreError) as error:
            self._check()  # If the client was closed meanwhile, closing it has caused the error.
            raise ClusterUnreachable(str(error)) from error

    @override
    async def close(self) -> None:
        is_first_call = self._membership_state.close()  # From now on `_check` raises ClientClosed.
        if is_first_call:
            self._closing = asyncio.create_task(self._close())
        # If this call is cancelled, the task still closes everything.
        assert self._closing is not None
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        """Close streams and connections, and the metadata store if it is the client's own."""
        for stream in list(self._streams):
            await stream.aclose()
        await self._appender.close()
        await self._request_client.close()
        await self._membership_state.end()  # Stops following the servers in ZooKeeper.
        if self._owns_store:
            await self._cluster.store.close()

    @override
    def _check(self, partition: int | None = None) -> None:
        self._membership_state.check(partition)

    @override
    async def _append(
        self, partition: int, draft: Draft[DataT], mark: int | None, seconds: float | None
    ) -> int:
        self._check(partition)
        append = append_of(draft, self._options.serializer, mark)
        if seconds is None:
            seconds = self._options.append_timeout
        return await measure_append(
            self._metrics.of(partition),
            self._appender.append(partition, append, seconds),
            asyncio.get_running_loop().time,
        )

    @override
    async def _mount(self, partition: int, mark: int | None = None) -> int:
        return await self._appender.mount(partition, mark)

    @override
    def _stream(
        self, marks: Mapping[int, int], ends: Mapping[int, int], data: bool
    ) -> LogStream[Any]:
        dependencies = StreamDependencies(
            directory=self._directory,
            dialer=self._dialer,
            request_client=self._request_client,
            new_client_id=self._new_client_id,
            deserializer=self._deserializer,
            buffer=self._options.stream_buffer,
            count_received=self._count_received,
            on_end=self._streams.discard,
        )
        stream: ServerStream[Any] = ServerStream(dependencies, marks, ends, data=data)
        self._streams.add(stream)
        return stream

    @override
    def _batches(self, marks: Mapping[int, int], ends: Mapping[int, int]) -> BatchStream:
        stream = BatchStream(
            self._request_client,
            marks,
            ends,
            count_received=self._count_received,
            on_end=self._streams.discard,
        )
        self._streams.add(stream)
        return stream

    @override
    async def _read_data(self, partition: int, transaction_id: int) -> bytes:
        if transaction_id <= NO_TRANSACTION:
            mark = self._request_client.known_mark(partition)
            raise TransactionNotFound(partition, transaction_id, mark)
        try:
            # A server of Waltz 0.13.2 that does not find a transaction answers "not found" for this
            # id forever. So never request data of a transaction that may not exist yet.
            await self._request_client.check_mark(partition, transaction_id)
        except ClientAhead as ahead:
            raise TransactionNotFound(partition, transaction_id, ahead.log_mark) from None
        return await self._request_client.read_data(partition, transaction_id)

    @override
    async def _read_mark(self, partition: int) -> int:
        return await self._request_client.read_mark(partition)

    @override
    async def _check_mark(self, partition: int, mark: int) -> None:
        await self._request_client.check_mark(partition, mark)

    @override
    async def _wait_for_outcome(self, req_id: ReqId) -> bool:
        return await self._appender.wait_for_outcome(req_id)

    @override
    def _problems(self) -> str:
        return self._appender.problems()

    @override
    async def _flush(self) -> None:
        await self._appender.flush()

    async def _new_client_id(self) -> int:
        """Return a new client id, for a stream. Raises ClusterUnreachable."""
        try:
            return await self._cluster.next_client_id()
        except (MalformedMetadata, NoCluster) as error:
            raise ClusterUnreachable(f"ZooKeeper has no client id for a stream: {error}") from error
        except StoreError as error:
            self._check()  # If the client was closed meanwhile, closing it has caused the error.
            raise ClusterUnreachable(
                f"ZooKeeper assigned no client id to a stream: {error}; check that a majority of "
                "its servers is running"
            ) from error

    def _fail(self, why: ErrorFactory) -> None:
        """Make every present and later call fail with the error that ``why`` returns.

        `close` must still close the connections.
        """
        self._appender.end(why)
        self._request_client.end(why)
        for stream in self._streams:
            stream.fail(why())
