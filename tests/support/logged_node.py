"""A storage directory with the engine ``wal``, by default without threads."""

from __future__ import annotations

import queue
import uuid
from typing import Any

from tests.support.inline_engine import InlineEngine
from waltz.protocol import storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.disk import Disk
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.operations import Operation
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.core.wal.transaction_blocks import Transaction
from waltz_storage.core.wal.wal_file import WAL_FILE, BlockReader
from waltz_storage.core.wal.wal_header import HEADER_BLOCKS, decode_wal_header
from waltz_storage.core.wal.wal_scan import scan_transactions
from waltz_storage.shell.wal_commits import DIRECT_BYTES, WalCommits
from waltz_storage.shell.wal_engine import WalEngine, WalOptions

KEY = uuid.UUID("12345678-1234-5678-9abc-def012345678")
PARTITIONS = 5
OPTIONS = LogOptions(lambda: 1, 40_000, allocate_bytes=4096)
SEGMENT = "0/0000000000000000000.seg"


class LoggedNode:
    """A storage directory with the engine ``wal``; all partitions are assigned.

    The log has ``blocks`` blocks. With ``in_background``, checkpoints are made on a thread, and
    ``failures`` are the errors that would end the process. Data of at least ``direct_bytes`` are
    written to their files and not to the log. ``wal_disk`` is the disk of the log, None if that is
    ``disk``.
    """

    def __init__(
        self,
        disk: MemoryDisk,
        blocks: int = 32,
        *,
        in_background: bool = False,
        direct_bytes: int = DIRECT_BYTES,
        wal_disk: MemoryDisk | None = None,
    ) -> None:
        self.disk = disk
        self.failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self.now = 0.0
        wal = WalEngine(
            WalOptions(
                wal_bytes=blocks * BLOCK_BYTES,
                clock=lambda: self.now,
                fail=self.failures.put if in_background else None,
                direct_bytes=direct_bytes,
                directory=wal_disk,
            )
        )
        self.directory = StorageDirectory(disk, KEY, PARTITIONS, OPTIONS, wal=wal)
        for partition in range(PARTITIONS):
            self.directory.assign(partition)
        self.engine = InlineEngine(self.directory)
        self.commits: WalCommits = wal.commits

    @staticmethod
    def opened(
        disk: MemoryDisk, blocks: int = 32, wal_disk: MemoryDisk | None = None
    ) -> StorageDirectory:
        """Open the directory on ``disk``, which an earlier process has used; assign nothing."""
        wal = WalEngine(WalOptions(blocks * BLOCK_BYTES, lambda: 0.0, directory=wal_disk))
        return StorageDirectory(disk, KEY, PARTITIONS, OPTIONS, wal=wal)

    def append(self, partition: int, size: int = 200) -> Any:
        """Append the next record of a partition, with ``size`` bytes of data; return the answer."""
        return self.engine.ask(self.request(partition, size))

    def request(self, partition: int, size: int = 200) -> storage.AppendRequest:
        """Return the request to append the next record of a partition."""
        number = self.directory.partition(partition).log.next_id
        record = Record(number, ReqId(1, 2, partition, number), 0, bytes(size), 7)
        return storage.AppendRequest(-1, number, partition, RecordBatch.of([record]))

    def lengths(self) -> list[int]:
        """Return how many records of each log can be read."""
        return lengths(self.directory)


def lengths(directory: StorageDirectory) -> list[int]:
    """Return how many records of each log can be read."""
    return [
        directory.partition(partition).log.read_batch(0, 1 << 30, 1 << 30).count
        for partition in range(PARTITIONS)
    ]


def plain(disk: Disk) -> StorageDirectory:
    """Open a directory with the engine ``files``."""
    return StorageDirectory(disk, KEY, PARTITIONS, OPTIONS)


def used(disk: MemoryDisk) -> int:
    """Return how many bytes all files on ``disk`` have together."""
    size = 0
    for directory in ("", *map(str, range(PARTITIONS))):
        paths = [f"{directory}/{name}".lstrip("/") for name in disk.names(directory)]
        size += sum(len(disk.content(path)) for path in paths if path not in disk.directories)
    return size


def logged_operations(disk: MemoryDisk) -> list[Operation]:
    """Return all operations in the log on ``disk`` since its checkpoint."""
    raw = disk.content(WAL_FILE)[: HEADER_BLOCKS * BLOCK_BYTES]
    header = decode_wal_header(raw[:BLOCK_BYTES], raw[BLOCK_BYTES:])
    reader = BlockReader(disk.open(WAL_FILE))
    return [
        operation
        for found in scan_transactions(header, reader.read_block)
        if isinstance(found, Transaction)
        for operation in found.operations
    ]
