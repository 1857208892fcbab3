"""The file that ``waltz cluster metadata backup`` writes."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from waltz.cli.cluster.metadata import _read_backup, _write_file
from waltz.cli.running import Failed
from waltz.metadata.core.cluster_backup import ClusterBackup
from waltz.metadata.core.formats import ConnectionMetadata, GroupDescriptor, ReplicaAssignments
from waltz.metadata.core.storage_maps import StorageMaps

MAPS = StorageMaps(GroupDescriptor({}), ConnectionMetadata({}), ReplicaAssignments({}))
BACKUP = ClusterBackup("orders", "/orders", uuid.UUID(int=7), 2, 12, 3, MAPS, {}, {})


def test_backup_replaces_the_file_and_leaves_no_other(tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    file.write_text("an older backup")
    _write_file(file, BACKUP)
    assert list(tmp_path.iterdir()) == [file]
    assert _read_backup(file) == BACKUP


def test_backup_that_fails_leaves_no_partial_file(tmp_path: Path) -> None:
    directory = tmp_path / "orders.json"
    directory.mkdir()
    with pytest.raises(Failed, match=r"orders\.json cannot be written: Is a directory"):
        _write_file(directory, BACKUP)
    assert list(tmp_path.iterdir()) == [directory]
