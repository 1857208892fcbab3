"""Compare the replicas that the storages of a local cluster hold."""

from __future__ import annotations

import asyncio
import time
import zlib
from pathlib import Path

from waltz.admin import StorageAdmin
from waltz.local import LocalCluster

_HEADER_BYTES = 128


async def replicas_agree(cluster: LocalCluster, seconds: float) -> None:
    """Return when all storages hold the same records, which must not be changing."""
    deadline = time.monotonic() + seconds
    while True:
        held = [await _records(cluster, index) for index in range(len(cluster.plan.storages))]
        if all(each == held[0] for each in held):
            return
        counts = [[len(records) for records in each] for each in held]
        assert time.monotonic() < deadline, f"the storages differ: {counts}"
        await asyncio.sleep(0.05)


async def _records(cluster: LocalCluster, index: int) -> list[bytes]:
    storage = cluster.plan.storages[index]
    async with cluster.metadata() as metadata:
        params = await metadata.store_params()
    opened = StorageAdmin.open(storage.address, storage.admin, cluster.tls, params)
    async with await opened as admin:
        logs: list[bytes] = []
        for partition in range(cluster.plan.shape.partitions):
            parts: list[bytes] = []
            count = 0
            while batch := await admin.records(partition, count, 1000):
                parts.append(batch.wire)
                count += batch.count
            logs.append(b"".join(parts))
        return logs


def partition_checksum(directory: Path, partition: int) -> int:
    """Return the checksum of a partition's files after a clean stop (spec/disk.md section 10)."""
    checksum = 0
    for segment in sorted((directory / str(partition)).glob("*.seg")):
        checksum = zlib.crc32(segment.read_bytes()[_HEADER_BYTES:], checksum)
    return checksum
