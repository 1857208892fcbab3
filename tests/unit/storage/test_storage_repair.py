"""The repair of damaged records from a peer: what it restores, what it refuses, and its crashes."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from tests.support.inline_engine import InlineEngine
from waltz.protocol import admin, storage
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.records import EMPTY_BATCH, Record, RecordBatch, ReqId, checksum
from waltz.testing.disk import MemoryDisk, MemoryFile
from waltz_storage.core.errors import DiskFailed, PartitionDamaged, RequestRefused
from waltz_storage.core.log.flushed_end import KnownLog
from waltz_storage.core.log.log_check import CheckedRecords
from waltz_storage.core.log.log_opening import open_log
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.partition_log import PartitionLog
from waltz_storage.core.log.segment_files import LogIdentity
from waltz_storage.core.log.segment_format import (
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    entry_position,
    segment_name,
)
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.shell.wal_engine import WalEngine, WalOptions

IDENTITY = LogIdentity(uuid.UUID(int=5), 3, "3")
EVERYTHING = 1 << 40
SIZES = (0, 10, 300, 1, 40, 2)
THRESHOLD = 300
"""With `SIZES`, the records 0 to 2 are in a sealed segment, and the records 3 to 5 in the tail."""


def file(first_id: int, suffix: str) -> str:
    return f"3/{segment_name(first_id)}{suffix}"


FILES = (file(0, ".seg"), file(0, ".idx"), file(3, ".seg"), file(3, ".idx"))


def batch(sizes: Sequence[int], variant: int = 0) -> RecordBatch:
    """Return records of these sizes; ``variant`` makes them different transactions."""
    contents = [bytes([(n + variant) % 251]) * size for n, size in enumerate(sizes)]
    return RecordBatch.of(
        Record(n, ReqId(n, 2, 3, -n), 100 + n + variant, data, checksum(data))
        for n, data in enumerate(contents)
    )


def options(threshold: int) -> LogOptions:
    return LogOptions(lambda: 9, threshold, open_segments=2, allocate_bytes=0)


def log_with(
    disk: MemoryDisk, sizes: Sequence[int] = SIZES, threshold: int = THRESHOLD, variant: int = 0
) -> PartitionLog:
    log = open_log(disk, IDENTITY, options(threshold), KnownLog())
    log.append(batch(sizes, variant))
    # The index entries are in the file, as after the beginning of a store session.
    log.flush_all()
    return log


def peer_with(sizes: Sequence[int] = SIZES, variant: int = 0) -> PartitionLog:
    """Return the log of a peer, which divides its records into segments differently."""
    return log_with(MemoryDisk(), sizes, EVERYTHING, variant)


def sent_by(peer: PartitionLog, first_id: int, last_id: int) -> tuple[RecordBatch, int]:
    """Return records of a peer, and the checksum that the peer computes of them."""
    count = last_id - first_id + 1
    records = peer.read_batch(first_id, count, EVERYTHING)
    assert records.count == count
    return records, peer.scan(first_id, count, EVERYTHING, 0).checksum


def repair(
    log: PartitionLog, peer: PartitionLog, first_id: int, last_id: int
) -> tuple[CheckedRecords, ...]:
    return log.repair(*sent_by(peer, first_id, last_id))


def damaged(log: PartitionLog) -> list[int]:
    found: list[int] = []
    next_id = 0
    while next_id < log.next_id:
        checked = log.check(next_id, EVERYTHING)
        found += checked.damaged
        next_id = checked.next_id
    return found


def contents(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: disk.content(path) for path in FILES}


def flip(disk: MemoryDisk, path: str, position: int) -> None:
    disk.damage(path, position, bytes([disk.content(path)[position] ^ 0x10]))


def record_at(transaction_id: int) -> tuple[str, int]:
    """Return the data file and the position of a record of `SIZES`."""
    first_id = 0 if transaction_id < 3 else 3
    before = sum(size + RECORD_OVERHEAD_BYTES for size in SIZES[first_id:transaction_id])
    return file(first_id, ".seg"), HEADER_BYTES + before


def damage(disk: MemoryDisk, *ids: int) -> None:
    """Damage the request id of each of these records of `SIZES`."""
    for transaction_id in ids:
        path, position = record_at(transaction_id)
        flip(disk, path, position + 10)


# ---- what a repair restores


def test_repair_restores_every_changed_byte_of_a_data_file() -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    original, unflushed = contents(disk), disk.unflushed
    for transaction_id, size in enumerate(SIZES):
        path, position = record_at(transaction_id)
        for offset in range(position, position + size + RECORD_OVERHEAD_BYTES):
            flip(disk, path, offset)
            assert damaged(log) == [transaction_id]
            checks = repair(log, peer, transaction_id, transaction_id)
            assert not any(checked.damaged for checked in checks)
            assert contents(disk) == original, (path, offset)
            assert disk.unflushed == unflushed


def test_repair_restores_every_changed_byte_of_an_index() -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    original = contents(disk)
    for first_id in (0, 3):
        for number in range(3):
            for offset in range(8):
                flip(disk, file(first_id, ".idx"), entry_position(number) + offset)
                found = damaged(log)
                assert not any(c.damaged for c in repair(log, peer, found[0], found[-1]))
                assert contents(disk) == original


def test_repair_of_undamaged_records_writes_nothing() -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    before = contents(disk)

    def observe() -> None:
        assert not disk.unflushed, "only flushes"

    disk.observer = observe
    assert not any(checked.damaged for checked in repair(log, peer, 0, 5))
    assert contents(disk) == before


def test_repair_of_a_range_in_two_segments_writes_only_damaged_records() -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    original = contents(disk)
    damage(disk, 1, 4)
    changes: list[None] = []
    disk.observer = lambda: changes.append(None)
    repair(log, peer, 0, 5)
    assert contents(disk) == original
    assert len(changes) == 6, "one write and the flushes of two files in each segment"


def test_damaged_records_can_be_repaired_one_after_the_other() -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    original = contents(disk)
    damage(disk, 0, 1, 2)
    for transaction_id in (0, 1, 2):
        assert transaction_id in damaged(log)
        repair(log, peer, transaction_id, transaction_id)
        assert transaction_id not in damaged(log)
    assert contents(disk) == original


def test_repair_that_ends_before_a_wrong_index_entry_restores_that_entry() -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    original = contents(disk)
    flip(disk, file(0, ".idx"), entry_position(2) + 7)
    assert damaged(log) == [1, 2]
    repair(log, peer, 1, 1)
    assert contents(disk) == original


def test_repair_finds_the_record_whose_own_index_entry_is_wrong() -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    original = contents(disk)
    flip(disk, file(0, ".idx"), entry_position(1) + 7)
    damage(disk, 1)
    repair(log, peer, 1, 1)
    assert contents(disk) == original


def test_repair_of_missing_index_entries_writes_them_again() -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    original = contents(disk)
    disk.open(file(0, ".idx")).truncate(entry_position(1))
    assert damaged(log) == [0, 1, 2]
    repair(log, peer, 0, 2)
    assert contents(disk) == original


def test_log_takes_appends_after_a_repair() -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    damage(disk, 5)
    repair(log, peer, 5, 5)
    log.append(RecordBatch.of([Record(6, ReqId(1, 2, 3, 4), 0, b"new", checksum(b"new"))]))
    assert log.read_batch(0, 10, EVERYTHING).count == 7


# ---- crashes


@pytest.mark.parametrize("seed", range(30))
def test_loss_of_power_during_a_repair_leaves_each_record_damaged_or_repaired(seed: int) -> None:
    random = Random(seed)
    sizes, threshold = (700, 900, 10, 700, 900, 10), 1808
    log, peer = log_with(disk := MemoryDisk(), sizes, threshold), peer_with(sizes)
    original = contents(disk)
    for path in (file(0, ".seg"), file(3, ".seg")):
        # This ends within the second record, and changes several sectors.
        disk.damage(path, HEADER_BYTES + 30, random.randbytes(1400))
    disk.damage(file(0, ".idx"), entry_position(1), random.randbytes(7))
    assert damaged(log) == [0, 1, 3, 4]
    crashes: list[MemoryDisk] = []
    disk.observer = lambda: crashes.append(disk.crashed(random))
    repair_both(log, peer)
    disk.observer = None
    assert contents(disk) == original
    assert len(crashes) == 7, "a write and a flush of two data files and of one index, and a flush"
    for crashed in crashes:
        reopened = open_log(crashed, IDENTITY, options(threshold), KnownLog(len(sizes) - 1))
        assert set(damaged(reopened)) <= {0, 1, 3, 4}
        repair_both(reopened, peer)
        assert contents(crashed) == original


def test_repair_flushes_records_that_an_interrupted_repair_left_unflushed() -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    original, before = contents(disk), disk.unflushed
    damage(disk, 1)
    flip(disk, file(0, ".idx"), entry_position(1))
    for path in FILES[:2]:
        disk.open(path).write(0, original[path])
    assert disk.unflushed > before
    repair(log, peer, 1, 1)
    assert disk.unflushed == before


def test_repair_writes_the_index_when_the_records_are_durable() -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    original = contents(disk)
    damage(disk, 1)
    flip(disk, file(0, ".idx"), entry_position(2))
    wrong = contents(disk)
    seen: list[tuple[bool, bool]] = []

    def observe() -> None:
        durable = next(disk.every_crash())
        seen.append(
            (
                durable.content(FILES[0]) == original[FILES[0]],
                disk.content(FILES[1]) != wrong[FILES[1]],
            )
        )

    disk.observer = observe
    repair(log, peer, 1, 1)
    assert seen == [(False, False), (True, False), (True, True), (True, True)]


def repair_both(log: PartitionLog, peer: PartitionLog) -> None:
    repair(log, peer, 0, 1)
    repair(log, peer, 3, 4)


# ---- what a repair refuses


def test_changed_byte_of_a_peer_record_is_refused() -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    damage(disk, 1)
    before = contents(disk)
    records, value = sent_by(peer, 1, 1)
    for position in range(len(records.wire)):
        for bit in range(8):
            wire = bytearray(records.wire)
            wire[position] ^= 1 << bit
            with pytest.raises(RequestRefused):
                log.repair(RecordBatch(1, bytes(wire)), value)
            assert contents(disk) == before
    with pytest.raises(RequestRefused, match="fail the checksum that the peer computed"):
        log.repair(records, value ^ 1)
    assert contents(disk) == before


def test_peer_record_whose_data_fail_their_checksum_is_refused() -> None:
    log = log_with(disk := MemoryDisk())
    damage(disk, 1)
    wrong = Record(1, ReqId(1, 2, 3, -1), 101, bytes(10), 7)
    with pytest.raises(RequestRefused, match="record 1 of the peer fails its checksum"):
        log.repair(RecordBatch.of([wrong]), 0)


REFUSALS: list[tuple[str, tuple[int, ...], Callable[[], tuple[RecordBatch, int]], str]] = [
    ("no records", (1,), lambda: (EMPTY_BATCH, 0), "the request has no records"),
    (
        "id above the log",
        (1,),
        lambda: sent_by(peer_with((*SIZES, 5)), 5, 6),
        "records 5 to 6 are not in the log, which ends with record 5",
    ),
    (
        "damaged record before the range",
        (1, 2),
        lambda: sent_by(peer_with(), 2, 2),
        "record 1 is damaged, too",
    ),
    (
        "longer record",
        (1,),
        lambda: sent_by(peer_with((0, 11, 300, 1, 40, 2)), 1, 1),
        "where record 2 does not begin",
    ),
    (
        "records of other lengths with the same sum",
        (0,),
        lambda: sent_by(peer_with((1, 9, 300, 1, 40, 2)), 0, 1),
        "record 1 is not damaged, and it differs",
    ),
    (
        "undamaged record that differs",
        (1,),
        lambda: sent_by(peer_with(variant=1), 1, 2),
        "record 2 is not damaged, and it differs",
    ),
    (
        "another last record",
        (5,),
        lambda: sent_by(peer_with(variant=1), 5, 5),
        "record 5 of the peer is not the record that was flushed",
    ),
]


@pytest.mark.parametrize(
    ("ids", "sent", "reason"), [each[1:] for each in REFUSALS], ids=[each[0] for each in REFUSALS]
)
def test_repair_that_the_log_does_not_confirm_is_refused(
    ids: tuple[int, ...], sent: Callable[[], tuple[RecordBatch, int]], reason: str
) -> None:
    log = log_with(disk := MemoryDisk())
    damage(disk, *ids)
    before = contents(disk)
    with pytest.raises(RequestRefused, match=reason):
        log.repair(*sent())
    assert contents(disk) == before


def test_repair_is_refused_if_only_the_index_is_wrong_and_the_peer_record_differs() -> None:
    log = log_with(disk := MemoryDisk())
    flip(disk, file(0, ".idx"), entry_position(1) + 7)
    before = contents(disk)
    with pytest.raises(RequestRefused, match="record 1 is not damaged, and it differs"):
        repair(log, peer_with(variant=1), 1, 1)
    assert contents(disk) == before


def test_repair_is_refused_if_a_wrong_index_puts_the_record_beyond_its_segment() -> None:
    log, size = log_with(disk := MemoryDisk()), 900
    end = record_at(1)[1] + size + RECORD_OVERHEAD_BYTES
    assert end > len(disk.content(FILES[0]))
    disk.damage(FILES[1], entry_position(2), end.to_bytes(8))
    damage(disk, 1)
    before = contents(disk)
    with pytest.raises(RequestRefused, match="of the peer do not fit"):
        repair(log, peer_with((0, size, 300, 1, 40, 2)), 1, 1)
    assert contents(disk) == before


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("size", [None, 100])
def test_repair_in_a_segment_whose_header_is_damaged_is_refused(
    path: str, size: int | None
) -> None:
    log, peer = log_with(disk := MemoryDisk()), peer_with()
    damage(disk, 1, 4)
    if size is None:
        flip(disk, path, 35)
    else:
        disk.open(path).truncate(size)
    before = contents(disk)
    with pytest.raises(PartitionDamaged) as refused:
        repair(log, peer, 0, 5)
    assert refused.value.file == path
    assert contents(disk) == before


# ---- sectors that cannot be read


class BadDisk(MemoryDisk):
    """A disk with bytes of one file that cannot be read until their whole blocks are written.

    A write to a part of such a block fails, because the operating system reads the block first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bad: tuple[str, range] | None = None

    def open(self, path: str) -> MemoryFile:
        return BadFile(self, super().open(path), path)

    def create(self, path: str) -> MemoryFile:
        return BadFile(self, super().create(path), path)


