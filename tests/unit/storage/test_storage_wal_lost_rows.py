"""Rows that the catalogue of a write-ahead log has lost: their files must not be hidden."""

from __future__ import annotations

import errno
import os
from random import Random

import pytest

from tests.support.logged_node import PARTITIONS, LoggedNode, lengths, used
from waltz.protocol import storage
from waltz.testing.disk import UNLIMITED, MemoryDisk
from waltz_storage.core.errors import DirectoryRefused, PartitionUnopened
from waltz_storage.core.wal.catalogue import ROW_BYTES, FileKind, FileName
from waltz_storage.core.wal.region_files import CATALOGUE_FILE

DATA = FileName(FileKind.DATA, 0, 0)
INDEX = FileName(FileKind.INDEX, 0, 0)
WANTED = [2, 0, 1, 0, 1]


class _UnlistedDisk(MemoryDisk):
    """A disk of which the directory ``unlisted`` cannot be listed."""

    unlisted: str | None = None

    @classmethod
    def copy_of(cls, disk: MemoryDisk) -> _UnlistedDisk:
        copy = cls()
        copy.__dict__.update(disk.__dict__)
        return copy

    def names(self, directory: str) -> list[str]:
        if directory == self.unlisted:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return super().names(directory)


def crashed_node(
    lost: FileName, row: bytes = b"?", wal_disk: MemoryDisk | None = None
) -> MemoryDisk:
    """Return the disk of a node with records that crashed, with ``row`` at the row of ``lost``.

    The log has a transaction that does not need this row. A partition was removed before, so that
    a new catalogue has other regions for the later ones.
    """
    node = LoggedNode(MemoryDisk(), wal_disk=wal_disk)
    for partition in (0, 1, 0, 4):
        node.append(partition)
    node.directory.unassign(1, delete_files=True)
    node.commits.checkpoint()
    node.append(2)
    region = node.commits.logged.files.catalogue.region_of(lost)
    assert region is not None
    disk = node.disk.restarted()
    disk.damage(CATALOGUE_FILE, region * ROW_BYTES, row)
    return disk


@pytest.mark.parametrize("row", [b"?", bytes(ROW_BYTES)], ids=["damaged", "zeros"])
@pytest.mark.parametrize("lost", [DATA, INDEX])
def test_file_whose_row_is_lost_is_served_after_a_start(
    lost: FileName, row: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    node = LoggedNode(crashed_node(lost, row))
    assert node.lengths() == WANTED
    assert "it was made anew from the segment files" in caplog.text
    caplog.clear()
    for partition in range(PARTITIONS):
        assert isinstance(node.append(partition), storage.SuccessResponse)
    wanted = [length + 1 for length in WANTED]
    assert LoggedNode(node.disk.crashed(Random(1))).lengths() == wanted
    assert not caplog.text, "the new catalogue is whole"


@pytest.mark.parametrize("lost", [DATA, INDEX])
def test_crash_while_the_catalogue_is_made_anew_loses_no_record(lost: FileName) -> None:
    disk = crashed_node(lost)
    crashes: list[MemoryDisk] = []
    disk.observer = lambda: crashes.extend(
        [disk.restarted(), *(disk.crashed(Random(n)) for n in range(3))]
    )
    LoggedNode.opened(disk)
    disk.observer = None
    assert len(crashes) > 40
    for crashed in crashes:
        node = LoggedNode(crashed)
        assert node.lengths() == WANTED
        for partition in range(PARTITIONS):
            node.append(partition)
        later = LoggedNode.opened(node.disk.crashed(Random(1)))
        assert lengths(later) == [length + 1 for length in WANTED]


def test_log_from_before_its_replay_is_refused_beside_a_new_catalogue() -> None:
    """Its transactions name regions of the old catalogue."""
    home = MemoryDisk()
    disk = crashed_node(INDEX, wal_disk=home)
    log = home.restarted()
    LoggedNode.opened(disk, wal_disk=home.restarted())
    with pytest.raises(DirectoryRefused, match="the write-ahead log is older than the catalogue"):
        LoggedNode.opened(disk.restarted(), wal_disk=log)


def test_file_whose_row_is_lost_on_a_full_volume_refuses_its_partition_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = crashed_node(INDEX)
    disk.space = used(disk)
    directory = LoggedNode.opened(disk)
    assert [*directory.refused] == [0]
    assert isinstance(directory.refused[0], PartitionUnopened)
    assert "free space on it, stop this storage node cleanly and start it again" in caplog.text
    assert not [name for name in disk.names("") if name.endswith(".new")]
    disk.space = UNLIMITED
    directory.close()
    assert LoggedNode(disk).lengths() == WANTED


def test_rows_of_a_directory_that_cannot_be_listed_are_kept_in_a_new_catalogue() -> None:
    disk = _UnlistedDisk.copy_of(crashed_node(INDEX))
    disk.unlisted = "2"
    directory = LoggedNode.opened(disk)
    assert [*directory.refused] == [2]
    disk.unlisted = None
    directory.assign(2)
    assert directory.partition(2).log.read_batch(0, 9, 9999).count == 1
