"""Arguments and options that several verbs share, and the confirmation. Touches the terminal.

The options that name a cluster are in `cluster_options`.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from waltz.protocol.notation import parse_partitions

T = TypeVar("T")

_TYPER_VERSION = tuple(int(number) for number in typer.__version__.split(".")[:2])
# In the text that ends a help text, typer 0.28 and later keep lines and empty lines. Earlier
# versions join the lines of a paragraph, and show no empty line between paragraphs.
_LINE_BREAK = "\n" if _TYPER_VERSION >= (0, 28) else "\n\n"

Partition = Annotated[
    int, typer.Argument(metavar="PARTITION", min=0, help="Partitions are numbered from 0.")
]
Partitions = Annotated[str, typer.Argument(metavar="RANGES", help="Such as 0-6,7,10-16.")]
AnyPartitions = Annotated[
    str | None, typer.Argument(metavar="[RANGES]", help="Such as 0-6,7. Default: all.")
]
Storage = Annotated[
    str, typer.Argument(metavar="HOST:PORT", help="The storage, with the port that servers use.")
]
AnswerTimeout = Annotated[
    float,
    typer.Option(
        "--timeout", "-t", min=0.1, help="Seconds without an answer until the command fails."
    ),
]
MinDiskFree = Annotated[
    float,
    typer.Option(
        metavar="PERCENT",
        min=0,
        max=100,
        help="Report the disk of a storage as a problem if it has less free space; 0: never.",
    ),
]


class OnOff(StrEnum):
    """The position of a switch."""

    ON = "on"
    OFF = "off"


DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done; change nothing.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def parse_argument(parse: Callable[[str], T], text: str) -> T:
    """Return ``parse(text)``; a ValueError of ``parse`` becomes a usage error."""
    try:
        return parse(text)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from problem


def partitions_of(text: str | None) -> tuple[int, ...] | None:
    """Return the partitions that an argument `AnyPartitions` names, in ascending order.

    None means all partitions. A malformed range is a usage error.
    """
    return None if text is None else parse_argument(parse_partitions, text)


def check_finite(values: Mapping[str, object]) -> None:
    """Raise a usage error if a value is not finite, such as a time limit of ``inf``.

    ``values`` are the values of options by parameter name. This check is needed because typer reads
    the words ``inf`` and ``nan`` as numbers.
    """
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{option} is {value}: it must be a finite number")


def examples(*lines: str) -> str:
    """Return the text that ends the help of a verb: the command lines ``lines``, as examples."""
    return _LINE_BREAK.join(("Examples:", *lines))


def example_lines(epilog: str | None) -> list[str]:
    """Return the command lines from which `examples` made ``epilog``; none if it is None."""
    # The first line is the heading. There are empty lines if `_LINE_BREAK` is two line breaks.
    return [line for line in (epilog or "").split("\n")[1:] if line]


def confirm(what: str, *, yes: bool) -> None:
    """Unless ``yes``, ask the user to confirm ``what``; end the verb if the user does not."""
    if not yes:
        # With ``err=True`` alone, click prints the end of the question to standard output.
        with contextlib.redirect_stdout(sys.stderr):
            typer.confirm(f"{what}. Continue?", abort=True, err=True)
