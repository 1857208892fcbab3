"""Arguments and options that several verbs share, and the confirmation. Touches the terminal.

The options that name a cluster are in `cluster_options`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from waltz.client.core.ranges import parse_partitions

T = TypeVar("T")

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
    """Return the partitions that an argument `AnyPartitions` names, None for all partitions.

    A bad range is a usage error.
    """
    return None if text is None else parse_argument(parse_partitions, text)


def examples(*lines: str) -> str:
    """Return the examples that end a help text."""
    # Each line is a paragraph, because the lines of one paragraph would be joined.
    return "\n\n".join(("Examples:", *lines))


def confirm(what: str, *, yes: bool) -> None:
    """Unless ``yes``, ask the user to confirm ``what``; end the verb if the user does not."""
    if not yes:
        typer.confirm(f"{what}. Continue?", abort=True, err=True)
