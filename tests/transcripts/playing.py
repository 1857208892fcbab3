"""Runs a transcript: a text of commands and of what they show, which is written anew.

A file begins with prose, every line of it with "#". Then come commands, each followed by "----",
what is to be seen, and an empty line. Several commands before one "----" are done in turn.
"""

from __future__ import annotations

from typing import Protocol

_RULE = "----"
_NOTHING = "nothing happens"


class Playing(Protocol):
    """A stage, on which commands are done."""

    def run(self, command: str) -> list[str]:
        """Do one command; return what is to be seen."""


def played(text: str, stage: Playing) -> str:
    """Return ``text`` with what its commands show on ``stage``."""
    out: list[str] = []
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
