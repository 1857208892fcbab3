"""Print each error of a command line as one line. Touches the standard streams.

typer shows an error as a box of several lines, which programs cannot read and log collectors
split.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

# ClickException, the base class of all errors of the command line: BadParameter is a UsageError,
# which is a ClickException. The class cannot be imported by name: older versions of typer use that
# of click, and newer versions have a copy of click. Only names of typer itself are in both.
_CommandLineError: type[Exception] = typer.BadParameter.__mro__[2]

# Patterns in the messages of pydantic and click, and the words that replace them. The order counts:
# a general pattern comes after the special ones that it contains.
_PLAIN_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"Input should be a valid integer\b[^;]*", "it must be a whole number"),
        (r"Input should be a valid number\b[^;]*", "it must be a number"),
        (r"Input should be a valid UUID\b[^;]*", "it must be a UUID"),
        (
            # The two alternatives are the messages of pydantic and of click.
            r"(?<=for 'PARTITION': )(Input should be greater than.*|.* is not in the range x>=0)",
            "partitions are numbered from 0",
        ),
        (r"Input should be ", "it must be "),
        (r"Value error, ", ""),
        # Click puts these words before the text of an error that names no option or argument. Only
        # our own code raises such errors, also where the user has given no value at all. Their
        # texts need no such words.
        (r"^Invalid value: ", ""),
    )
)
_HELP_ERROR_CLASS = "NoArgsIsHelpError"
"""The error of a group that is typed without a verb: its text is the help.

The error is recognised by this name: like ClickException, its class cannot be imported."""


class _OneLine:
    """The base of the classes below: a wrong command line ends the program with one line."""

    program = "waltz"
    """The name that the line begins with."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command; in the standalone mode, end the program with its status.

        That is the default mode of click, for a command that is a program. In the other mode, the
        caller gets the result or the error of the command.
        """
        run_command: Any = super().main  # type: ignore[misc]
        run = partial(
            run_command,
            args,
            prog_name,
            complete_var,
            standalone_mode=False,
            windows_expand_args=windows_expand_args,
            **extra,
        )
        if not standalone_mode:
            return run()
        try:
            status = run()
        except _CommandLineError as error:
            sys.exit(_show(self.program, error))
        except typer.Abort:
            print(f"{self.program}: aborted", file=sys.stderr)  # noqa: T201
            sys.exit(1)
        # ``run`` returns the status of a `typer.Exit`, otherwise what the command returns.
        sys.exit(status if isinstance(status, int) else 0)


class OneLineGroup(_OneLine, TyperGroup):
    """The group ``waltz``."""


class OneLineCommand(_OneLine, TyperCommand):
    """A program that is one command."""


def one_line_command(program_name: str) -> type[TyperCommand]:
    """Return the class of the command of the program ``program_name``."""

    class Command(OneLineCommand):
        program = program_name

    return Command


def _show(program: str, error: Any) -> int:
    """Print the error; return the exit status."""
    if type(error).__name__ == _HELP_ERROR_CLASS:
        # The text of this error is the help, the only output that has several lines.
        error.show()
        return int(error.exit_code)
    context = getattr(error, "ctx", None)
    # Make one line: a message with a list of possible values has several.
    text = _plain(" ".join(str(error.format_message()).split()))
    if context is not None:
        # No semicolon after a suggestion, such as `Did you mean ...?`.
        separator = "" if text.endswith("?") else ";"
        text += f"{separator} see: {context.command_path} --help"
    print(f"{program}: {text}", file=sys.stderr)  # noqa: T201
    return int(error.exit_code)


def _plain(message: str) -> str:
    """Return a message with plain words instead of those of pydantic and click."""
    for pattern, words in _PLAIN_WORDS:
        message = pattern.sub(words, message)
    return message.rstrip(".")
