"""Commands that messages suggest repeat the options that name the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from waltz.admin import PartitionRescue, Verdict
from waltz.admin.core.rescue import RebuildDecision
from waltz.cli.app import app
from waltz.cli.client_access import batches_within, high_water_marks
from waltz.cli.cluster.rescue_rows import render_rescue
from waltz.cli.running import Failed, exit_on_expected_error
from waltz.cli.storage import commands as storage_commands
from waltz.cli.suggested import complete, options_given, suggested
from waltz.runtime.cluster_file import LOCAL_DIRECTORY, local_command

GIVEN = ("--zookeeper", "z:1", "--root", "/my cluster")
OPTIONS = "--zookeeper z:1 --root '/my cluster'"


def test_suggested_command_has_the_options_of_the_running_verb() -> None:
    assert suggested("waltz doctor") == "waltz doctor"
    with options_given(GIVEN):
        assert suggested("waltz doctor") == f"waltz doctor {OPTIONS}"
    assert suggested("waltz doctor") == "waltz doctor"
    assert suggested("waltz doctor", ("-r", "/r")) == "waltz doctor -r /r"


@pytest.mark.parametrize(
    ("message", "is_completed"),
    [
        ("the copy failed; find the cause with: waltz doctor", True),
        ("drop them with: waltz storage unassign s:1 0,3-5 --only storage --force", True),
        ("make it with: waltz cluster create NAME, and waltz storage add", False),
        ("run it with: waltz storage assign; then wait", False),
        ("find the cause with: waltz doctor. Run the same command again.", False),
        ("read it with: waltz log read 0 1.", False),
        ("find out more with: waltz storage partitions s1.example:5", True),
        ("start it with: waltz local up", False),
        ("waltz doctor", False),
    ],
)
def test_message_that_ends_with_a_command_is_completed(message: str, is_completed: bool) -> None:
    with options_given(GIVEN):
        assert complete(message) == (f"{message} {OPTIONS}" if is_completed else message)


def test_printed_error_has_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception) as ended, options_given(GIVEN), exit_on_expected_error():  # noqa: PT011
        raise Failed("nothing; find the cause with: waltz doctor")
    assert getattr(ended.value, "exit_code", None) == 1
    shown = f"waltz: nothing; find the cause with: waltz doctor {OPTIONS}\n"
    assert capsys.readouterr().err == shown


async def test_error_of_servers_that_answer_late_ends_with_a_command() -> None:
    """Only a command at the end gets the options."""

    class Silent:
        num_partitions = 2

        async def high_water_mark(self, _: int) -> int:
            raise TimeoutError

        async def batches(self) -> AsyncIterator[Any]:
            raise TimeoutError
            yield

    silent: Any = Silent()
    with pytest.raises(Failed, match=r"find the cause with: waltz doctor$"):
        await high_water_marks(silent, None, 1)
    with pytest.raises(Failed, match=r"find the cause with: waltz doctor$"):
        await anext(batches_within(silent, 1))


def test_storage_add_names_the_command_for_its_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def open_cluster(*_: object) -> AsyncIterator[None]:
        yield None

    async def perform(*_: object, **__: object) -> tuple[()]:
        return ()

    monkeypatch.setattr(storage_commands, "open_cluster", open_cluster)
    monkeypatch.setattr(storage_commands, "perform_directly", perform)
    command = ["storage", "add", "s:1", "--admin-port", "2", "--group", "0"]
    result = CliRunner().invoke(app, [*command, "-z", "z:1", "-r", "/r"])
    assert result.exit_code == 0, result.exception
    assert result.stderr == (
        "storage s:1 is in group 0; assign partitions with: waltz storage assign s:1 RANGES "
        "--zookeeper z:1 --root /r\n"
    )


def test_reason_of_a_rescue_has_the_options() -> None:
    reason = "assign it with: waltz storage assign s:1 PARTITION --only zookeeper"
    plan = PartitionRescue(0, (), RebuildDecision(Verdict.UNDECIDED, None, reason))
    with options_given(GIVEN):
        (row,) = render_rescue([plan]).value
    assert row["why"] == f"{reason} {OPTIONS}"


def test_local_command_names_the_directory_unless_it_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_command(LOCAL_DIRECTORY, "up") == "waltz local up"
    assert local_command(tmp_path / "waltz-local", "start", "server/0") == (
        "waltz local start server/0"
    )
    assert local_command(Path("/my w"), "up") == "waltz local up --dir '/my w'"
