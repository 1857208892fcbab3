"""Three storages of one cluster, each with a directory of its own, for tests of what they do alone.

The storages are real nodes with files and connections; ZooKeeper is in memory.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.storage_settings import storage_settings
from waltz.admin import StorageAdmin
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.metadata.core.storage_maps import assign_everything
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.store import MetadataStore, StoreConnectionLost
from waltz.metadata.zookeeper_access import ZooKeeperAccess
from waltz.net import PLAINTEXT, Backoff, RpcConnection
from waltz.protocol import ADMIN, STORAGE, ProtocolSpec, storage
from waltz.protocol.checksums import as_signed, crc32
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.zookeeper import MemoryZooKeeper
from waltz_storage.core.log.segment_format import HEADER_BYTES
from waltz_storage.shell.connections import ClusterIdentity
from waltz_storage.shell.environment import StorageEnvironment
from waltz_storage.shell.node import StorageNode
from waltz_storage.shell.self_repair import RepairTimes

CLUSTER = ClusterIdentity(uuid.UUID(int=9), 1)
SESSIONS = (4, 5)
RECORDS = RecordBatch.of(
    Record(n, ReqId(1, 2, 0, n), 0, b"data", as_signed(crc32(b"data"))) for n in range(10)
)
_RECORD_BYTES = len(RECORDS.wire) // RECORDS.count + 4
"""The size of a record on disk, which has one more checksum than on the wire."""
TIMES = RepairTimes(0.0, Backoff(0.01, 0.01))


@asynccontextmanager
async def running(
    path: Path,
    environment: StorageEnvironment,
    admin: ProtocolSpec = ADMIN,
    **changes: object,
) -> AsyncIterator[StorageNode]:
    """Run a storage node on the directory ``path``."""
    node = StorageNode(storage_settings(path, **changes), STORAGE, admin, environment)
    await node.start(CLUSTER)
    yield node
    await node.stop()


def ports(node: StorageNode) -> tuple[int, int]:
    assert node.listener is not None
    assert node.admin_listener is not None
    return node.listener.port, node.admin_listener.port


async def fill(node: StorageNode, records: RecordBatch = RECORDS) -> None:
    """Assign partition 0, append ``records``, and begin another session, so that the mark is 9."""
    port, admin_port = ports(node)
    identity = (CLUSTER.key, CLUSTER.num_partitions)
    async with StorageAdmin(
        await RpcConnection.open_admin(("127.0.0.1", admin_port), PLAINTEXT, identity)
    ) as administrator:
        await administrator.assign((0,))
    server = await RpcConnection.open_storage(("127.0.0.1", port), PLAINTEXT, identity)
    first, second = SESSIONS
    await server.call(
        lambda seq: storage.SetLowWaterMarkRequest(first, seq, 0, -1), storage.SuccessResponse
    )
    await server.call(
        lambda seq: storage.AppendRequest(first, seq, 0, records), storage.SuccessResponse
    )
    await server.call(
        lambda seq: storage.SetLowWaterMarkRequest(second, seq, 0, 9), storage.SuccessResponse
    )
    server.close()


class World:
    """Three directories with equal logs, and ZooKeeper."""

    def __init__(self, path: Path) -> None:
        self.paths = (path / "healthy", path / "damaged", path / "healthy-too")
        self.zookeeper = MemoryZooKeeper()
        for each in self.paths:
            each.mkdir()
        self.opened = 0
        self.unreachable = False
        self.environment = StorageEnvironment(open_store=self._open_store, repair_times=TIMES)

    async def _open_store(
        self, _address: str, _timeout_ms: int, _access: ZooKeeperAccess
    ) -> MetadataStore:
        self.opened += 1
        if self.unreachable:
            raise StoreConnectionLost("no ZooKeeper server answers")
        return self.zookeeper.connect()

    async def register(self, *nodes: tuple[str, StorageNode]) -> None:
        """Write the metadata: ``nodes``, each with its host, take part in the last session."""
        store = self.zookeeper.connect()
        numbers = {f"{host}:{ports(node)[0]}": ports(node)[1] for host, node in nodes}
        groups = {name: group for group, name in enumerate(numbers)}
        maps = assign_everything(groups, numbers, 1)
        await create_cluster(store, "/unused", "flights", 1, key=CLUSTER.key, storages=maps)
        session = SESSIONS[1]
        state = ReplicaState(session, UNRESOLVED)
        cluster = Cluster(store, "/unused")
        node = await cluster.partition_metadata(0)
        metadata = PartitionMetadata(1, session, dict.fromkeys(numbers, state))
        await cluster.write_partition_metadata(0, metadata, node.version)

    def damage(self, number: int, *records: int) -> None:
        """Change a byte of ``records`` in a directory."""
        path = self.paths[number] / "0" / "0000000000000000000.seg"
        with path.open("r+b") as segment:
            for record in records:
                segment.seek(HEADER_BYTES + record * _RECORD_BYTES + 20)
                segment.write(b"\xee")
