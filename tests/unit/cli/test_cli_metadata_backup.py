"""The file that ``waltz cluster metadata backup`` writes."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waltz.cli.app import app
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


def test_backup_to_a_symbolic_link_replaces_the_file_that_it_names(tmp_path: Path) -> None:
    file, link = tmp_path / "backups" / "1.json", tmp_path / "latest.json"
    file.parent.mkdir()
    file.write_text("an older backup")
    link.symlink_to(file)
    _write_file(link, BACKUP)
    assert link.readlink() == file
    assert list(file.parent.iterdir()) == [file]
    assert _read_backup(file) == BACKUP


@pytest.mark.parametrize("is_link", [False, True])
def test_backup_to_a_pipe_is_a_usage_error(tmp_path: Path, is_link: bool) -> None:
    """The pipe would be replaced by a regular file, and its reader would get nothing."""
    pipe, link = tmp_path / "pipe", tmp_path / "stdout"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    named = link if is_link else pipe
    command = ["cluster", "metadata", "backup", str(named), "-z", "127.0.0.1:1", "-r", "/r"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "is not a regular file" in " ".join(result.stderr.split())
    assert sorted(tmp_path.iterdir()) == [pipe, link]
    assert pipe.is_fifo()


def test_backup_that_fails_leaves_no_partial_file(tmp_path: Path) -> None:
    directory = tmp_path / "orders.json"
    directory.mkdir()
    with pytest.raises(Failed, match=r"orders\.json cannot be written: Is a directory"):
        _write_file(directory, BACKUP)
    assert list(tmp_path.iterdir()) == [directory]
