"""Sample a cluster repeatedly over lasting connections. Touches ZooKeeper and the network.

Sampling changes nothing: it begins no store session, takes no client id from the counter in
ZooKeeper, and raises no fence. (A storage refuses requests of sessions below the fence, so a raised
fence would stop a server.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Self

from waltz.admin.core.sample import Sample, ServerSample, StorageSample
from waltz.admin.core.storage_figures import storage_figures
from waltz.admin.inspection import read_nodes
from waltz.admin.server_query import RequestRefused, ServerQuery, ServerUnreachable
from waltz.admin.storage_admin import StorageAdmin
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import UNRESOLVED, ServerDescriptor, StoreParams
from waltz.net import (
    TCP,
    ConnectionLost,
    DialFailed,
    DialRefused,
    Network,
    RemoteFailure,
    TlsConfig,
    join_address,
)


class Monitor:
    """Samples one cluster; an async context manager.

    A server or storage that does not answer is reported as a problem. A storage has
    ``timeout_seconds`` for its whole answer, a server for the handshake and again for each request,
    but at most twice ``timeout_seconds`` for all of them. With ``details``, servers also report the
    health of their partitions, and storages their figures (`core.storage_figures`).

    Connections stay open between samples. If one has ended since the last sample, this is no
    problem yet, because the process may have restarted: the sample opens a new one. After any other
    error, the connection is closed, and the next sample opens a new one.
    """

    def __init__(
        self,
        cluster: Cluster,
        tls: TlsConfig,
        *,
        timeout_seconds: float,
        details: bool = False,
        network: Network = TCP,
    ) -> None:
        self._cluster = cluster
        self._tls = tls
        self._timeout_seconds = timeout_seconds
        self._details = details
        self._network = network
        self._servers: dict[tuple[str, int], ServerQuery] = {}
        """The open connections to servers, by host and port."""
        self._storages: dict[tuple[str, int], StorageAdmin] = {}
        """The open connections to storages, by the storage and its admin port."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.close()
        for storage in self._storages.values():
            storage.close()

    async def sample(self) -> Sample:
        """Read from ZooKeeper which processes there are; then query them all concurrently.

        The metadata of the partitions are read while the processes are queried, so an answer may be
        older or newer than the metadata. The queries end within twice ``timeout_seconds``, so a
        sample that takes longer waits for ZooKeeper. Raises NoCluster, MalformedMetadata.
        """
        params = await self._cluster.store_params()
        membership, maps = await self._cluster.membership(), await self._cluster.storage_maps()
        members, ports = membership.servers(), maps.connections.admin_ports
        queries = asyncio.gather(self._query_servers(members), self._query_storages(ports, params))
        try:
            nodes = await read_nodes(self._cluster, params.num_partitions)
            servers, storages = await queries
        finally:
            # If ZooKeeper fails, the next sample must find no query of this one on a connection.
            if queries.cancel():
                await asyncio.wait([queries])
        at = asyncio.get_running_loop().time()
        return Sample(
            at,
            params.num_partitions,
            membership,
            maps,
            metadata={partition: node.metadata for partition, node in nodes.items()},
            servers=servers,
            storages=storages,
            changed_at={
                p: node.changed_at for p, node in nodes.items() if node.changed_at is not None
            },
        )

    async def _query_servers(
        self, members: Mapping[int, ServerDescriptor]
    ) -> Mapping[int, ServerSample]:
        # Two members may have the same address: a server that was killed remains a member until its
        # ZooKeeper session times out, and its successor may use the same port. One query serves
        # both, because a `ServerQuery` takes one call at a time.
        endpoints = {server: (member.host, member.port) for server, member in members.items()}
        distinct = tuple(dict.fromkeys(endpoints.values()))
        samples = await asyncio.gather(*(self._query_server(*endpoint) for endpoint in distinct))
        by_endpoint = dict(zip(distinct, samples, strict=True))
        return {server: by_endpoint[endpoint] for server, endpoint in endpoints.items()}

    async def _query_server(self, host: str, port: int) -> ServerSample:
        """Query a server; after an error, close its connection and return the problem."""
        address = host, port
        was_open = address in self._servers
        # Callers take a sample that is too late for a silence of ZooKeeper: they give it more time
        # than this limit.
        limit_seconds = 2 * self._timeout_seconds
        try:
            async with asyncio.timeout(limit_seconds):
                try:
                    return await self._server_sample(address)
                except ServerUnreachable as problem:
                    if not (was_open and isinstance(problem.__cause__, ConnectionLost)):
                        raise
                self._close_server(address)
                return await self._server_sample(address)
        except TimeoutError:
            sample = ServerSample(
                problem=f"server {join_address(host, port)} did not answer all requests within "
                f"{limit_seconds:g} s"
            )
        except ServerUnreachable as problem:
            refused = isinstance(problem.__cause__, DialRefused)
            denied = isinstance(problem, RequestRefused)
            sample = ServerSample(problem=str(problem), refused=refused, denied=denied)
        self._close_server(address)
        return sample

    async def _server_sample(self, address: tuple[str, int]) -> ServerSample:
        """Return the report of a server, over its open connection if there is one.

        Raises ServerUnreachable.
        """
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = await ServerQuery.open(
                address, self._tls, timeout_seconds=self._timeout_seconds, network=self._network
            )
        marks = await server.high_water_marks(sorted(await server.partitions()))
        return ServerSample(
            {partition: None if mark == UNRESOLVED else mark for partition, mark in marks.items()},
            health=await server.health() if self._details else None,
        )

    def _close_server(self, address: tuple[str, int]) -> None:
        """Close the connection to a server, if there is one."""
        if (server := self._servers.pop(address, None)) is not None:
            server.close()

    async def _query_storages(
        self, ports: Mapping[str, int], params: StoreParams
    ) -> Mapping[str, StorageSample]:
        samples = await asyncio.gather(
            *(self._query_storage(storage, port, params) for storage, port in ports.items())
        )
        return dict(zip(ports, samples, strict=True))

    async def _query_storage(self, storage: str, port: int, params: StoreParams) -> StorageSample:
        """Query a storage; after an error, close its connection and return the problem."""
        address = storage, port
        was_open = address in self._storages
        try:
            async with asyncio.timeout(self._timeout_seconds):
                try:
                    return await self._storage_sample(address, params)
                except ConnectionLost:
                    if not was_open:
                        raise
                self._close_storage(address)
                return await self._storage_sample(address, params)
        except TimeoutError:
            reason = f"no answer within {self._timeout_seconds:g} s"
        except (DialFailed, ConnectionLost, RemoteFailure) as problem:
            reason = str(problem)
        self._close_storage(address)
        return StorageSample(problem=reason)

    async def _storage_sample(self, address: tuple[str, int], params: StoreParams) -> StorageSample:
        """Return the report of a storage, over its open connection if there is one.

        Raises DialFailed, ConnectionLost, RemoteFailure.
        """
        admin = self._storages.get(address)
        if admin is None:
            admin = self._storages[address] = await StorageAdmin.open(
                *address, self._tls, params, self._network
            )
        states, damaged = await admin.states(), await admin.damaged_ranges()
        figures = storage_figures(await admin.metrics()) if self._details else None
        held = {each.partition: each for each in states}
        return StorageSample(held, damaged=damaged, figures=figures)

    def _close_storage(self, address: tuple[str, int]) -> None:
        """Close the connection to a storage, if there is one."""
        if (storage := self._storages.pop(address, None)) is not None:
            storage.close()