class BadFile(MemoryFile):
    def __init__(self, disk: BadDisk, opened: MemoryFile, path: str) -> None:
        super().__init__(disk, opened._inode)
        self._bad_disk = disk
        self._path = path

    def read(self, offset: int, length: int) -> bytes:
        if self._is_bad(offset, length):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(offset, length)

    def write(self, offset: int, data: bytes) -> None:
        if self._is_bad(offset, len(data)):
            assert self._bad_disk.bad is not None
            bad = self._bad_disk.bad[1]
            begin, end = bad.start // 4096 * 4096, -(-bad.stop // 4096) * 4096
            if not offset <= begin <= end <= offset + len(data):
                raise DiskFailed("a part of a block that cannot be read is written")
            self._bad_disk.bad = None
        super().write(offset, data)

    def _is_bad(self, offset: int, length: int) -> bool:
        bad = self._bad_disk.bad
        return (
            bad is not None
            and bad[0] == self._path
            and max(offset, bad[1].start) < min(offset + length, bad[1].stop)
        )


def bad_log(
    sizes: Sequence[int], bad: range, *, suffix: str = ".seg"
) -> tuple[BadDisk, PartitionLog]:
    """Return a log in one segment, of one of whose files the bytes ``bad`` cannot be read."""
    disk = BadDisk()
    log_with(disk, sizes, EVERYTHING).release()
    log = open_log(disk, IDENTITY, options(EVERYTHING), KnownLog(len(sizes) - 1))
    disk.bad = file(0, suffix), bad
    return disk, log


