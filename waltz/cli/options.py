"""Arguments and options that several verbs have, and how texts become values. Asks people.

Which cluster a verb is about is said by the options in `cluster_options`.
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
    str | None, typer.Argument(metavar="[RANGES]", help="Such as 0-6,7. Without it: all.")
]
Storage = Annotated[
    str, typer.Argument(metavar="HOST:PORT", help="The storage, by the port that servers use.")
]
Silence = Annotated[
    float,
    typer.Option("--timeout", "-t", min=0.1, help="Seconds without anything until it gives up."),
]


class OnOff(StrEnum):
    """The position of a switch."""

    ON = "on"
    OFF = "off"


DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only say what would be done; change nothing.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


def parsed(parse: Callable[[str], T], text: str) -> T:
    """Return what ``parse`` makes of an argument; its ValueError becomes a usage error."""
    try:
        return parse(text)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from problem


def partitions_of(text: str | None) -> tuple[int, ...] | None:
    """Return what `AnyPartitions` names, None for all; what is no range is a usage error."""
    return None if text is None else parsed(parse_partitions, text)


def examples(*lines: str) -> str:
    """Return a help text's last part: commands to try."""
    # A paragraph each, because lines of one are joined.
    return "\n\n".join(("Examples:", *lines))


def confirm(what: str, *, yes: bool) -> None:
    """Ask whether ``what`` shall be done, unless ``yes``; anything but a yes ends the verb."""
    if not yes:
        typer.confirm(f"{what}. Go on?", abort=True, err=True)
