"""Perform the commands of a transcript, and return its text with the output of this run.

A transcript begins with a description, each line of which begins with "#". Then come commands, each
followed by "----", the expected output and an empty line. Several commands before one "----" are
performed one after the other.
"""

from __future__ import annotations

from typing import Protocol

_RULE = "----"
_NOTHING = "nothing happens"


class Playing(Protocol):
    """The object on which the commands of a transcript are performed."""

    def run(self, command: str) -> list[str]:
        """Perform one command; return the lines of its output."""


def played(text: str, stage: Playing) -> str:
    """Return ``text`` with the output of its commands on ``stage`` in place of the old output."""
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
