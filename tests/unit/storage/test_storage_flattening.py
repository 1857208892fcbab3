"""`flatten` makes a directory of the engine ``files``, and a crash of it loses nothing."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from random import Random

import pytest

from tests.support.logged_node import KEY, OPTIONS, PARTITIONS, LoggedNode, lengths, plain
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.control.control_format import CONTROL_FILE, HEADER_BYTES
from waltz_storage.core.disk import Disk
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.log_directory import LOG_PAIR_FILE
from waltz_storage.core.wal.region_files import CATALOGUE_FILE
from waltz_storage.core.wal.wal_file import WAL_FILE
from waltz_storage.shell.flattening import Directories, FlattenResult, flatten, flatten_directories
from waltz_storage.shell.posix_disk import PosixDisk
from waltz_storage.shell.wal_engine import WalEngine, WalOptions

LENGTHS = [3, 2, 2, 2, 2]


def flattened(data: Disk, log: Disk | None = None) -> FlattenResult:
    return flatten_directories(Directories(data, log=log), KEY, PARTITIONS, lambda: 1)


def crashed_disks(*, own_log: bool) -> tuple[MemoryDisk, MemoryDisk | None]:
    """Return the disks of a node with records in its log after a loss of power."""
    home = MemoryDisk() if own_log else None
    node = LoggedNode(MemoryDisk(), wal_disk=home)
    for number in range(sum(LENGTHS)):
        node.append(number % PARTITIONS)
    random = Random(3)
    return node.disk.crashed(random), home.crashed(random) if home is not None else None


@pytest.mark.parametrize("own_log", [False, True])
def test_flatten_gives_a_crashed_directory_the_engine_files(own_log: bool) -> None:
    data, log = crashed_disks(own_log=own_log)
    result = flattened(data, log)
    assert result.transactions > 0
    assert result.refused == ()
    assert not {WAL_FILE, CATALOGUE_FILE, LOG_PAIR_FILE} & set(data.names(""))
    assert log is None or log.names("") == []
    directory = plain(data)
    assert lengths(directory) == LENGTHS
    assert directory.unmarked == []


def test_flattened_files_equal_those_of_a_clean_stop() -> None:
    """Waltz 0.13.2 reads them: nothing is allocated after the last record."""
    data, _ = crashed_disks(own_log=False)
    other = data.restarted()
    flattened(data)
    node = LoggedNode.opened(other)
    node.close()
    for name in ("", *map(str, range(PARTITIONS))):
        kept = set(other.names(name)) - {WAL_FILE, CATALOGUE_FILE}
        assert set(data.names(name)) == kept
        paths = [f"{name}/{each}".lstrip("/") for each in kept]
        for path in paths:
            if path not in data.directories:
                assert data.content(path) == other.content(path), path


@pytest.mark.parametrize("own_log", [False, True])
def test_crash_of_the_command_loses_nothing_and_the_command_may_be_repeated(own_log: bool) -> None:
    data, log = crashed_disks(own_log=own_log)
    crashes: list[tuple[MemoryDisk, MemoryDisk | None]] = []

    def crash() -> None:
        random = Random(len(crashes))
        crashes.append((data.crashed(random), log.crashed(random) if log is not None else None))

    data.observer = crash
    if log is not None:
        log.observer = crash
    flattened(data, log)
    assert len(crashes) > 50
    for number, (data_after, log_after) in enumerate(crashes):
        if number % 2:
            # The storage starts again with its engine instead.
            home = log_after.restarted() if log_after is not None else None
            node = LoggedNode(data_after.restarted(), wal_disk=home)
            assert node.lengths() == LENGTHS
        flattened(data_after, log_after)
        assert lengths(plain(data_after)) == LENGTHS


def test_directory_after_a_clean_stop_only_loses_the_files_of_its_log() -> None:
    node = LoggedNode(MemoryDisk())
    node.append(0)
    node.directory.close()
    assert flattened(node.disk) == FlattenResult(0, interrupted=False, refused=())
    assert not {WAL_FILE, CATALOGUE_FILE} & set(node.disk.names(""))
    assert lengths(plain(node.disk)) == [1, 0, 0, 0, 0]


def test_plain_directory_beside_a_log_of_another_moment_is_refused_and_unchanged() -> None:
    node = LoggedNode(MemoryDisk())
    node.append(0)
    older = node.disk.content(WAL_FILE)
    node.directory.close()
    file = node.disk.open(WAL_FILE)
    file.write_durably(0, older)
    file.close()
    with pytest.raises(DirectoryRefused, match="different moments"):
        flattened(node.disk)
    assert node.disk.content(WAL_FILE) == older


def test_log_in_another_directory_must_be_named() -> None:
    data, log = crashed_disks(own_log=True)
    with pytest.raises(DirectoryRefused, match=r"name .* storage\.wal\.directory with --wal"):
        flattened(data)
    _, other = crashed_disks(own_log=True)
    with pytest.raises(DirectoryRefused, match="not the one that belongs"):
        flattened(data.restarted(), other)
    flattened(data, log)
    assert lengths(plain(data)) == LENGTHS


def test_damaged_partition_is_reported_and_the_others_are_flattened() -> None:
    node = LoggedNode(MemoryDisk())
    for partition in (0, 1, 1):
        node.append(partition)
    node.directory.flush_marks()
    node.commits.checkpoint()
    # The flush of this append includes the header: no replay makes the removed file again.
    node.append(0)
    data = node.disk.crashed(Random(1))
    data.remove("1/0000000000000000000.seg")
    data.flush_directory("1")
    result = flattened(data)
    assert [each.partition for each in result.refused] == [1]
    directory = plain(data)
    assert set(directory.refused) == {1}
    assert directory.partition(0).log.next_id == 2


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A copy of the directory of a running storage, with records in its log."""
    running = tmp_path / "running"
    running.mkdir()
    wal = WalEngine(WalOptions(1 << 20, lambda: 0.0))
    directory = StorageDirectory(PosixDisk(running), KEY, PARTITIONS, OPTIONS, wal=wal)
    directory.assign(2)
    copy = tmp_path / "copy"
    shutil.copytree(running, copy)
    directory.close()
    return copy