def test_repair_writes_whole_blocks_that_cannot_be_read() -> None:
    sizes = (5000, 5000, 5000)
    disk, log = bad_log(sizes, range(4096, 8192))
    assert damaged(log) == [0, 1]
    assert not any(checked.damaged for checked in repair(log, peer_with(sizes), 0, 1))
    assert disk.bad is None
    assert damaged(log) == []


def test_repair_that_writes_only_a_part_of_an_unreadable_block_is_refused() -> None:
    sizes = (5000, 5000, 5000)
    # The record 0 shares the block with the record 1.
    disk, log = bad_log(sizes, range(5500, 5600))
    before = disk.content(file(0, ".seg"))
    assert damaged(log) == [1]
    with pytest.raises(RequestRefused, match=r"read the block at byte 4096 of the \.seg file"):
        repair(log, peer_with(sizes), 1, 1)
    assert disk.content(file(0, ".seg")) == before


def test_repair_that_writes_only_a_part_of_an_unreadable_index_block_is_refused() -> None:
    sizes = (10,) * 600
    disk, log = bad_log(sizes, range(4096, 4200), suffix=".idx")
    # The entries from number 496 on begin at byte 4096, and the first record is damaged, too.
    flip(disk, file(0, ".seg"), HEADER_BYTES + 10)
    before = {path: disk.content(path) for path in FILES[:2]}
    with pytest.raises(RequestRefused, match=r"read the block at byte 4096 of the \.idx file"):
        repair(log, peer_with(sizes), 0, 599)
    assert {path: disk.content(path) for path in FILES[:2]} == before


