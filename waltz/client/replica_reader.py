"""Read committed records directly from replicas. Touches network and ZooKeeper.

The caller reads only transactions that it knows to be committed, and verifies the returned records,
which are in their form on disk. A *store session* is the period in which one server writes the
replicas of a partition (docs/concepts.md). A request names the session that the partition's
metadata in ZooKeeper have. A replica refuses the request if the session on its disk is another one.

A newer session may begin before the replica answers, and the recovery of this session may truncate
the replica. Therefore the metadata are read again after each answer, and the answer is dropped if
the session has changed (spec/wire.md section 10). A storage of an older version, which lacks the
request, is treated like a storage that refuses the request.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from waltz.client.outside import NoOutsideAddress, network_for, read_before_dial
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import PartitionMetadata, StoreParams
from waltz.metadata.core.outside_addresses import Access
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.transport import tls_of_cluster
from waltz.metadata.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from waltz.net import (
    TCP,
    ConnectionLost,
    DialFailed,
    Network,
    RemoteFailure,
    RpcConnection,
    TlsConfig,
    split_address,
)
from waltz.protocol import UnsupportedByPeer
from waltz.protocol.storage import StoredRecordListRequest, StoredRecordListResponse
from waltz.protocol.stored import StoredBatch

log = logging.getLogger(__name__)

_SESSION_MS = 30_000
"""The timeout of the session with ZooKeeper."""
_ANSWER_SECONDS = 10.0
"""How long a storage may take to connect and answer before the next one gets the request."""
SILENT_SECONDS = 60.0
"""For how long a storage that did not answer in time is the last one to get requests."""


@dataclass(frozen=True, slots=True)
class WantedRecords:
    """The records to read: those of ``partition`` from ``first_id`` to at most ``last_id``.

    ``last_id`` must be committed. One answer has at most ``max_records`` and ``max_bytes``.
    """

    partition: int
    first_id: int
    last_id: int
    max_records: int
    max_bytes: int


class ReplicaReader:
    """Reads records from the storages of one cluster. Connects to a storage on first use."""

    def __init__(
        self,
        store: KazooStore,
        root: str,
        tls: TlsConfig,
        access: Access = "inside",
        network: Network = TCP,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._cluster = Cluster(store, root)
        self._tls = tls
        self._network = network_for(self._cluster, access, network)
        self._open: dict[str, RpcConnection] = {}
        """The last connection to each storage, which may be closed by now."""
        self._warned: set[str] = set()
        """The storages of which a missing outside address was logged."""
        self._clock = clock
        self._silent_until: dict[str, float] = {}
        """For each storage that did not answer in time: until when, by the clock, it comes last."""
        self._last_metadata: dict[int, PartitionMetadata] = {}
        """For each partition the metadata that were read last."""

    @classmethod
    async def connect(
        cls,
        zookeeper: str,
        root: str,
        tls: TlsConfig | None,
        zookeeper_access: ZooKeeperAccess = OPEN_ACCESS,
        *,
        access: Access = "inside",
        connect_seconds: float,
    ) -> ReplicaReader:
        """Open a session with ZooKeeper.

        Without ``tls``, the servers' declaration in ZooKeeper says whether storages use TLS.
        ``access`` says which addresses of storages are dialed. Raises ConnectFailed,
        BadCredentials, TlsConfigError, MalformedMetadata.
        """
        store = await KazooStore.connect(
            zookeeper, _SESSION_MS, zookeeper_access, connect_timeout_s=connect_seconds
        )
        try:
            return cls(store, root, await tls_of_cluster(Cluster(store, root), tls), access)
        except BaseException:
            await store.close()
            raise

    async def read_records(self, wanted: WantedRecords) -> StoredBatch | None:
        """Return one or more unchecked records from ``wanted.first_id`` on.

        Returns None if no replica returned records, or the store session has changed: the caller
        may call again. The request uses metadata from the cache. But only metadata that are read
        after the answer decide whether the answer is valid
        (`test_replicas_are_read_across_failures_and_sessions`). Raises the errors of reading these
        metadata from ZooKeeper.
        """
        metadata = self._last_metadata.get(wanted.partition) or await self._read_metadata(
            wanted.partition
        )
        # A silent storage comes last: otherwise each request of a long read would wait for it.
        for storage in sorted(_request_order(metadata, wanted), key=self._is_silent):
            records = await self._request_records(storage, metadata.session_id, wanted)
            if records is None:
                continue
            present_metadata = await self._read_metadata(wanted.partition)
            return records if present_metadata.session_id == metadata.session_id else None
        # The cached metadata may be out of date. The next call uses those that are read here.
        await self._read_metadata(wanted.partition)
        return None

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        await self._store.close()

    def _is_silent(self, storage: str) -> bool:
        """Whether the storage failed to answer in time within the last `SILENT_SECONDS`."""
        return self._clock() < self._silent_until.get(storage, -math.inf)

    async def _read_metadata(self, partition: int) -> PartitionMetadata:
        """Read the metadata of a partition from ZooKeeper, cache and return them."""
        metadata = (await self._cluster.partition_metadata(partition)).value
        self._last_metadata[partition] = metadata
        return metadata

    async def _request_records(
        self, storage: str, session_id: int, wanted: WantedRecords
    ) -> StoredBatch | None:
        """Request records from one storage. Return None if it fails, refuses, or has no records."""
        try:
            # What a connection needs from ZooKeeper is read before the time limit begins. Otherwise
            # a slow ZooKeeper would make storages count as silent.
            params = None if self._is_connected(storage) else await self._read_before_connecting()
            async with asyncio.timeout(_ANSWER_SECONDS):
                connection = (
                    self._open[storage] if params is None else await self._connect(storage, params)
                )
                answer = await connection.call(
                    lambda seq: StoredRecordListRequest(
                        session_id,
                        seq,
                        wanted.partition,
                        wanted.first_id,
                        wanted.last_id,
                        wanted.max_records,
                        wanted.max_bytes,
                    ),
                    StoredRecordListResponse,
                )
        except NoOutsideAddress as problem:
            if storage not in self._warned:
                self._warned.add(storage)
                log.warning("no records are read from storage %s: %s", storage, problem)
            return None
        except TimeoutError:
            self._silent_until[storage] = self._clock() + SILENT_SECONDS
            log.warning(
                "storage %s did not answer within %g s: for %g s the other replicas are read first",
                storage,
                _ANSWER_SECONDS,
                SILENT_SECONDS,
            )
            return None
        except (ConnectionLost, DialFailed, RemoteFailure, UnsupportedByPeer):
            return None
        return answer.records if answer.records.count else None

    def _is_connected(self, storage: str) -> bool:
        """Whether ``_open`` has a usable connection to the storage."""
        connection = self._open.get(storage)
        return connection is not None and not connection.closed

    async def _read_before_connecting(self) -> StoreParams:
        """Read what a new connection needs from ZooKeeper; return the key and size of the cluster.

        Raises DialFailed if the outside addresses cannot be read.
        """
        params = await self._cluster.store_params()
        await read_before_dial(self._network)
        return params

    async def _connect(self, storage: str, params: StoreParams) -> RpcConnection:
        """Open a connection to a storage of the cluster with ``params``, and keep it."""
        connection = self._open[storage] = await RpcConnection.open_storage(
            split_address(storage),
            self._tls,
            (params.key, params.num_partitions),
            network=self._network,
        )
        return connection


def _request_order(metadata: PartitionMetadata, wanted: WantedRecords) -> list[str]:
    """Return the storages of the replicas that take part in the store session of ``metadata``.

    The first one gets the request first, and the others only after it has failed. A caller requests
    a long range in parts, all with the ``last_id`` of the range. So one replica serves all parts,
    while the reads of different ranges are distributed over the replicas.
    """
    taking_part = sorted(filter(metadata.takes_part, metadata.replicas))
    if not taking_part:
        return []
    first = hash((wanted.partition, wanted.last_id)) % len(taking_part)
    return taking_part[first:] + taking_part[:first]
