"""The help of every verb has a sentence, an example, and a text for each option."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from waltz.cli.app import app

NOUNS_WITHOUT_VERBS = {"console", "doctor", "top"}
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


VERBS = dict(verbs(typer.main.get_command(app)))
named = pytest.mark.parametrize("words", VERBS, ids=" ".join)


def test_every_command_is_noun_and_verb() -> None:
    assert len(VERBS) > 20
    lengths = {words: len(words) for words in VERBS}
    assert all(n == 2 or words[0] in NOUNS_WITHOUT_VERBS for words, n in lengths.items())


@named
def test_every_command_has_help(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*words, "--help"])
    assert shown.exit_code == 0
    assert "Usage:" in shown.output


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
    for line in (VERBS[words].epilog or "").split("\n\n")[1:]:
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
