"""The help of every verb has a sentence, an example, and a text for each option."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from waltz.cli.app import app
from waltz.cli.options import example_lines
from waltz.local import ClusterLayout, Shape
from waltz.local.core.plan import LocalClusterPlan

NOUNS_WITHOUT_VERBS = {"console", "doctor", "top"}
NESTED = {"cluster metadata", "cluster outside"}
WITHOUT_OUTPUT = {("console",)}
"""Verbs that have no result: the console serves pages until Ctrl-C."""
HOSTS = {"storage", "storages", "server", "servers", "source", "destination"}
HOSTS_IN_ORDER = ([], ["source", "destination"], *([host] for host in HOSTS))


def verbs(command: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every verb, with the words that name it."""
    nested = getattr(command, "commands", None)
    if nested is None:
        yield name, command
        return
    for word, child in nested.items():
        yield from verbs(child, (*name, word))


def commands(command: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every noun and every verb, with the words that name it."""
    yield name, command
    for word, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*name, word))


VERBS = dict(verbs(typer.main.get_command(app)))
named = pytest.mark.parametrize("words", VERBS, ids=" ".join)


def test_every_command_is_noun_and_verb() -> None:
    assert len(VERBS) > 20
    nouns = {" ".join(words[:-1]) for words in VERBS}
    assert all(len(noun.split()) == 1 or noun in NESTED for noun in nouns - {""})
    assert {words[0] for words in VERBS if len(words) == 1} == NOUNS_WITHOUT_VERBS


@named
def test_every_command_has_the_option_output(words: tuple[str, ...]) -> None:
    flags = {flag for param in VERBS[words].params for flag in param.opts}
    assert ("--output" in flags) is (words not in WITHOUT_OUTPUT)


@named
def test_every_command_has_help(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*words, "--help"])
    assert shown.exit_code == 0
    assert "Usage:" in shown.output


@named
def test_help_shows_examples_one_below_the_other(words: tuple[str, ...]) -> None:
    wide = {"COLUMNS": "200", "TERMINAL_WIDTH": "200"}
    shown = CliRunner().invoke(app, [*words, "--help"], env=wide).output
    lines = [line.strip() for line in shown[shown.index("Examples:") :].strip().split("\n")]
    assert lines == ["Examples:", *example_lines(VERBS[words].epilog)]


def test_help_has_no_markup_of_documentation() -> None:
    bad = {
        " ".join(words): text
        for words, command in commands(typer.main.get_command(app))
        for text in (
            command.help,
            command.epilog,
            *(getattr(param, "help", None) for param in command.params),
        )
        if text and re.search(r"`|:[a-z]+:`|\*\*", text)
    }
    assert bad == {}, "help is shown as it is: write names of commands and files without quotes"


@named
def test_first_line_of_help_is_one_sentence(words: tuple[str, ...]) -> None:
    summary = (VERBS[words].help or "").split("\n\n")[0].replace("\n", " ").strip()
    assert summary.endswith(".")
    assert summary[0].isupper()
    assert len(summary) <= 100


@named
def test_every_command_has_an_example(words: tuple[str, ...]) -> None:
    assert f"waltz {' '.join(words)}" in (VERBS[words].epilog or "")


@named
def test_every_option_has_help(words: tuple[str, ...]) -> None:
    silent = [param.name for param in VERBS[words].params if not getattr(param, "help", None)]
    assert silent == []


@named
def test_arguments_have_metavars_and_hosts_precede_partitions(
    words: tuple[str, ...],
) -> None:
    arguments = [p for p in VERBS[words].params if p.param_type_name == "argument"]
    assert [p.name for p in arguments if not p.metavar] == []
    kinds = ["host" if p.name in HOSTS else "other" for p in arguments]
    assert kinds == sorted(kinds), [p.name for p in arguments]
    assert [p.name for p in arguments if p.name in HOSTS] in HOSTS_IN_ORDER


def test_superseded_commands_are_hidden() -> None:
    hidden = {" ".join(words) for words, verb in VERBS.items() if verb.hidden}
    assert hidden == {
        "storage availability",
        "storage recover-partition",
    }


@named
def test_every_example_parses(words: tuple[str, ...]) -> None:
    """The part after a pipe or a redirection is for the shell; the rest must parse."""
    for line in example_lines(VERBS[words].epilog):
        typed = line.partition("|")[2] if line.startswith("seq ") else line.partition("|")[0]
        arguments = shlex.split(typed.partition(">")[0].partition("<")[0].strip())
        assert arguments[0] == "waltz", line
        verb = next((v for v in VERBS if tuple(arguments[1 : 1 + len(v)]) == v), None)
        assert verb is not None, line
        with VERBS[verb].make_context("waltz", arguments[1 + len(verb) :]):
            pass


def test_version_option_prints_version() -> None:
    printed = CliRunner().invoke(app, ["--version"], prog_name="waltz")
    assert (printed.exit_code, printed.stdout) == (0, f"waltz {version('waltz-log')}\n")
    assert "Run, operate and use a Waltz transaction log." in CliRunner().invoke(app).output


def test_shell_completes_nouns_and_verbs() -> None:
    completion = {
        "_WALTZ_COMPLETE": "complete_bash",
        "COMP_WORDS": "waltz disk ",
        "COMP_CWORD": "2",
    }
    completed = CliRunner().invoke(app, [], env=completion, prog_name="waltz")
    verbs = ["verify", "stat", "dump", "control", "export", "wal", "flatten"]
    assert completed.stdout.split() == verbs


def completed(line: str) -> list[str]:
    """Return what a shell completes the last word of ``line`` to."""
    completion = {
        "_WALTZ_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    return CliRunner().invoke(app, [], env=completion, prog_name="waltz").stdout.split()


@pytest.mark.parametrize("verb", ["kill", "start", "logs"])
def test_shell_completes_the_processes_of_the_local_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert completed(f"waltz local {verb} ") == []
    for directory, servers in (("waltz-local", 1), ("w", 2)):
        layout = ClusterLayout(tmp_path / directory)
        layout.log("server/0").parent.mkdir(parents=True)
        shape = Shape(partitions=1, storages=1, servers=servers)
        layout.plan.write_text(LocalClusterPlan.of(shape, count(1000)).to_json())
        for name in ("storage/0", *(f"server/{number}" for number in range(servers))):
            layout.log(name).touch()
    assert completed(f"waltz local {verb} ") == ["storage/0", "server/0"]
    assert completed(f"waltz local {verb} se") == ["server/0"]
    assert completed(f"waltz local {verb} --dir w se") == ["server/0", "server/1"]
