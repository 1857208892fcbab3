"""Reads committed records straight from replicas, past the servers. Network and ZooKeeper.

A replica answers only readers that know its store session, and only with what the reader knows to
be committed, as it is on disk: `decoding` checks it. If another session has begun by the time of
the answer, the replica may have been cut before it answered, so the answer is dropped (spec/wire.md
section 10). Storages that are too old for this count as if they had refused.
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
    """Records of one partition, from ``first`` to ``last`` at most; ``last`` is committed."""

    partition: int
    first: int
    last: int
    rows: int
    size: int


class Replicas:
    """Connections to the storages of one cluster, opened when they are first needed."""

    def __init__(self, store: KazooStore, root: str, tls: TlsConfig) -> None:
        self._store = store
        self._cluster = Cluster(store, root)
        self._tls = tls
        self._open: dict[str, RpcConnection] = {}
        self._sessions: dict[int, PartitionMetadata] = {}
        """Of each partition, its metadata when it was last looked at."""

    @classmethod
    async def connect(
        cls, zookeeper: str, root: str, tls: TlsConfig, *, connect_seconds: float
    ) -> Replicas:
        """Open a session with ZooKeeper. Raises ConnectFailed."""
        store = await KazooStore.connect(zookeeper, _SESSION_MS, connect_timeout_s=connect_seconds)
        return cls(store, root, tls)

    async def records(self, wanted: WantedRecords) -> StoredBatch | None:
        """Return records from the first on, at least one, unchecked; None if no replica gives any.

        Of what an earlier look at the metadata told, nothing is believed but where to ask: it is
        the look after the answer that says whether the answer counts.
        """
        metadata = self._sessions.get(wanted.partition) or await self._look(wanted.partition)
        for storage in _in_turn(metadata, wanted):
            found = await self._ask(storage, metadata.session_id, wanted)
            if found is None:
                continue
            now = await self._look(wanted.partition)
            return found if now.session_id == metadata.session_id else None
        await self._look(wanted.partition)
        return None

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        await self._store.close()

    async def _look(self, partition: int) -> PartitionMetadata:
        metadata = (await self._cluster.partition_metadata(partition)).value
        self._sessions[partition] = metadata
        return metadata

    async def _ask(
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


def _in_turn(metadata: PartitionMetadata, wanted: WantedRecords) -> list[str]:
    """Return the replicas that take part in the session; tasks begin with different ones."""
    taking_part = sorted(filter(metadata.takes_part, metadata.replicas))
    turn = hash((wanted.partition, wanted.last)) % max(1, len(taking_part))
    return taking_part[turn:] + taking_part[:turn]