# ---- requests


def engine_on(
    disk: MemoryDisk, wal: WalEngine | None = None, records: RecordBatch | None = None
) -> InlineEngine:
    """Return an engine whose partition 3 has ``records``, by default those of `SIZES`."""
    directory = StorageDirectory(disk, IDENTITY.key, 4, options(THRESHOLD), wal=wal)
    directory.assign(3)
    engine = InlineEngine(directory)
    append(engine, -1, batch(SIZES) if records is None else records)
    return engine


def append(engine: InlineEngine, session_id: int, records: RecordBatch) -> None:
    answer = engine.ask(storage.AppendRequest(session_id, 1, 3, records))
    assert isinstance(answer, storage.SuccessResponse)


def begin_session(engine: InlineEngine, mark: int) -> None:
    """Begin a store session, by which the local low-water mark becomes ``mark``."""
    answer = engine.ask(storage.SetLowWaterMarkRequest(6, 2, 3, mark))
    assert isinstance(answer, storage.SuccessResponse)


def request(first_id: int, last_id: int, partition: int = 3) -> admin.RepairRecordsRequest:
    return request_of(*sent_by(peer_with(), first_id, last_id), partition)


def request_of(records: RecordBatch, value: int, partition: int = 3) -> admin.RepairRecordsRequest:
    signed = value - (1 << 32) if value & 0x8000_0000 else value
    return admin.RepairRecordsRequest(8, partition, signed, records)