def test_key_of_the_cluster_is_found_in_the_log(crashed: Path) -> None:
    assert flatten(crashed).refused == ()
    directory = plain(PosixDisk(crashed))
    assert directory.status() == {2: True}
    directory.close()
    assert flatten(crashed) == FlattenResult(0, interrupted=False, refused=())


def test_directory_without_a_control_file_is_refused(crashed: Path) -> None:
    (crashed / CONTROL_FILE).unlink()
    with pytest.raises(DirectoryRefused, match="is missing"):
        flatten(crashed)
    assert (crashed / WAL_FILE).exists()


def test_directory_that_has_lost_its_log_is_refused(crashed: Path) -> None:
    (crashed / WAL_FILE).unlink()
    with pytest.raises(DirectoryRefused, match=r"waltz-storage\.wal is missing"):
        flatten(crashed)
    assert uuid.UUID(bytes=(crashed / CONTROL_FILE).read_bytes()[12:28]) != KEY


def test_directory_that_has_lost_its_log_and_its_segments_is_refused(crashed: Path) -> None:
    (crashed / WAL_FILE).unlink()
    for path in (crashed / "2").iterdir():
        path.unlink()
    with pytest.raises(DirectoryRefused, match="shows the key of the cluster"):
        flatten(crashed)
    assert (crashed / CATALOGUE_FILE).exists()


def test_directory_that_has_lost_its_log_and_its_control_entries_is_refused(crashed: Path) -> None:
    """A damaged entry may be that of an assigned partition."""
    (crashed / WAL_FILE).unlink()
    (crashed / CATALOGUE_FILE).unlink()
    for path in (crashed / "2").iterdir():
        path.unlink()
    control = bytearray((crashed / CONTROL_FILE).read_bytes())
    control[HEADER_BYTES:] = b"\xff" * (len(control) - HEADER_BYTES)
    (crashed / CONTROL_FILE).write_bytes(control)
    with pytest.raises(DirectoryRefused, match="shows the key of the cluster"):
        flatten(crashed)
    assert (crashed / CONTROL_FILE).read_bytes() == control


def test_directory_without_partitions_that_has_lost_its_log_is_refused_and_unchanged(
    tmp_path: Path,
) -> None:
    running = tmp_path / "running"
    running.mkdir()
    wal = WalEngine(WalOptions(1 << 20, lambda: 0.0))
    directory = StorageDirectory(PosixDisk(running), KEY, PARTITIONS, OPTIONS, wal=wal)
    copy = tmp_path / "copy"
    shutil.copytree(running, copy)
    directory.close()
    (copy / WAL_FILE).unlink()
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    with pytest.raises(DirectoryRefused, match="shows the key of the cluster"):
        flatten(copy)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


@pytest.mark.parametrize("own_log", [False, True])
def test_crash_of_the_removal_of_an_empty_log_leaves_no_catalogue_without_its_log(
    own_log: bool,
) -> None:
    """Without partitions, a catalogue without a log would say that the log is lost."""
    data, log = MemoryDisk(), MemoryDisk() if own_log else None
    wal = WalEngine(WalOptions(1 << 20, lambda: 0.0, directory=log))
    StorageDirectory(data, KEY, PARTITIONS, OPTIONS, wal=wal).close()
    home = data if log is None else log
    crashes: list[tuple[bool, bool]] = []

    def crash() -> None:
        crashed_data = data.crashed(Random(len(crashes)))
        crashed_home = crashed_data if log is None else log.crashed(Random(len(crashes)))
        crashes.append((crashed_data.exists(CATALOGUE_FILE), crashed_home.exists(WAL_FILE)))

    data.observer = crash
    home.observer = crash
    flattened(data, log)
    assert {(True, True), (False, True), (False, False)} <= set(crashes)
    assert (True, False) not in crashes


def test_log_elsewhere_must_be_named_although_no_segment_has_the_key(crashed: Path) -> None:
    (crashed / WAL_FILE).unlink()
    shutil.rmtree(crashed / "2")
    (crashed / LOG_PAIR_FILE).write_text(str(uuid.uuid4()))
    with pytest.raises(DirectoryRefused, match=r"name .* storage\.wal\.directory with --wal"):
        flatten(crashed)


def test_directory_without_partitions_and_without_a_log_is_flattened(tmp_path: Path) -> None:
    wal = WalEngine(WalOptions(1 << 20, lambda: 0.0))
    StorageDirectory(PosixDisk(tmp_path), KEY, PARTITIONS, OPTIONS, wal=wal).close()
    for _ in range(2):
        assert flatten(tmp_path) == FlattenResult(0, interrupted=False, refused=())
