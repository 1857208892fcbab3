"""The opening of a write-ahead log after crashes, damage, and mixtures of volumes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.logged_world import Crash, LoggedWorld, replayed, state_on
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.errors import DiskFailed
from waltz_storage.core.wal.catalogue import (
    FIRST_REGION,
    ROW_BYTES,
    CatalogueDamaged,
    FileKind,
    FileName,
    present,
    write_row,
)
from waltz_storage.core.wal.checksums import DEFAULT
from waltz_storage.core.wal.logged_file_state import path_of
from waltz_storage.core.wal.operations import Address, Check, Operation, WriteData
from waltz_storage.core.wal.region_files import CATALOGUE_FILE
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.core.wal.transaction_blocks import blocks_of
from waltz_storage.core.wal.wal_file import WAL_FILE
from waltz_storage.core.wal.wal_header import HEADER_BLOCKS, HeaderDamaged
from waltz_storage.core.wal.wal_replay import VolumesDiffer
from waltz_storage.core.wal.wal_scan import WalDamaged

A, B = FileName(FileKind.DATA, 0, 0), FileName(FileKind.DATA, 1, 0)
PATH_A = path_of(A)
SEEDS = st.integers(0, 1 << 32)
MOST_SUBSETS = 6
"""With more unflushed changes than this, crashes are chosen at random."""


def every_crash(disk: MemoryDisk) -> list[MemoryDisk]:
    return list(disk.every_crash()) if disk.unflushed <= MOST_SUBSETS else []


def with_files(random: Random, blocks: int = 12) -> tuple[LoggedWorld, int, int]:
    """Return a world with the files A and B, which a checkpoint has passed, and their regions."""
    world = LoggedWorld.create(random, blocks)
    regions = world.logged.files.catalogue.new_region(), world.logged.files.catalogue.new_region()
    rows = [write_row(region, present(file)) for region, file in zip(regions, (A, B), strict=True)]
    world.logged.commit(rows)
    world.logged.checkpoint()
    return world, *regions


def write_data(region: int, offset: int, data: bytes) -> WriteData:
    return WriteData(Address(region, offset), data)


def reopened(disk: MemoryDisk) -> LoggedWorld:
    return LoggedWorld(disk, Random(1))


@settings(max_examples=4, deadline=None)
@given(SEEDS)
def test_every_crash_of_a_short_trace_replays_to_an_acknowledged_state(seed: int) -> None:
    random = Random(seed)
    world = LoggedWorld.create(random)
    world.record_crashes(every_crash)
    for _ in range(3):
        world.step()
    world.finish_checkpoint()
    for crash in random.sample(world.crashes, min(len(world.crashes), 400)):
        replayed(crash, random)


@settings(max_examples=6, deadline=None)
@given(SEEDS, st.integers(8, 30))
def test_replay_after_a_random_crash_in_a_long_run_gives_an_acknowledged_state(
    seed: int, blocks: int
) -> None:
    random = Random(seed)
    world = LoggedWorld.create(random, blocks)
    world.record_crashes(lambda disk: [disk.crashed(random)] if random.random() < 0.1 else [])
    for _ in range(60):
        world.step()
    for crash in world.crashes:
        replayed(crash, random)


@settings(max_examples=6, deadline=None)
@given(SEEDS)
def test_replay_that_is_interrupted_again_and_again_leaves_the_same_state(seed: int) -> None:
    random = Random(seed)
    world = LoggedWorld.create(random)
    world.record_crashes(lambda disk: [disk.crashed(random)] if random.random() < 0.03 else [])
    for _ in range(40):
        world.step()
    for crash in world.crashes:
        for _ in range(3):
            again: list[MemoryDisk] = []
            disk = crash.disk.restarted()
            disk.observer = lambda disk=disk, again=again: again.append(disk.crashed(random))
            replayed(Crash(disk, crash.states, crash.direct), random)
            crash = Crash(random.choice(again), crash.states, crash.direct)


@settings(max_examples=6, deadline=None)
@given(SEEDS)
def test_state_that_a_replay_has_left_survives_the_next_crash(seed: int) -> None:
    """What was dropped stays dropped, and what was kept stays, even if it was only in a cache."""
    random = Random(seed)
    world = LoggedWorld.create(random)
    world.record_crashes(
        lambda disk: (
            [random.choice((disk.restarted, lambda: disk.crashed(random)))()]
            if random.random() < 0.05
            else []
        )
    )
    for _ in range(40):
        world.step()
    for crash in world.crashes:
        opened, _ = replayed(crash, random)
        later = reopened(opened.disk.crashed(random))
        assert crash.without_dropped_data(later.state) == crash.without_dropped_data(opened.state)


@settings(max_examples=6, deadline=None)
@given(SEEDS)
def test_log_keeps_its_state_over_several_crashes_and_replays(seed: int) -> None:
    random = Random(seed)
    world = LoggedWorld.create(random)
    for _ in range(6):
        world.record_crashes(lambda disk: [disk.crashed(random)] if random.random() < 0.2 else [])
        for _ in range(random.randrange(2, 12)):
            world.step()
        if world.crashes:
            world, _ = replayed(random.choice(world.crashes), random)
    assert world.read_state() == world.state


@settings(max_examples=6, deadline=None)
@given(SEEDS)
def test_each_failed_flush_leaves_a_state_that_the_next_start_keeps(seed: int) -> None:
    """Pages of a failed flush are in the cache, and no later flush writes them by itself."""
    for failing in range(1, 40, 3):
        random = Random(seed)
        world = LoggedWorld.create(random)
        last: list[Crash] = []
        world.record_crashes(lambda disk: [disk])
        world.disk.failing_flush = failing
        try:
            for _ in range(12):
                world.step()
        except DiskFailed:
            last = world.crashes[-1:]
        for crash in last:
            crash = Crash(world.disk.restarted(), crash.states, crash.direct)
            opened, _ = replayed(crash, random)
            later = reopened(opened.disk.crashed(random))
            assert crash.without_dropped_data(later.state) == crash.without_dropped_data(
                opened.state
            )


def test_log_that_wraps_hundreds_of_times_keeps_all_files() -> None:
    random = Random(5)
    world = LoggedWorld.create(random, 9)
    for number in range(2300):
        world.step()
        if number % 100 == 0:
            world = reopened(world.disk.crashed(random))
            assert world.damaged == []
        assert world.read_state() == world.state
    assert world.logged.writer.following.sequence > 200


def test_transaction_without_its_direct_data_is_dropped_and_stays_dropped() -> None:
    """The same data written again must not make the dropped transaction valid."""
    world, a, b = with_files(Random(3))
    data = b"d" * 2000
    check = world.logged.write_directly(Address(a, 0), data)
    assert check is not None
    world.logged.write([write_data(b, 0, b"dropped"), check])
    world.logged.writer.flush()
    lost_data = [disk for disk in world.disk.every_crash() if not disk.content(PATH_A)]
    assert lost_data
    for disk in lost_data:
        again = reopened(disk)
        assert again.replayed.torn
        assert again.state == {A: b"", B: b""}
        assert again.logged.write_directly(Address(a, 0), data) == check
        for crashed in again.disk.every_crash():
            assert reopened(crashed).state[B] == b""


def test_direct_data_that_changed_after_they_were_durable_are_reported() -> None:
    world, a, b = with_files(Random(3))
    check = world.logged.write_directly(Address(a, 0), b"d" * 2000)
    assert check is not None
    world.logged.commit([check])
    world.logged.commit([write_data(b, 0, b"later")])
    world.disk.damage(PATH_A, 77, b"!")
    opened = reopened(world.disk.restarted())
    assert opened.damaged == [check]
    assert opened.state[B] == b"later"


def test_direct_data_that_a_later_operation_changes_are_no_damage() -> None:
    world, a, _ = with_files(Random(3))
    check = world.logged.write_directly(Address(a, 0), b"d" * 2000)
    assert check is not None
    world.logged.commit([check])
    world.logged.commit([write_data(a, 70, b"other")])
    world.logged.commit([write_row(a, present(A, 1000))])
    opened = reopened(world.disk.restarted())
    assert opened.damaged == []
    assert opened.state[A] == b"d" * 70 + b"other" + b"d" * 925


def test_wal_damage_is_refused_except_in_the_last_transaction_which_is_dropped() -> None:
    """Damage before the last transaction refuses the log, and no file is changed then."""
    sizes = (10, 9000, 300, 5000)
    # How many blocks each transaction takes.
    blocks = [blocks_of([write_data(0, 0, bytes(size))], DEFAULT) for size in sizes]
    used, last = sum(blocks), blocks[-1]
    for number in range(used):
        for at in (0, 9, 20):
            world, a, _ = with_files(Random(3), 24)
            first = world.logged.writer.following.block
            offset = 0
            states = [state_on(world.disk)[A]]
            for size in sizes:
                world.logged.commit([write_data(a, offset, b"x" * size)])
                offset += size
                states.append(b"x" * offset)
            disk = world.disk.restarted()
            position = (first + number) * BLOCK_BYTES + at
            changed = bytes((disk.content(WAL_FILE)[position] ^ 1,))
            disk.damage(WAL_FILE, position, changed)
            if number < used - last:
                before = state_on(disk)
                with pytest.raises(WalDamaged):
                    reopened(disk)
                assert state_on(disk) == before
            else:
                opened = reopened(disk)
                # A first block without the magic or the id shows no interrupted transaction.
                assert opened.replayed.torn == (number > used - last or at == 20)
                assert opened.state[A] == states[-2]


def test_damage_of_the_last_applied_transaction_refuses_the_log() -> None:
    """The position in the catalogue proves that the log was longer."""
    world, a, _ = with_files(Random(3))
    world.logged.commit([write_data(a, 0, b"data")])
    block = world.logged.writer.following.block - 1
    for flush in world.logged.begin_checkpoint():
        flush()
    world.logged.write_position()()
    disk = world.disk.restarted()
    disk.damage(WAL_FILE, block * BLOCK_BYTES + 30, b"?")
    with pytest.raises(VolumesDiffer, match="the write-ahead log is older than the catalogue"):
        reopened(disk)


def test_log_opens_with_one_damaged_header_block_and_is_refused_with_two() -> None:
    for slot in range(HEADER_BLOCKS):
        world, a, _ = with_files(Random(3))
        world.logged.commit([write_data(a, 0, b"data")])
        wanted = dict(state_on(world.disk))
        disk = world.disk.restarted()
        disk.damage(WAL_FILE, slot * BLOCK_BYTES + 20, b"????")
        opened = reopened(disk)
        assert opened.state == wanted | {A: b"data"}
    disk.damage(WAL_FILE, 0, b"?")
    disk.damage(WAL_FILE, BLOCK_BYTES, b"?")
    with pytest.raises(HeaderDamaged):
        reopened(disk)


def test_truncated_wal_file_is_refused() -> None:
    world, _, _ = with_files(Random(3))
    disk = world.disk.restarted()
    disk.open(WAL_FILE).truncate(9 * BLOCK_BYTES)
    with pytest.raises(HeaderDamaged, match="the file has 36864 bytes"):
        reopened(disk)


@pytest.mark.parametrize("older", [WAL_FILE, CATALOGUE_FILE])
def test_older_copy_of_the_log_or_the_catalogue_is_refused(older: str) -> None:
    world, a, _ = with_files(Random(3))
    copied = world.disk.content(older)
    for number in range(3):
        world.logged.commit([write_data(a, number, b"data")])
        world.logged.checkpoint()
    disk = world.disk.restarted()
    disk.damage(older, 0, copied)
    with pytest.raises(VolumesDiffer):
        reopened(disk)


def test_data_volume_of_a_moment_within_a_checkpoint_is_refused_or_complete() -> None:
    """The log of a later moment has its own volume and gives up what the checkpoint has flushed."""
    world, a, _ = with_files(Random(3))
    new, catalogue = FileName(FileKind.DATA, 0, 1), world.logged.files.catalogue
    # Its row is in another sector than the position: a crash may leave one without the other.
    while (c := catalogue.new_region()) < 40:
        pass
    world.logged.commit([write_data(a, 0, b"data")])
    world.logged.commit([write_row(c, present(new)), write_data(c, 0, b"more")])
    moments: list[MemoryDisk] = []
    world.disk.observer = lambda: moments.extend(
        [
            world.disk.restarted(),
            *every_crash(world.disk),
            *(world.disk.crashed(Random(n)) for n in range(20)),
        ]
    )
    world.logged.checkpoint()
    world.disk.observer = None
    complete = 0
    for disk in moments:
        disk.damage(WAL_FILE, 0, world.disk.content(WAL_FILE))
        try:
            opened = reopened(disk)
        except VolumesDiffer:
            continue
        complete += 1
        assert opened.state == {A: b"data", B: b"", new: b"more"}
        assert opened.logged.files.catalogue.region_of(new) == c
    assert 0 < complete < len(moments)


def test_damaged_row_is_refused_only_if_the_log_needs_it() -> None:
    world, a, b = with_files(Random(3))
    assert (a, b) == (FIRST_REGION, FIRST_REGION + 1)
    world.logged.commit([write_data(a, 0, b"data")])
    for region in (a, b):
        disk = world.disk.restarted()
        disk.damage(CATALOGUE_FILE, region * ROW_BYTES + 3, b"?")
        if region == a:
            with pytest.raises(CatalogueDamaged, match="row 2 of the catalogue fails its checksum"):
                reopened(disk)
        else:
            assert reopened(disk).state[A] == b"data"


@pytest.mark.parametrize("loss", ["damaged", "zeros", "cut off"])
def test_lost_row_that_the_log_writes_is_replaced(loss: str) -> None:
    world, a, b = with_files(Random(3))
    world.logged.commit([write_data(b, 0, b"data")])
    world.logged.commit([write_row(b, present(B, 2))])
    disk = world.disk.restarted()
    if loss == "damaged":
        disk.damage(CATALOGUE_FILE, b * ROW_BYTES + 3, b"?")
    elif loss == "zeros":
        disk.damage(CATALOGUE_FILE, b * ROW_BYTES, bytes(ROW_BYTES))
    else:
        disk.open(CATALOGUE_FILE).truncate(b * ROW_BYTES)
    opened = reopened(disk)
    assert opened.state == {A: b"", B: b"da"}
    assert not opened.logged.files.catalogue.damaged
    assert a in opened.logged.files.catalogue.rows


def test_damaged_row_that_a_dropped_transaction_writes_is_not_replaced() -> None:
    """Its row never reaches the disk: later transactions would need a row that is still damaged."""
    world, a, b = with_files(Random(3))
    check = world.logged.write_directly(Address(a, 0), b"d" * 2000)
    assert check is not None
    world.logged.write([write_row(b, present(B, 0)), check])
    world.logged.writer.flush()
    disk = next(disk for disk in world.disk.every_crash() if not disk.content(PATH_A))
    disk.damage(CATALOGUE_FILE, b * ROW_BYTES + 3, b"?")
    opened = reopened(disk)
    assert opened.replayed.torn
    assert b in opened.logged.files.catalogue.damaged


def test_replay_of_a_full_log_reports_its_progress() -> None:
    world, a, _ = with_files(Random(3), 9000)
    world.record_crashes(lambda _: [])
    operations: list[Operation] = [write_data(a, 0, bytes(16 << 20))]
    world.logged.commit(operations)
    for _ in range(3):
        world.logged.commit([write_data(a, 0, bytes(5 << 20))])
    opened = reopened(world.disk.restarted())
    assert opened.progress
    assert opened.replayed.transactions == 4
    assert opened.progress[-1].blocks <= opened.progress[-1].all_blocks == opened.replayed.blocks


def test_empty_log_replays_nothing_and_stays_empty() -> None:
    world = LoggedWorld.create(Random(3))
    for _ in range(5):
        world = reopened(world.disk.crashed(Random(4)))
        assert world.damaged == []
        assert world.replayed.transactions == 1  # the empty transaction of the last opening
        assert world.logged.writer.free_blocks == 10


def test_last_transaction_is_dropped_if_the_file_of_its_check_is_lost() -> None:
    world, a, b = with_files(Random(3))
    check = world.logged.write_directly(Address(a, 0), b"d" * 100)
    assert isinstance(check, Check)
    world.logged.commit([check, write_data(b, 0, b"data")])
    disk = world.disk.restarted()
    disk.remove(PATH_A)
    opened = reopened(disk)
    assert opened.replayed.torn
    assert opened.state == {B: b""}
