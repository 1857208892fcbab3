"""Wrong input: at least twenty for each group of commands, each answered by one line.

The inputs follow from the commands themselves: for each verb an unknown option, a superfluous and a
missing argument, each option with a value of another type, files that do not exist, and the
examples of its help while ZooKeeper cannot be reached.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import pytest
import typer
from typer.testing import CliRunner

from waltz.cli.app import app
from waltz.cli.options import example_lines
from waltz.metadata.kazoo_store import ConnectFailed, KazooStore

ROOT: Any = typer.main.get_command(app)
SINGLE = {"console", "doctor", "top"}
GROUPS = sorted(ROOT.commands.keys() - SINGLE)
SMALL = {"config", "debug", "profile"}
"""Groups with few verbs and options, which are tried together."""
TOGETHER = (
    *((group,) for group in GROUPS if group not in SMALL),
    tuple(sorted(SMALL)),
    tuple(sorted(SINGLE)),
)
CLUSTER = (
    ("--root", "no/slash"),
    ("--root", "/double//slash"),
    ("--tls", "missing.yml"),
    ("--cluster", "missing.json"),
    ("--cluster", "missing.yml"),
    ("--profile", "missing"),
)
NOT_RUN = {
    "waltz local up",
    "waltz console",
    "waltz doctor",
    "waltz debug bundle",
    "waltz config explain",
    "waltz profile",
}
"""Examples that start something, or that end with success without a cluster."""


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory, a user without profiles, and no ZooKeeper."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("ZOOKEEPER", "ROOT", "TLS", "CLUSTER", "PROFILE", "ACCESS"):
        monkeypatch.delenv(f"WALTZ_{name}", raising=False)

    async def connect(connect_string: str, *_: object, **__: object) -> KazooStore:
        raise ConnectFailed(f"no ZooKeeper session was established at {connect_string}")

    monkeypatch.setattr(KazooStore, "connect", connect)
    # The runner would make all commands anew for each command line, which takes most of the time.
    monkeypatch.setattr("typer.testing._get_command", lambda _: ROOT)


def verbs(group: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    command = ROOT.commands[group]
    for name, verb in getattr(command, "commands", {}).items():
        nested = getattr(verb, "commands", {})
        yield from (((group, name, each), found) for each, found in nested.items())
        if not nested:
            yield (group, name), verb
    if group in SINGLE:
        yield (group,), command


def wrong_inputs(words: tuple[str, ...], verb: Any) -> Iterator[list[str]]:
    """Yield command lines of one verb, none of which can succeed."""
    here = [*words]
    yield [*here, "--no-such-option"]
    yield [*here, *["x"] * 9]
    if any(param.required for param in verb.params):
        yield here
    options = [param for param in verb.params if param.param_type_name == "option"]
    yield [*here, options[0].opts[0] + "-misspelled"]
    for param in options:
        yield from ([*here, param.opts[0], value] for value in wrong_values(param))
    arguments = [param for param in verb.params if param.param_type_name == "argument"]
    yield from ([*here, value] for value in (wrong_values(arguments[0]) if arguments else ()))
    if any("--zookeeper" in param.opts for param in options):
        agreed = ["--yes"] if any("--yes" in param.opts for param in options) else []
        yield from ([*here, "-z", "127.0.0.1:1", *agreed, *wrong] for wrong in CLUSTER)
    yield from examples(words, verb, options)


def wrong_values(param: Any) -> Iterator[str]:
    """Yield values that an option or an argument cannot have."""
    annotation = param.type_descriptor.annotation
    kinds = {*get_args(annotation), annotation}
    if any(
        isinstance(kind, type) and issubclass(kind, int | float | UUID | Enum)
        for kind in kinds - {bool}
    ):
        yield "x"
    if "--output" in param.opts:
        yield from ("x", "template", "template={", "template={x:d}")
    if int in kinds:
        yield "1.5"
        if param.min is not None and param.param_type_name == "option":
            yield "-99999999999"


def examples(words: tuple[str, ...], verb: Any, options: list[Any]) -> Iterator[list[str]]:
    """Yield the examples of the verb's help, which find neither a cluster nor files."""
    name = f"waltz {' '.join(words)}"
    if any(name.startswith(each) for each in NOT_RUN):
        return
    confirms = any("--yes" in param.opts for param in options)
    needs_cluster = any("--zookeeper" in param.opts for param in options)
    for line in example_lines(verb.epilog):
        typed = line.partition("|")[2] if line.startswith("seq ") else line.partition("|")[0]
        arguments = shlex.split(typed.partition(">")[0].strip())[1:]
        if confirms and "--yes" not in arguments:
            arguments.append("--yes")
        if needs_cluster and "-z" not in arguments:
            arguments += ["-z", "127.0.0.1:1"]
        yield arguments


@pytest.mark.parametrize("groups", TOGETHER, ids=lambda groups: "-".join(sorted(groups)))
def test_wrong_input_is_one_line_that_says_what_to_do(groups: tuple[str, ...]) -> None:
    inputs = [
        line for each in groups for words, verb in verbs(each) for line in wrong_inputs(words, verb)
    ]
    inputs += [[each, "no-such-verb"] for each in groups]
    assert len(inputs) >= 20
    bad = [problem for line in inputs if (problem := problem_of(line)) is not None]
    assert not bad, "\n".join(bad)


def problem_of(line: list[str]) -> str | None:
    """Return what is wrong with the answer to a wrong command line."""
    result = CliRunner().invoke(app, line, prog_name="waltz", input="")
    shown = f"waltz {shlex.join(line)}: {result.output}"
    if result.exit_code == 0:
        return f"{shown} succeeded"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"{shown} {result.exception!r}"
    printed = result.stderr.strip().splitlines()
    if len(printed) != 1 or not printed[0].startswith("waltz: ") or result.stdout:
        return f"{shown} is not one line on standard error"
    if len(printed[0]) < 20:
        return f"{shown} says too little"
    return None


def test_group_without_a_verb_shows_its_help() -> None:
    for group in GROUPS:
        result = CliRunner().invoke(app, [group], prog_name="waltz")
        assert "Usage: waltz" in result.output


def test_wrong_input_names_the_help_of_its_verb() -> None:
    result = CliRunner().invoke(app, ["log", "append", "x"], prog_name="waltz")
    assert (result.exit_code, result.stderr) == (
        2,
        "waltz: Invalid value for 'PARTITION': it must be a whole number; see: waltz log "
        "append --help\n",
    )


@pytest.mark.parametrize("words", [["log", "append", "-1", "x"], ["log", "read", "-15", "0"]])
def test_negative_partition_is_a_value_and_not_an_option(words: list[str]) -> None:
    result = CliRunner().invoke(app, [*words, "-z", "127.0.0.1:1"], prog_name="waltz")
    command = " ".join(["waltz", *words[:2]])
    assert (result.exit_code, result.stderr) == (
        2,
        "waltz: Invalid value for 'PARTITION': partitions are numbered from 0; see: "
        f"{command} --help\n",
    )
