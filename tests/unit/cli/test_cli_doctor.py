"""What ``waltz doctor`` prints: words, times, and commands that can be copied."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waltz.admin.core.health import Health, HealthState, ProcessKind, Severity, Statement
from waltz.admin.core.problem_times import UNKNOWN_PERIOD, Period
from waltz.cli.app import app
from waltz.cli.doctor.rows import diagnosis, text_lines
from waltz.cli.local_names import LocalNames

SILENT = Statement(
    Severity.WARNING,
    "Storage h:2 does not answer: refused.",
    "Restart it",
    "waltz storage validate",
    period=Period(since=1_700_000_000.0),
    process="h:2",
)
HEALTH = Health(HealthState.DEGRADED, "All 2 partitions accept appends.", (SILENT,))


def test_lines_say_what_since_when_and_the_next_command() -> None:
    found = diagnosis(HEALTH, LocalNames(None, {}), ("--root", "/my cluster"))
    assert list(text_lines(found)) == [
        "All 2 partitions accept appends.",
        "",
        "WARNING  Storage h:2 does not answer: refused.",
        "  since 2023-11-14T22:13:20+00:00 or earlier",
        "  Restart it:",
        "  $ waltz storage validate --root '/my cluster'",
    ]


def test_dead_process_of_local_cluster_is_started_by_its_name() -> None:
    local = LocalNames(Path("/tmp/w"), {"h:2": "storage/1"}, {"storage/1": None})
    (problem,) = diagnosis(HEALTH, local, ()).problems
    assert problem.command == "waltz local start storage/1 --dir /tmp/w"
    assert problem.remedy == "Restart it"


def test_hanging_process_of_local_cluster_is_restarted_instead_of_started() -> None:
    """A start of a process that runs changes nothing."""
    local = LocalNames(Path("/tmp/w"), {"h:2": "storage/1"}, {"storage/0": None})
    lines = list(text_lines(diagnosis(HEALTH, local, ())))
    assert lines[-2:] == [
        "  storage/1 runs. Restart it with waltz local kill storage/1 --dir /tmp/w and "
        "waltz local start storage/1 --dir /tmp/w. To see its log before:",
        "  $ waltz local logs storage/1 --dir /tmp/w",
    ]


@pytest.mark.parametrize(
    ("period", "text"),
    [
        (Period(since=1_700_000_000.0), "since 2023-11-14T22:13:20+00:00 or earlier"),
        (Period(after=1_700_000_000.0), "since some time after 2023-11-14T22:13:20+00:00"),
        (
            Period(since=1_700_000_010.0, after=1_700_000_000.0),
            "since some time between 2023-11-14T22:13:20+00:00 and 2023-11-14T22:13:30+00:00",
        ),
        (UNKNOWN_PERIOD, "since: unknown"),
    ],
)
def test_lines_say_what_is_known_of_the_beginning(period: Period, text: str) -> None:
    health = replace(HEALTH, statements=(replace(SILENT, period=period),))
    assert f"  {text}" in text_lines(diagnosis(health, LocalNames(), ()))


def test_ended_process_of_local_cluster_has_the_time_of_its_end() -> None:
    """The supervisor of ``waltz local`` writes it to ``cluster.json``."""
    local = LocalNames(Path("/tmp/w"), {"h:2": "storage/1"}, {"storage/1": 1_700_000_100.0})
    health = replace(HEALTH, statements=(replace(SILENT, period=Period(after=1.0)),))
    (problem,) = diagnosis(health, local, ()).problems
    assert problem.since == "2023-11-14T22:15:00+00:00"
    running = replace(local, ended={})
    assert diagnosis(health, running, ()).problems[0].since is None


def test_majority_of_local_cluster_is_missing_since_the_process_ended_that_broke_it() -> None:
    names = {f"h:{n}": f"storage/{n}" for n in range(3)} | {"h:9": "server/0"}
    local = LocalNames(Path("/tmp/w"), names, {"storage/0": 30.0, "storage/2": 20.0})
    assert local.missing_since(ProcessKind.STORAGE) == 30.0
    assert local.missing_since(ProcessKind.SERVER) is None
    one_left = replace(local, ended={"storage/2": 20.0, "server/0": 40.0})
    assert one_left.missing_since(ProcessKind.STORAGE) is None
    assert one_left.missing_since(ProcessKind.SERVER) == 40.0


def test_missing_majority_has_no_time_if_the_end_of_one_process_is_unknown() -> None:
    """A storage that has never run has no time: the majority may be missing since 20.0."""
    names = {f"h:{n}": f"storage/{n}" for n in range(3)}
    ended = {"storage/0": 30.0, "storage/1": None, "storage/2": 20.0}
    local = LocalNames(Path("/tmp/w"), names, ended)
    assert local.missing_since(ProcessKind.STORAGE) is None


def test_problem_without_a_known_time_says_that_it_is_unknown() -> None:
    health = replace(HEALTH, statements=(replace(SILENT, period=UNKNOWN_PERIOD),))
    assert "  since: unknown" in text_lines(diagnosis(health, LocalNames(), ()))


def test_remedy_of_local_cluster_starts_a_missing_process_that_has_ended() -> None:
    """Without a server, ZooKeeper has no address of one."""
    missing = Statement(
        Severity.CRITICAL,
        "Partition 0: it is assigned to server 1, which is not running.",
        "Start a server, which takes over. To see which servers run",
        "waltz server list",
        missing=ProcessKind.SERVER,
    )
    health = Health(HealthState.UNAVAILABLE, "No.", (missing,))
    names = {"h:1": "server/0", "h:2": "server/1"}
    local = LocalNames(Path("/tmp/w"), names, {"storage/0": None, "server/1": None})
    (problem,) = diagnosis(health, local, ()).problems
    assert problem.command == "waltz local start server/1 --dir /tmp/w"
    assert problem.remedy == "Start a server, which takes over"
    running = LocalNames(Path("/tmp/w"), names)
    (problem,) = diagnosis(health, running, ("-c", "x")).problems
    assert problem.command == "waltz server list -c x"


def test_doctor_without_zookeeper_names_it_and_fails() -> None:
    arguments = ["doctor", "-z", "127.0.0.1:1", "--timeout", "0.2", "-o", "json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["state"] == "unknown"
    (problem,) = found["problems"]
    assert problem["text"].startswith("ZooKeeper does not answer: ")
    assert "127.0.0.1:1 cannot be reached" in problem["text"]


def test_doctor_without_zookeeper_of_local_cluster_starts_it(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    processes = {"zookeeper": {"pid": None, "address": "127.0.0.1:1", "log": "z.log"}}
    described = {"zookeeper": "127.0.0.1:1", "root": "/waltz", "tls": False, "processes": processes}
    file.write_text(json.dumps(described))
    result = CliRunner().invoke(app, ["doctor", "-c", str(file), "--timeout", "0.2"])
    assert f"  $ waltz local start zookeeper --dir {tmp_path}\n" in result.stdout
