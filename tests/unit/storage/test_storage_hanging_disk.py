"""Test that administrators and health checks get answers while the disk of a storage hangs."""

from __future__ import annotations

import asyncio
import threading
import uuid
from pathlib import Path
from typing import Any

import aiohttp
from typing_extensions import override

from tests.support.storage_settings import storage_settings
from waltz.net import PLAINTEXT, RpcConnection
from waltz.protocol import admin, storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.shell.connections import ClusterIdentity
from waltz_storage.shell.environment import StorageEnvironment
from waltz_storage.shell.node import StorageNode

CLUSTER = ClusterIdentity(uuid.UUID(int=9), 1)
IDENTITY = (CLUSTER.key, CLUSTER.num_partitions)
RECORDS = RecordBatch.of([Record(0, ReqId(1, 2, 0, 0), 0, b"data", 5)])


class HangingDisk(MemoryDisk):
    """A disk whose flushes wait for ``released`` once ``hangs`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False
        self.flushing = threading.Event()
        self.released = threading.Event()

    @override
    def flush(self, inode: Any) -> None:
        if self.hangs:
            self.flushing.set()
            assert self.released.wait(60)
        super().flush(inode)


async def test_storage_with_hanging_disk_answers_administrators_and_health_checks() -> None:
    disk = HangingDisk()
    environment = StorageEnvironment(
        open_disk=lambda directory: disk, disk_space=lambda directory: (1 << 30, 1 << 30)
    )
    node = StorageNode(storage_settings(Path("/in-memory"), http_port=0), environment=environment)
    await node.start(CLUSTER)
    assert node.listener is not None
    assert node.admin_listener is not None
    administrator = await RpcConnection.open_admin(
        ("127.0.0.1", node.admin_listener.port), PLAINTEXT, IDENTITY
    )
    server = await RpcConnection.open_storage(
        ("127.0.0.1", node.listener.port), PLAINTEXT, IDENTITY
    )
    await administrator.call(
        lambda seq: admin.PartitionAssignmentRequest(seq, (0,), True, False),
        admin.AdminSuccessResponse,
    )
    await administrator.call(
        lambda seq: admin.PartitionAvailableRequest(seq, (0,), True), admin.AdminSuccessResponse
    )
    await server.call(
        lambda seq: storage.SetLowWaterMarkRequest(1, seq, 0, -1), storage.SuccessResponse
    )
    disk.hangs = True
    append = asyncio.ensure_future(
        server.call(lambda seq: storage.AppendRequest(1, seq, 0, RECORDS), storage.SuccessResponse)
    )
    await asyncio.to_thread(disk.flushing.wait, 60)
    try:
        states = await administrator.call(
            admin.PartitionStatesRequest, admin.PartitionStatesResponse
        )
        assert [state.partition for state in states.states] == [0]
        async with node.http() as port, aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/health") as answer:
                assert answer.status == 200
            async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
                assert answer.status == 200
        assert not append.done()
    finally:
        disk.released.set()
    assert isinstance(await append, storage.SuccessResponse)
    server.close()
    administrator.close()
    await node.stop()
