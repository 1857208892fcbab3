"""The result of ``waltz doctor``: its fields, and its lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from waltz.admin.core.health import Health, HealthState, Severity, Statement
from waltz.cli.local_names import LocalNames
from waltz.cli.suggested import suggested


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    ``since`` is a time in UTC at which the problem existed already, None if no time is known.
    ``command`` is the command to type next, None if there is none.
    """

    severity: Severity
    text: str
    since: str | None
    remedy: str
    command: str | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The health of a cluster, its most urgent problems first."""

    state: HealthState
    headline: str
    problems: tuple[Problem, ...]


def diagnosis(health: Health, local: LocalNames, given: Sequence[str]) -> Diagnosis:
    """Return the result for ``health``; its commands repeat the options ``given``."""
    problems = tuple(_problem(each, local, given) for each in health.statements)
    return Diagnosis(health.state, health.headline, problems)


def text_lines(found: Diagnosis) -> Iterator[str]:
    """Yield the lines for a terminal."""
    yield found.headline
    for each in found.problems:
        yield ""
        yield f"{each.severity.value.upper()}  {each.text}"
        yield "  since: unknown" if each.since is None else f"  since {each.since} or earlier"
        yield f"  {each.remedy}" + ("." if each.command is None else ":")
        if each.command is not None:
            yield f"  $ {each.command}"


def _problem(each: Statement, local: LocalNames, given: Sequence[str]) -> Problem:
    """Return a problem with a command that can be typed as it is (see `diagnosis`)."""
    since = None
    if each.since is not None:
        since = datetime.fromtimestamp(each.since, UTC).isoformat(timespec="seconds")
    command, remedy = local.start_command(each.process), each.remedy
    if command is None and (start := local.start_missing_command(each.missing)) is not None:
        # The rest of the remedy is about the command that is replaced.
        command, remedy = start, remedy.partition(". ")[0]
    if command is None and each.command is not None:
        command = suggested(each.command, given)
    return Problem(each.severity, each.text, since, remedy, command)
