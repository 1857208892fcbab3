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
    """A part of the change failed; `Change.steps` has the steps that were begun."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a verb changed, or would change in a dry run.

    ``action`` names the verb, such as ``storage add``. ``object`` names what the verb changed, such
    as the address of a storage. ``partitions`` are those that the command line names; if it names
    none, those that the verb works on instead, such as all of a storage. For verbs to which no
    partitions can be given, there are none. ``steps`` are texts for people: what was done, or would
    be done, in order.
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
    """The recovery of several partitions; ``failures`` has those whose recovery failed."""

    failures: Annotated[tuple[FailedPartition, ...], nested(FailedPartition)]


def change(
    action: str,
    object_: str,
    steps: Sequence[str],
    *,
    partitions: Sequence[int] = (),
    dry_run: bool = False,
) -> Change:
    """Return the change that ``steps`` made, or would make in a dry run.

    The other arguments are the fields of `Change`.
    """
    outcome = Outcome.CHANGED if steps else Outcome.UNCHANGED
    if dry_run:
        outcome = Outcome.PLANNED
    return Change(action, object_, tuple(partitions), outcome, tuple(steps))


def recovery_change(made: Change, failures: Mapping[int, str]) -> RecoveryChange:
    """Return ``made``, the change that a recovery made, together with its failures.

    ``failures`` maps each partition whose recovery failed to the reason.
    """
    outcome = Outcome.FAILED if failures else made.outcome
    failed_partitions = tuple(
        FailedPartition(partition, reason) for partition, reason in failures.items()
    )
    return RecoveryChange(
        made.action, made.object, made.partitions, outcome, made.steps, failures=failed_partitions
    )


def check_change_template(output: OutputFormat) -> None:
    """Raise typer.BadParameter if ``output`` is a template that does not fit a `Change`.

    ``waltz local up`` calls this before it begins: an error while it prints its result would stop
    the cluster that it has started.
    """
    check_template(output, as_value(change("", "", [])))


def show_change(output: OutputFormat, changed: Change, sentence: str) -> None:
    """Print a change: ``sentence`` for people on standard error, or the fields for scripts.

    People who already know the result get an empty ``sentence``; then nothing is printed for them.
    """
    if output is not Format.TABLE:
        show(output, record("", changed))
    elif sentence:
        say(sentence)
