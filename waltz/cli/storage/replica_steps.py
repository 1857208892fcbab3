"""What people are told of plans about replicas, and of those that cannot be done. Prints."""

from __future__ import annotations

from typing import Annotated

import typer

from waltz.admin import Done, Next, Refuse, Step, Told, Wait
from waltz.cli.output import say
from waltz.cli.running import Failed

Only = Annotated[
    Told | None, typer.Option("--only", help="Tell only ZooKeeper, or only the storage.")
]


def tell(step: Step | Wait) -> None:
    """Say what is tried, or waited for."""
    say(f"waiting: {step.reason}" if isinstance(step, Wait) else str(step))


def foretell(found: Next) -> None:
    """Say what would be done next. Raises Failed if nothing could be."""
    match found:
        case Done():
            say("nothing is left to do")
        case Refuse(reason):
            raise Failed(reason)
        case Wait(reason):
            say(f"it would wait: {reason}")
        case step:
            say(f"it would begin with: {step}")


def check_possible(found: Next) -> None:
    """Raise Failed if what is next is to wait, or that it cannot be done at all."""
    if isinstance(found, Wait | Refuse):
        raise Failed(found.reason)
