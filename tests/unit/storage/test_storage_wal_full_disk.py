"""A full disk with the engine ``wal`` refuses appends, and never ends the process."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.logged_node import LoggedNode, lengths, used
from waltz.protocol import storage
from waltz.testing.disk import UNLIMITED, MemoryDisk
from waltz_storage.core.log.segment_format import ENTRY_BYTES, HEADER_BYTES
from waltz_storage.core.wal.catalogue import ROW_BYTES
from waltz_storage.core.wal.region_files import CATALOGUE_FILE

FULL_SEGMENT = 41_000
"""The size of a record that fills a segment."""
SECOND_SEGMENT = "0/0000000000000000001.seg"


def node_with_full_segment() -> LoggedNode:
    """Return a node whose next append to partition 0 creates a segment."""
    node = LoggedNode(MemoryDisk(), 64)
    assert isinstance(node.append(0, FULL_SEGMENT), storage.SuccessResponse)
    node.commits.checkpoint()
    return node


def _temporary_files(disk: MemoryDisk) -> list[str]:
    """Return the files of partition 0 that are left of the creation of a segment."""
    return [name for name in disk.names("0") if name.endswith(".new")]


@pytest.mark.parametrize("left", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, 2 * HEADER_BYTES - 1])
def test_full_disk_at_the_creation_of_a_segment_refuses_the_append(left: int) -> None:
    """The two files of a segment begin with a header each, which has no space here."""
    node = node_with_full_segment()
    node.disk.space = used(node.disk) + left
    refused = node.append(0)
    assert isinstance(refused, storage.FailureResponse)
    assert "no space left" in str(refused.failure.message)
    assert node.engine.failures == []
    assert not _temporary_files(node.disk), "the file that takes the space must not stay"
    # All changes can leave the log: a checkpoint finds space for each of them.
    node.commits.checkpoint()
    assert node.lengths()[0] == 1
    node.disk.space = UNLIMITED
    assert isinstance(node.append(0), storage.SuccessResponse)
    assert LoggedNode(node.disk.crashed(Random(left)), 64).lengths()[0] == 2


@pytest.mark.parametrize("left", range(0, 4000, 61))
def test_disk_that_becomes_full_at_any_byte_refuses_appends_and_keeps_the_others(left: int) -> None:
    node = node_with_full_segment()
    node.disk.space = used(node.disk) + left
    answers = [node.append(partition % 5, 300) for partition in range(12)]
    accepted = [isinstance(answer, storage.SuccessResponse) for answer in answers]
    node.commits.checkpoint()
    assert node.engine.failures == []
    lengths = node.lengths()
    assert sum(lengths) == 1 + sum(accepted)
    node.disk.space = UNLIMITED
    assert LoggedNode(node.disk.crashed(Random(left)), 64).lengths() == lengths


def test_full_disk_at_a_row_of_the_catalogue_refuses_the_append() -> None:
    """The catalogue grows by several rows at once, so most new segments need no space in it."""
    node = LoggedNode(MemoryDisk(), 64)
    catalogue = node.commits.logged.files.catalogue
    rows = len(node.disk.content(CATALOGUE_FILE)) // ROW_BYTES
    while (region := catalogue.new_region()) < rows:
        pass
    catalogue.return_region(region)
    assert isinstance(node.append(0, FULL_SEGMENT), storage.SuccessResponse)
    # Space for the index entry of the full segment, and for half of the new rows.
    node.disk.space = used(node.disk) + 500
    assert isinstance(node.append(0), storage.FailureResponse)
    assert catalogue.new_region() == region, "a refused creation keeps no region"
    catalogue.return_region(region)
    node.commits.checkpoint()
    node.disk.space = UNLIMITED
    assert isinstance(node.append(0), storage.SuccessResponse)
    assert len(node.disk.content(CATALOGUE_FILE)) // ROW_BYTES > rows
    assert LoggedNode(node.disk.crashed(Random(1)), 64).lengths()[0] == 2


def test_full_disk_at_the_row_of_a_data_file_leaves_no_file() -> None:
    """The index file gets the last row of the catalogue, and the data file needs a new one."""
    node = LoggedNode(MemoryDisk(), 64)
    catalogue = node.commits.logged.files.catalogue
    rows = len(node.disk.content(CATALOGUE_FILE)) // ROW_BYTES
    while (region := catalogue.new_region()) < rows - 1:
        pass
    catalogue.return_region(region)
    assert isinstance(node.append(0, FULL_SEGMENT), storage.SuccessResponse)
    node.disk.space = used(node.disk) + 500
    assert isinstance(node.append(0), storage.FailureResponse)
    assert not _temporary_files(node.disk), "the file that takes the space must not stay"


def test_space_reservation_file_is_removed_after_segment_creation() -> None:
    node = node_with_full_segment()
    assert isinstance(node.append(0), storage.SuccessResponse)
    assert not _temporary_files(node.disk)


def _crashes_within_an_append(node: LoggedNode) -> list[MemoryDisk]:
    """Append to partition 0; return the disks that a kill or a power loss would leave meanwhile."""
    crashes: list[MemoryDisk] = []
    node.disk.observer = lambda: crashes.extend(
        [node.disk.restarted(), *(node.disk.crashed(Random(n)) for n in range(3))]
    )
    node.append(0)
    node.disk.observer = None
    return crashes


def test_crash_at_the_creation_of_a_segment_leaves_an_open_partition() -> None:
    """The file that takes the space may be left; it has no record, and an opening removes it."""
    node = node_with_full_segment()
    left = 0
    for disk in _crashes_within_an_append(node):
        left += bool(_temporary_files(disk))
        again = LoggedNode(disk, 64)
        assert again.directory.refused == {}
        assert again.lengths()[0] in (1, 2)
        assert not _temporary_files(disk)
    assert left > 0


def test_start_on_a_full_disk_after_a_crash_at_the_creation_of_a_segment_creates_it() -> None:
    """The file that takes the space may be left: the replay needs just that space."""
    node = node_with_full_segment()
    # Space for the index entry of the full segment, and for the headers of the new one.
    node.disk.space = space = used(node.disk) + ENTRY_BYTES + 2 * HEADER_BYTES
    needing = 0
    for disk in _crashes_within_an_append(node):
        temporary = _temporary_files(disk)
        disk.space = space
        again = LoggedNode.opened(disk, 64)
        assert again.refused == {}
        assert lengths(again)[0] in (1, 2)
        assert not _temporary_files(disk)
        needing += bool(temporary) and disk.exists(SECOND_SEGMENT)
    assert needing > 0