def scrub(engine: InlineEngine) -> None:
    """Note the damaged records of partition 3, as the scrubber does."""
    log, next_id = engine.directory.partition(3).log, 0
    while next_id < log.next_id:
        checked = log.check(next_id, EVERYTHING)
        engine.scrubber.findings.note(3, checked)
        next_id = checked.next_id


def known_damage(engine: InlineEngine) -> Any:
    return engine.administer(admin.DamagedRecordsRequest(7), 2).ranges


def test_repair_request_repairs_records_and_removes_them_from_the_findings() -> None:
    engine = engine_on(disk := MemoryDisk())
    begin_session(engine, 5)
    original = contents(disk)
    damage(disk, 1, 2, 4)
    scrub(engine)
    assert known_damage(engine) == (DamagedRange(3, 1, 2), DamagedRange(3, 4, 4))
    assert engine.administer(request(1, 2), 2) == admin.AdminSuccessResponse(8)
    assert known_damage(engine) == (DamagedRange(3, 4, 4),)
    assert engine.administer(request(4, 4), 2) == admin.AdminSuccessResponse(8)
    assert known_damage(engine) == ()
    assert contents(disk) == original
    assert not engine.failures


def test_repair_request_succeeds_although_a_later_record_of_the_segment_stays_damaged() -> None:
    """The check after the repair covers more records than those that the request names."""
    engine = engine_on(disk := MemoryDisk())
    begin_session(engine, 5)
    damage(disk, 1, 2)
    assert engine.administer(request(1, 1), 2) == admin.AdminSuccessResponse(8)
    assert known_damage(engine) == (DamagedRange(3, 2, 2),)


def test_repair_request_above_the_local_low_water_mark_is_refused() -> None:
    engine = engine_on(disk := MemoryDisk(), records=batch(SIZES[:4]))
    begin_session(engine, 3)
    append(engine, 6, sent_by(peer_with(), 4, 5)[0])
    damage(disk, 3, 4)
    before = contents(disk)
    answer = engine.administer(request(3, 4), 2)
    assert isinstance(answer, admin.AdminFailureResponse)
    text = str(answer.failure.message)
    assert "partition 3: only records up to the local low-water mark 3 are repaired" in text
    assert contents(disk) == before


