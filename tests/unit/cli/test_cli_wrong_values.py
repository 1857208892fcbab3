"""Wrong input as users type it: values, files and names that cannot be used, for every group.

`test_cli_wrong_input` derives wrong input from the declarations of the commands. Here each line has
its own answer: what is wrong, with which object, and what to do.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.wrong_commands import (
    CLUSTER_ROOT,
    ROOT_COMMAND,
    answer_problem,
    forget_environment,
    use_cluster,
    write_files,
)
from tests.support.wrong_lines import LINES, WITH_CLUSTER
from waltz.admin.observation import ReplicaObserver
from waltz.cli.app import app
from waltz.local import LocalCluster

NAMING = ("-z", "-c", "--cluster", "--profile")
"""Options that name a cluster."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return folder


@pytest.fixture(autouse=True)
def _alone(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The files, no profiles, no local cluster that starts, and no log lines of clients."""
    forget_environment(monkeypatch, files)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    async def start_all(_: LocalCluster) -> None:
        raise AssertionError("a wrong command line starts a cluster")

    monkeypatch.setattr(LocalCluster, "_start_all", start_all)
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders that wait only a moment for storages, all of which are dead."""
    init = ReplicaObserver.__init__

    def hasty(self: Any, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        self._answer_seconds = 0.01

    monkeypatch.setattr(ReplicaObserver, "__init__", hasty)


def test_wrong_lines_are_at_least_twenty_for_each_command_group() -> None:
    assert LINES.keys() == ROOT_COMMAND.commands.keys()
    counts = {group: len({line for line, _ in lines}) for group, lines in LINES.items()}
    assert {group: count for group, count in counts.items() if count < 20} == {}


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize("group", sorted(LINES))
def test_wrong_line_is_answered_by_one_line_that_says_what_to_do(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if group in WITH_CLUSTER:
        use_cluster(monkeypatch)
    bad = []
    for line, says in LINES[group]:
        typed = [group, *shlex.split(line)]
        if group in WITH_CLUSTER and not any(option in typed for option in NAMING):
            typed += ["-z", "zk:1"]
        if group in WITH_CLUSTER and "-r" not in typed and "-z" in typed:
            typed += ["-r", CLUSTER_ROOT]
        if (problem := answer_problem(typed, says)) is not None:
            bad.append(problem)
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("WALTZ_ZOOKEEPER", "zk:port", "the port 'port' of the ZooKeeper address 'zk:port'"),
        ("WALTZ_ROOT", "relative", "cluster root 'relative' must be an absolute path"),
        ("WALTZ_TLS", "maybe", "--tls must be on, off or a file: cannot read maybe"),
        ("WALTZ_CLUSTER", "missing.json", "cannot read missing.json: No such file"),
        ("WALTZ_PROFILE", "missing", "there is no profile 'missing'"),
    ],
)
def test_wrong_variable_is_answered_by_one_line(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    if variable in ("WALTZ_ROOT", "WALTZ_TLS"):
        monkeypatch.setenv("WALTZ_ZOOKEEPER", "127.0.0.1:1")
    monkeypatch.setenv(variable, value)
    for line in (["cluster", "show"], ["log", "tail", "0"], ["doctor"], ["top", "--once"]):
        assert answer_problem(line, says) is None


@pytest.mark.parametrize("content", ["{", "[]", '{"profiles": 1}', "\x00", ""])
def test_damaged_file_of_profiles_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "waltz" / "profiles.json"
    file.parent.mkdir()
    file.write_text(content)
    for line in (["profile", "list"], ["profile", "use", "x"], ["cluster", "show"]):
        assert answer_problem(line, f"{file} is not a file of profiles: correct or remove") is None


def test_unreachable_zookeeper_is_named_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waltz.cli.running.CONNECT_SECONDS", 0.1)
    result = CliRunner().invoke(app, ["doctor", "-z", "127.0.0.1:1", "-t", "0.1"])
    assert (result.exit_code, result.stderr) == (1, "")
    assert "127.0.0.1:1 cannot be reached" in result.stdout
