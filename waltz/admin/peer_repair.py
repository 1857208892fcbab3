"""Replace damaged records of one replica by those of another. Touches the network.

There are two users. The process of an administrator repairs a replica of one storage from another
storage (`waltz.admin.execution`). A storage repairs its own replica
(`waltz_storage.shell.self_repair`).

The records travel in their wire form. The checksums of this form cover only the data of the
records. So the destination also gets the source's range checksum, which covers each byte that the
records have on the source's disk. The destination computes the same checksum of the bytes that it
is about to write. If a byte was changed on the way, the two differ, and nothing is repaired.
"""

from __future__ import annotations

from typing import Protocol

from waltz.admin.offline_copy import CopyFailed, Progress
from waltz.admin.storage_admin import StorageAdmin
from waltz.protocol import UnsupportedByPeer
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.records import RecordBatch


class RepairTarget(Protocol):
    """Writes the records of a peer: a `StorageAdmin`, or the storage of this process itself."""

    async def repair(self, partition: int, records: RecordBatch, checksum: int) -> None:
        """Replace damaged records by ``records``, with the range checksum of the peer."""


async def repair_from_peer(
    source: StorageAdmin,
    destination: RepairTarget,
    damaged: DamagedRange,
    *,
    batch_size: int,
    progress: Progress,
) -> None:
    """Replace the records ``damaged`` at ``destination``, up to ``batch_size`` by one request.

    ``progress`` is called after each request. If a request is refused, the records of the earlier
    requests stay repaired. Raises CopyFailed, RemoteFailure, ConnectionLost, and the errors of
    ``destination``.
    """
    partition, next_id = damaged.partition, damaged.first_id
    while next_id <= damaged.last_id:
        count = min(batch_size, damaged.last_id + 1 - next_id)
        records = await source.records(partition, next_id, count)
        if not records.count or records.first_id() != next_id:
            raise CopyFailed(
                f"the source does not hold transaction {next_id} of partition {partition}, though "
                f"it must have everything up to {damaged.last_id}; repair from another storage"
            )
        last_id = next_id + records.count - 1
        try:
            range_sum = await source.range_checksum(partition, next_id, last_id)
            if range_sum.last_id != last_id:
                raise CopyFailed(
                    f"the source computes no checksum of transaction {last_id} of partition "
                    f"{partition}; repair from another storage"
                )
            await destination.repair(partition, records, range_sum.checksum)
        except UnsupportedByPeer as problem:
            raise CopyFailed(str(problem)) from problem
        next_id = last_id + 1
        progress(last_id, damaged.last_id)
