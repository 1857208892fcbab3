"""A command that deletes something asks first, and changes nothing without a yes."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from waltz.cli.app import app

WHERE = ("-z", "127.0.0.1:1", "-r", "/waltz/orders")
DELETING = (
    ("access", "disable"),
    ("cluster", "delete", "orders"),
    ("storage", "unassign", "storage-3:55280", "0", "--delete-files"),
    ("storage", "move", "storage-1:55280", "storage-2:55280", "0", "--delete-files"),
    ("storage", "retire-group", "1"),
)


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_unassign_that_deletes_files_and_changes_only_zookeeper_is_a_usage_error(
    option: str,
) -> None:
    """The files are at the storage, which would not change."""
    command = ["storage", "unassign", "storage-3:55280", "0", "--delete-files", *WHERE]
    result = CliRunner().invoke(app, [*command, "--only", "zookeeper", option])
    assert result.exit_code == 2
    assert "leave out either it or --only zookeeper" in " ".join(result.stderr.split())


@pytest.mark.parametrize("answer", ["n\n", ""])
@pytest.mark.parametrize("command", DELETING, ids=lambda each: " ".join(each[:2]))
def test_deletion_asks_and_stops_without_a_yes(command: tuple[str, ...], answer: str) -> None:
    result = CliRunner().invoke(app, [*command, *WHERE], input=answer)
    assert result.exit_code == 1
    text = " ".join(result.stderr.split())
    assert "Continue?" in text
    assert "aborted" in text
    assert "ZooKeeper" not in text, "nothing was opened"
