"""The result of a verb that changes something: a sentence for people, fields for scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from waltz.cli.output import Format, OutputFormat, check_template, say, show
from waltz.cli.rows import as_value, nested, record


class Outcome(StrEnum):
    """What became of a change."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    """Nothing had to be done."""
    PLANNED = "planned"
    """A dry run, which changes nothing."""
    FAILED = "failed"
    """A part of the change failed; ``steps`` has the steps that were begun."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a verb changed, or would change in a dry run.

    ``action`` names the verb, such as ``storage add``, and ``object`` what it changed, such as the
    address of a storage. ``partitions`` are those that the command line names, in order. ``steps``
    are texts for people: what was done, or would be done, in order.
    """

    action: str
    object: str
    partitions: tuple[int, ...]
    outcome: Outcome
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailedPartition:
    """A partition whose recovery failed, and why."""

    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class RecoveryChange(Change):
    """The recovery of several partitions; ``failures`` are those that failed."""

    failures: Annotated[tuple[FailedPartition, ...], nested(FailedPartition)]


def change(
    action: str,
    object_: str,
    steps: Sequence[str],
    *,
    partitions: Sequence[int] = (),
    dry_run: bool = False,
) -> Change:
    """Return the change that ``steps`` made, or would make in a dry run."""
    outcome = Outcome.CHANGED if steps else Outcome.UNCHANGED
    if dry_run:
        outcome = Outcome.PLANNED
    return Change(action, object_, tuple(partitions), outcome, tuple(steps))


def recovery_change(made: Change, failures: Mapping[int, str]) -> RecoveryChange:
    """Return a recovery that made the change ``made``.

    ``failures`` has why the recovery of a partition failed, by partition.
    """
    outcome = Outcome.FAILED if failures else made.outcome
    failed = tuple(FailedPartition(partition, why) for partition, why in failures.items())
    return RecoveryChange(
        made.action, made.object, made.partitions, outcome, made.steps, failures=failed
    )


def check_change_template(output: OutputFormat) -> None:
    """Raise typer.BadParameter if ``output`` is a template that does not fit a `Change`.

    A verb calls this before it begins, if an error at its end would undo the change.
    """
    check_template(output, as_value(change("", "", [])))


def show_change(output: OutputFormat, changed: Change, sentence: str) -> None:
    """Print a change: ``sentence`` on standard error for people, or the fields for scripts.

    An empty sentence prints nothing.
    """
    if output is not Format.TABLE:
        show(output, record("", changed))
    elif sentence:
        say(sentence)
