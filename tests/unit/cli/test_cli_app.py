"""The command imports only what the noun on the command line needs."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from waltz.cli.app import app

_PROGRAM = """
import sys
from waltz.cli import main

if {missing!r}:
    sys.modules[{missing!r}] = None
sys.argv = {command!r}
try:
    main()
finally:
    print(*(name for name in sys.modules if name.startswith("waltz.cli.")), file=sys.stderr)
"""


def run(*words: str, missing: str = "") -> subprocess.CompletedProcess[str]:
    """Run ``waltz`` in a new process; the last line of its errors has the imported modules."""
    program = _PROGRAM.format(missing=missing, command=["waltz", *words])
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("noun", ["log", "profile", "doctor"])
def test_process_imports_the_commands_of_its_noun_only(noun: str) -> None:
    ended = run(noun, "--help")
    imported = set(ended.stderr.splitlines()[-1].split())
    commands = {name for name in imported if name.endswith(".commands")}
    assert (ended.returncode, commands) == (0, {f"waltz.cli.{noun}.commands"})


def test_noun_without_a_library_of_the_extra_names_the_remedy() -> None:
    ended = run("top", missing="rich")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "waltz: the command needs rich: pip install 'waltz-log[cli]'" in ended.stderr


def test_help_of_the_command_names_every_noun() -> None:
    shown = run("--help").stdout
    nouns = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert len(nouns) == 14
    assert [noun for noun in nouns if f" {noun} " not in shown] == []
