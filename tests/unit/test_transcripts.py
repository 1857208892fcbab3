"""Runs the transcripts of tests/transcripts; `REWRITE=1` writes what is shown into the files.

A file begins with prose, every line of it with "#". Then come commands, each followed by "----",
what is to be seen, and an empty line. Several commands before one "----" are done in turn.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transcripts.stage import Stage

_FOLDER = Path(__file__).parents[1] / "transcripts"
_RULE = "----"
_NOTHING = "nothing happens"
_FILES = sorted(_FOLDER.glob("*.txt"))


def _played(text: str) -> str:
    """Return ``text`` with what its commands show now."""
    stage, out = Stage(), []
    commands: list[str] = []
    shown = False
    for line in text.splitlines():
        if shown:
            shown = line != ""
        elif line == _RULE:
            seen = [each for command in commands for each in stage.run(command)]
            out += [line, *(seen or [_NOTHING]), ""]
            commands, shown = [], True
        elif line == "" or line.startswith("#"):
            out.append(line)
        else:
            out.append(line)
            commands.append(line)
    assert not commands, f"commands without {_RULE}: {commands}"
    return "\n".join(out).rstrip("\n") + "\n"


def test_there_are_transcripts() -> None:
    assert _FILES


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_transcript(file: Path) -> None:
    text = file.read_text()
    assert text.startswith("#"), "a transcript tells first what it shows"
    played = _played(text)
    if os.environ.get("REWRITE"):
        file.write_text(played)
    else:
        assert text.splitlines() == played.splitlines()


def test_a_transcript_that_says_something_else_fails() -> None:
    text = "# A new partition.\n\nassign a b c\nconnect a\n----\nnothing happens\n"
    assert "session 0 waits" in _played(text)
