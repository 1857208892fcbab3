"""The logs of a local cluster: which there are, their last lines, and lines that are written."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waltz.cli.app import app
from waltz.local import NotRunning, PlanError, last_lines, local_logs, new_lines, open_logs
from waltz.local.core.plan import ClusterLayout, LocalClusterPlan, Shape


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A stopped cluster whose server and storage have written logs."""
    layout = ClusterLayout(tmp_path)
    shape = Shape(partitions=1, storages=1, servers=1)
    layout.plan.write_text(LocalClusterPlan.of(shape, count(1000)).to_json())
    layout.log("server/0").parent.mkdir()
    layout.log("server/0").write_text("one\ntwo\nthree\n")
    layout.log("storage/0").write_text("four\n")
    return tmp_path


def test_logs_are_named_by_process(directory: Path) -> None:
    assert list(local_logs(directory, None)) == ["storage/0", "server/0"]
    assert list(local_logs(directory, "server/0")) == ["server/0"]
    with pytest.raises(PlanError, match="no process 'server/7'; the processes are: supervisor"):
        local_logs(directory, "server/7")
    with pytest.raises(NotRunning, match="has no cluster"):
        local_logs(directory / "none", None)


def test_last_lines_are_shown_with_their_process(directory: Path) -> None:
    with open_logs(local_logs(directory, "server/0")) as logs:
        assert last_lines(logs["server/0"], 2) == ["two", "three"]
    command = ["local", "logs", "--dir", str(directory)]
    both = CliRunner().invoke(app, [*command, "-n", "1"])
    assert both.stdout == "storage/0: four\nserver/0: three\n"
    one = CliRunner().invoke(app, [*command, "server/0", "-n", "2"])
    assert one.stdout == "two\nthree\n"


def test_unknown_process_fails_with_one_line(directory: Path) -> None:
    result = CliRunner().invoke(app, ["local", "logs", "x", "--dir", str(directory)])
    assert (result.exit_code, "Traceback" in result.output) == (1, False)
    assert result.stderr.startswith("waltz: there is no process 'x'")


def test_new_lines_are_yielded_once_they_are_complete(directory: Path) -> None:
    paths = local_logs(directory, None)
    with open_logs(paths) as logs, paths["server/0"].open("a") as file:
        for log in logs.values():
            last_lines(log, 0)
        lines = new_lines(logs)

        def write() -> None:
            for part in ("fi", "ve\n", "six\n"):
                file.write(part)
                file.flush()

        timer = threading.Timer(0.3, write)
        timer.start()
        assert [next(lines), next(lines)] == [("server/0", "five"), ("server/0", "six")]
        timer.join()


def test_lines_written_after_the_last_lines_were_read_are_new(directory: Path) -> None:
    paths = local_logs(directory, None)
    with open_logs(paths) as logs, paths["server/0"].open("a") as file:
        assert [last_lines(log, 1) for log in logs.values()] == [["four"], ["three"]]
        file.write("five\nsix\n")
        file.flush()
        lines = new_lines(logs)
        assert [next(lines), next(lines)] == [("server/0", "five"), ("server/0", "six")]
