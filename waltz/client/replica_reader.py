"""Read committed records from replicas, not through servers. Touches network and ZooKeeper.

The caller names the last committed transaction to read; a replica answers only a request that names
its store session. It returns records in disk form, and the caller verifies them. If another session
has begun by the time of the answer, its recovery may have cut the replica before it answered.
Therefore the session is read from the metadata again after each answer, and an answer of an older
session is dropped (spec/wire.md section 10). A storage of an older version counts as one that
refused.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import PartitionMetadata
from waltz.metadata.kazoo_store import KazooStore
from waltz.net import ConnectionLost, DialFailed, RemoteFailure, RpcConnection, TlsConfig
from waltz.protocol import UnsupportedByPeer
from waltz.protocol.storage import StoredRecordListRequest, StoredRecordListResponse
from waltz.protocol.stored import StoredBatch

_SESSION_MS = 30_000
_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class WantedRecords:
    """Records of one partition from ``first`` to at most ``last``, which is committed."""

    partition: int
    first: int
    last: int
    rows: int
    size: int


class Replicas:
    """Connections to the storages of one cluster, opened on first use."""

    def __init__(self, store: KazooStore, root: str, tls: TlsConfig) -> None:
        self._store = store
        self._cluster = Cluster(store, root)
        self._tls = tls
        self._open: dict[str, RpcConnection] = {}
        self._sessions: dict[int, PartitionMetadata] = {}
        """The metadata of each partition as last read."""

    @classmethod
    async def connect(
        cls, zookeeper: str, root: str, tls: TlsConfig, *, connect_seconds: float
    ) -> Replicas:
        """Open a session with ZooKeeper. Raises ConnectFailed."""
        store = await KazooStore.connect(zookeeper, _SESSION_MS, connect_timeout_s=connect_seconds)
        return cls(store, root, tls)

    async def records(self, wanted: WantedRecords) -> StoredBatch | None:
        """Return at least one record, unchecked, from the first on; None if no replica has any.

        Cached metadata only chooses the replica. Metadata read after the answer decides whether
        the answer counts (`test_replicas_are_read_across_failures_and_sessions`).
        """
        metadata = self._sessions.get(wanted.partition) or await self._read_metadata(
            wanted.partition
        )
        for storage in _rotated(metadata, wanted):
            found = await self._request_records(storage, metadata.session_id, wanted)
            if found is None:
                continue
            now = await self._read_metadata(wanted.partition)
            return found if now.session_id == metadata.session_id else None
        await self._read_metadata(wanted.partition)
        return None

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        await self._store.close()

    async def _read_metadata(self, partition: int) -> PartitionMetadata:
        metadata = (await self._cluster.partition_metadata(partition)).value
        self._sessions[partition] = metadata
        return metadata

    async def _request_records(
        self, storage: str, session_id: int, wanted: WantedRecords
    ) -> StoredBatch | None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                connection = await self._connection(storage)
                answer = await connection.call(
                    lambda seq: StoredRecordListRequest(
                        session_id,
                        seq,
                        wanted.partition,
                        wanted.first,
                        wanted.last,
                        wanted.rows,
                        wanted.size,
                    )
                )
        except (TimeoutError, ConnectionLost, DialFailed, RemoteFailure, UnsupportedByPeer):
            return None
        assert isinstance(answer, StoredRecordListResponse)
        return answer.records if answer.records.count else None

    async def _connection(self, storage: str) -> RpcConnection:
        connection = self._open.get(storage)
        if connection is None or connection.closed:
            params = await self._cluster.store_params()
            host, _, port = storage.rpartition(":")
            connection = self._open[storage] = await RpcConnection.open_storage(
                (host, int(port)), self._tls, (params.key, params.num_partitions)
            )
        return connection


def _rotated(metadata: PartitionMetadata, wanted: WantedRecords) -> list[str]:
    """Return the replicas of the session in an order that differs between tasks."""
    taking_part = sorted(filter(metadata.takes_part, metadata.replicas))
    turn = hash((wanted.partition, wanted.last)) % max(1, len(taking_part))
    return taking_part[turn:] + taking_part[:turn]