def test_repair_request_for_a_partition_that_is_not_assigned_is_refused() -> None:
    engine = engine_on(MemoryDisk())
    text = engine.administer(request(1, 1, partition=2), 2).failure.message
    assert "Partition:2 is not assigned" in text


def test_repair_request_is_answered_with_failure_if_a_record_is_still_damaged() -> None:
    engine = engine_on(disk := MemoryDisk())
    begin_session(engine, 5)
    damage(disk, 1)
    changes: list[None] = []

    def observe() -> None:
        changes.append(None)
        if len(changes) == 2:
            # The repair has written and flushed the record: the disk damages it again.
            damage(disk, 1)

    disk.observer = observe
    text = engine.administer(request(1, 1), 2).failure.message
    assert "record 1 is still damaged after it was written again" in text
    assert known_damage(engine) == (DamagedRange(3, 1, 1),)


def test_repair_goes_through_the_write_ahead_log() -> None:
    wal = WalEngine(WalOptions(32 * BLOCK_BYTES, lambda: 0.0))
    engine = engine_on(disk := MemoryDisk(), wal)
    begin_session(engine, 5)
    wal.commits.checkpoint()
    original = {path: disk.content(path) for path in (file(0, ".seg"), file(0, ".idx"))}
    damage(disk, 1)
    scrub(engine)
    assert known_damage(engine) == (DamagedRange(3, 1, 1),)
    assert engine.administer(request(1, 1), 2) == admin.AdminSuccessResponse(8)
    assert known_damage(engine) == ()
    wal.commits.checkpoint()
    assert {path: disk.content(path) for path in original} == original


def test_repair_flushes_a_direct_write_that_an_earlier_process_left_unflushed() -> None:
    """The first process writes the record to its file, and ends before it writes to the log."""
    disk = MemoryDisk()
    wal = WalEngine(WalOptions(32 * BLOCK_BYTES, lambda: 0.0))
    engine = engine_on(disk, wal)
    begin_session(engine, 5)
    wal.commits.checkpoint()
    wal.commits.checkpoint()
    original = disk.content(file(0, ".seg"))
    damage(disk, 1)
    disk = disk.restarted()
    disk.open(file(0, ".seg")).write(0, original)
    wal = WalEngine(WalOptions(32 * BLOCK_BYTES, lambda: 0.0))
    engine = InlineEngine(StorageDirectory(disk, IDENTITY.key, 4, options(THRESHOLD), wal=wal))
    before = disk.unflushed
    assert engine.administer(request(1, 1), 2) == admin.AdminSuccessResponse(8)
    assert disk.unflushed < before
    for seed in range(20):
        crashed = disk.crashed(Random(seed))
        assert crashed.content(file(0, ".seg")) == original


LONG = batch((10, 200_000, 10))
BLOCKS_OF_LONG_RECORD = range(10 * 4096, 44 * 4096)
"""Blocks that the record 1 of `LONG` fills."""


def repair_of_unreadable_blocks(wal: WalEngine | None) -> tuple[BadDisk, bytes, Any]:
    """Repair a record whose blocks cannot be read; return the disk, what it had, the answer."""
    engine = engine_on(disk := BadDisk(), wal, LONG)
    begin_session(engine, 2)
    if wal is not None:
        wal.commits.checkpoint()
    disk.bad = file(0, ".seg"), BLOCKS_OF_LONG_RECORD
    before = disk.content(file(0, ".seg"))
    log = open_log(MemoryDisk(), IDENTITY, options(EVERYTHING), KnownLog())
    log.append(LONG)
    answer = engine.administer(request_of(*sent_by(log, 1, 1)), 2)
    assert not engine.failures
    return disk, before, answer


def test_repair_of_unreadable_blocks_without_a_write_ahead_log_writes_them() -> None:
    disk, before, answer = repair_of_unreadable_blocks(None)
    assert answer == admin.AdminSuccessResponse(8)
    assert disk.bad is None
    assert disk.content(file(0, ".seg")) == before


def test_repair_of_unreadable_blocks_through_the_write_ahead_log_is_refused() -> None:
    wal = WalEngine(WalOptions(32 * BLOCK_BYTES, lambda: 0.0))
    disk, before, answer = repair_of_unreadable_blocks(wal)
    assert "the disk cannot read the block at byte" in answer.failure.message
    wal.commits.checkpoint()
    assert disk.bad is not None
    assert disk.content(file(0, ".seg")) == before
