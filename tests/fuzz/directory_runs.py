"""Create storage directories to damage, by the storage engine, from a seed. In memory.

Every record can be verified: its data follows from its id and its header.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from tests.support.inline_engine import InlineEngine
from waltz.protocol import admin, storage
from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory

KEY = uuid.UUID("0f0e0d0c-0b0a-0908-0706-050403020100")
PARTITIONS = 3
_THRESHOLDS = (200, 1500, 40_000)
_LONG_RECORDS = 1000
"""About as many as between two checkpoints; too many for small segments."""

Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class UsedDirectory:
    """The directory of a node that has ended: its files, earlier states, and how to open them."""

    files: Files
    earlier: tuple[Files, ...]
    options: LogOptions


@lru_cache(maxsize=1 << 16)
def record(transaction_id: int, lineage: int) -> Record:
    """Return the record of an id in a lineage; each truncation begins another lineage."""
    random = Random(transaction_id * 1000 + lineage)
    data = random.randbytes(random.choice((0, 5, 30, 120)))
    return Record(transaction_id, ReqId(1, 0, 0, transaction_id), lineage, data, checksum(data))


def is_genuine(found: Record) -> bool:
    """Return whether a record is an appended one, unchanged."""
    return found == record(found.transaction_id, found.header)


def batch(first_id: int, count: int, lineage: int) -> RecordBatch:
    """Return consecutive records."""
    return RecordBatch.of(record(first_id + n, lineage) for n in range(count))


def disk_of(files: Files) -> MemoryDisk:
    """Return a disk on which these files are durable."""
    disk = MemoryDisk()
    for path, content in files.items():
        folder = path.rpartition("/")[0]
        if not disk.exists(folder):
            disk.make_directory(folder)
            disk.flush_directory("")
        file = disk.create(path)
        file.write(0, content)
        file.flush()
        file.close()
        disk.flush_directory(folder)
    return disk


def files_of(disk: MemoryDisk) -> Files:
    """Return the files on a disk."""
    folders = ["", *(d for d in disk.directories if d)]
    paths = [f"{d}/{name}" if d else name for d in folders for name in disk.names(d)]
    return {path: disk.content(path) for path in paths if path not in disk.directories}


@lru_cache(maxsize=200)
def used_directory(seed: int) -> UsedDirectory:
    """Run a node with random requests and end it, cleanly or not."""
    return _NodeRun(Random(seed)).run()


@dataclass
class _NodeRun:
    random: Random
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    session: int = 1
    threshold: int = 0
    lineage: int = 0

    def run(self) -> UsedDirectory:
        random = self.random
        allocate = random.choice((0, 700))
        self.threshold = random.choice(_THRESHOLDS)
        options = LogOptions(lambda: 7, self.threshold, 2, allocate)
        directory = StorageDirectory(self.disk, KEY, PARTITIONS, options)
        self.engine = InlineEngine(directory)
        for partition in random.sample(range(PARTITIONS), random.choice((1, 2, 3))):
            self._administer(admin.PartitionAssignmentRequest(1, (partition,), True, False))
        earlier = []
        for _ in range(random.choice((1, 4, 12))):
            self._step()
            earlier.append(files_of(self.disk))
        if random.random() < 0.5:
            directory.close()
        return UsedDirectory(files_of(self.disk), tuple(earlier[-4:]), options)

    def _step(self) -> None:
        random = self.random
        opened = list(self.engine.directory.partitions)
        if not opened:
            return
        partition = random.choice(opened)
        match random.choice(("append",) * 4 + ("mark", "mark", "truncate", "switch", "long")):
            case "append":
                self._append(partition, random.choice((1, 3, 20)))
            case "long" if self.threshold == max(_THRESHOLDS) and random.random() < 0.3:
                self._append(partition, _LONG_RECORDS + random.choice((-10, 100)))
            case "mark":
                self.session += 1
                mark = self._max_id(partition)
                self._ask(storage.SetLowWaterMarkRequest(self.session, 1, partition, mark))
            case "truncate":
                mark = self.engine.directory.info(partition).local_low_water_mark
                target = random.randint(mark, max(mark, self._max_id(partition)))
                self._ask(storage.TruncateRequest(self.session, 1, partition, target))
                self.lineage += 1
            case "switch" if random.random() < 0.3:
                self._administer(admin.PartitionAssignmentRequest(1, (partition,), False, False))

    def _append(self, partition: int, count: int) -> None:
        records = batch(self._max_id(partition) + 1, count, self.lineage)
        self._ask(storage.AppendRequest(self.session, 1, partition, records))

    def _max_id(self, partition: int) -> int:
        return self.engine.directory.partition(partition).log.max_id

    def _ask(self, request: storage.Request) -> None:
        answer = self.engine.ask(request)
        assert not isinstance(answer, storage.FailureResponse), answer
        assert not self.engine.failures

    def _administer(self, request: admin.Request) -> None:
        assert isinstance(self.engine.administer(request), admin.AdminSuccessResponse)
