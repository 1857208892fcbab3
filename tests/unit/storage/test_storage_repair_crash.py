"""The repair of records of random logs, with random damage, true and false peers, and crashes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from tests.support.inline_engine import InlineEngine
from waltz.protocol import admin, storage
from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.log.flushed_end import KnownLog
from waltz_storage.core.log.log_opening import open_log
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.partition_log import PartitionLog
from waltz_storage.core.log.segment_files import LogIdentity
from waltz_storage.core.log.segment_format import HEADER_BYTES
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.shell.wal_engine import WalEngine, WalOptions

KEY = uuid.UUID(int=5)
PARTITION = 1
EVERYTHING = 1 << 40
DIRECT_BYTES = 700
"""With the engine wal, some repairs are written directly, and most are copied to the log."""
SIZES = (0, 1, 10, 40, 300, 700, 5000)


@dataclass
class Replica:
    """A storage with one partition, on a disk that may have crashed."""

    disk: MemoryDisk
    threshold: int
    with_wal: bool

    def __post_init__(self) -> None:
        wal = WalOptions(32 * BLOCK_BYTES, lambda: 0.0, direct_bytes=DIRECT_BYTES)
        self.wal = WalEngine(wal) if self.with_wal else None
        options = LogOptions(lambda: 9, self.threshold, open_segments=2, allocate_bytes=0)
        self.directory = StorageDirectory(self.disk, KEY, 2, options, wal=self.wal)
        self.engine = InlineEngine(self.directory)

    @property
    def log(self) -> PartitionLog:
        return self.directory.partition(PARTITION).log

    @property
    def is_refused(self) -> bool:
        return PARTITION in self.directory.refused

    def ask(self, request: Any) -> None:
        assert isinstance(self.engine.ask(request), storage.SuccessResponse)

    def fill(self, records: Sequence[Record], mark: int) -> None:
        """Append ``records``; those up to ``mark`` belong to an earlier store session."""
        self.directory.assign(PARTITION)
        first, second = RecordBatch.of(records[: mark + 1]), RecordBatch.of(records[mark + 1 :])
        self.ask(storage.AppendRequest(-1, 1, PARTITION, first))
        self.ask(storage.SetLowWaterMarkRequest(6, 2, PARTITION, mark))
        if second.count:
            self.ask(storage.AppendRequest(6, 3, PARTITION, second))
        self.directory.flush_marks()
        if self.wal is not None:
            # The second checkpoint makes the header of the first one durable: a start replays
            # nothing, which would write undamaged records again.
            self.wal.commits.checkpoint()
            self.wal.commits.checkpoint()

    def damaged(self) -> set[int]:
        found: set[int] = set()
        next_id = 0
        while next_id < self.log.next_id:
            checked = self.log.check(next_id, EVERYTHING)
            found.update(checked.damaged)
            next_id = checked.next_id
        return found

    def undamaged(self) -> dict[int, bytes]:
        """Return each record that can be read, in wire form."""
        log, damaged = self.log, self.damaged()
        return {
            n: log.read_batch(n, 1, EVERYTHING).wire for n in range(log.next_id) if n not in damaged
        }

    def repair(self, peer: PartitionLog, first_id: int, last_id: int) -> bool:
        """Repair records; return whether the storage did it."""
        count = last_id - first_id + 1
        records = peer.read_batch(first_id, count, EVERYTHING)
        value = peer.scan(first_id, count, EVERYTHING, 0).checksum
        request = admin.RepairRecordsRequest(8, PARTITION, value, records)
        answer = self.engine.administer(request, 2)
        assert not self.engine.failures
        return isinstance(answer, admin.AdminSuccessResponse)

    def repair_all(self, peer: PartitionLog, mark: int) -> None:
        """Repair each damaged record up to ``mark``, and those up to the last such record."""
        while found := [n for n in sorted(self.damaged()) if n <= mark]:
            assert self.repair(peer, found[0], found[-1])


def records_of(sizes: Sequence[int], variant: int = 0) -> list[Record]:
    contents = [bytes([(n + variant) % 251]) * size for n, size in enumerate(sizes)]
    return [
        Record(n, ReqId(n, 2, PARTITION, n), n + variant, data, checksum(data))
        for n, data in enumerate(contents)
    ]


def peer_with(records: Sequence[Record]) -> PartitionLog:
    """Return the log of a peer, which has one segment."""
    identity = LogIdentity(KEY, PARTITION, str(PARTITION))
    options = LogOptions(lambda: 9, EVERYTHING, allocate_bytes=0)
    log = open_log(MemoryDisk(), identity, options, KnownLog())
    log.append(RecordBatch.of(records))
    return log


def files_of(disk: MemoryDisk) -> dict[str, bytes]:
    names = disk.names(str(PARTITION))
    return {path: disk.content(path) for path in (f"{PARTITION}/{name}" for name in names)}


def damage(disk: MemoryDisk, random: Random) -> None:
    """Change bytes behind the headers of random data and index files."""
    files = [(path, len(raw)) for path, raw in files_of(disk).items() if len(raw) > HEADER_BYTES]
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        path, size = random.choice(files)
        start = random.randrange(HEADER_BYTES, size)
        length = min(random.choice((1, 1, 8, 40, 600, 2000)), size - start)
        zeros = random.random() < 0.3
        disk.damage(path, start, bytes(length) if zeros else random.randbytes(length))


@dataclass
class Case:
    """A replica with damaged records, its peer, and what the replica had before a repair."""

    random: Random
    replica: Replica
    records: list[Record]
    mark: int
    peer: PartitionLog

    @classmethod
    def random_case(cls, seed: int, *, with_wal: bool) -> Case:
        random = Random(seed)
        sizes = random.choices(SIZES, k=random.randrange(2, 14))
        mark = random.randrange(len(sizes))
        replica = Replica(MemoryDisk(), random.choice((200, 1000, 6000, EVERYTHING)), with_wal)
        records = records_of(sizes)
        replica.fill(records, mark)
        damage(replica.disk, random)
        return cls(random, replica, records, mark, peer_with(records))

    def wanted_range(self) -> tuple[int, int]:
        """Return a range of records to repair: the damaged ones, or any."""
        found = [n for n in sorted(self.replica.damaged()) if n <= self.mark]
        if found and self.random.random() < 0.7:
            return found[0], self.random.choice(found)
        first_id = self.random.randrange(len(self.records))
        return first_id, self.random.randrange(first_id, len(self.records))


@pytest.mark.parametrize("with_wal", [False, True], ids=["files", "wal"])
@pytest.mark.parametrize("seed", range(60))
def test_repair_restores_records_or_leaves_them_damaged_at_each_crash(
    seed: int, with_wal: bool
) -> None:
    case = Case.random_case(seed, with_wal=with_wal)
    replica, random, peer, mark = case.replica, case.random, case.peer, case.mark
    truth = {n: RecordBatch.of([record]).wire for n, record in enumerate(case.records)}
    damaged, before = replica.damaged(), files_of(replica.disk)
    was_refused = Replica(replica.disk.crashed(random), replica.threshold, with_wal).is_refused
    crashes: list[MemoryDisk] = []
    replica.disk.observer = lambda: crashes.append(replica.disk.crashed(random))
    first_id, last_id = case.wanted_range()
    done = replica.repair(peer, first_id, last_id)
    replica.disk.observer = None
    left = replica.damaged()
    assert left <= damaged
    assert replica.log.next_id == len(truth)
    assert replica.undamaged().items() <= truth.items()
    # A crash during the repair leaves records damaged or repaired, one after it leaves the result.
    possible = [(disk, damaged) for disk in crashes]
    if done:
        assert not left & set(range(first_id, last_id + 1))
        possible += [(replica.disk.crashed(random), left) for _ in range(3)]
    else:
        assert files_of(replica.disk) == before
    for disk, expected in possible:
        crashed = Replica(disk, replica.threshold, with_wal)
        if crashed.is_refused:
            assert was_refused
            assert expected
            continue
        assert crashed.log.next_id == len(truth)
        assert crashed.damaged() <= expected
        assert crashed.undamaged().items() <= truth.items()
        crashed.repair_all(peer, mark)
        assert all(n > mark for n in crashed.damaged())


@pytest.mark.parametrize("with_wal", [False, True], ids=["files", "wal"])
@pytest.mark.parametrize("seed", range(100, 160))
def test_repair_from_a_peer_with_other_records_changes_no_undamaged_record(
    seed: int, with_wal: bool
) -> None:
    case = Case.random_case(seed, with_wal=with_wal)
    replica, random = case.replica, case.random
    other = list(case.records)
    for n in random.sample(range(len(other)), random.randrange(1, len(other) + 1)):
        size = len(other[n].data) + random.choice((-1, 0, 0, 0, 1, 8))
        other[n] = records_of([0] * n + [max(0, size)], 100)[n]
    peer = peer_with(other)
    undamaged, damaged = replica.undamaged(), replica.damaged()
    for _ in range(5):
        replica.repair(peer, *case.wanted_range())
        assert undamaged.items() <= replica.undamaged().items()
        assert replica.damaged() <= damaged
        assert replica.log.next_id == len(other)
