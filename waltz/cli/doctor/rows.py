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

    ``since`` is a time in UTC at which the problem existed already, ``after`` one at which it did
    not exist yet; each is None if no such time is known. ``command`` is the command to type next,
    None if there is none.
    """

    severity: Severity
    text: str
    since: str | None
    remedy: str
    command: str | None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The health of a cluster, its most urgent problems first."""

    state: HealthState
    headline: str
    problems: tuple[Problem, ...]


def diagnosis(health: Health, local: LocalNames, typed_options: Sequence[str]) -> Diagnosis:
    """Return the result for ``health``; its commands repeat ``typed_options``."""
    problems = tuple(_problem(statement, local, typed_options) for statement in health.statements)
    return Diagnosis(health.state, health.headline, problems)


def text_lines(result: Diagnosis) -> Iterator[str]:
    """Yield the lines for a terminal."""
    yield result.headline
    for problem in result.problems:
        yield ""
        yield f"{problem.severity.value.upper()}  {problem.text}"
        yield f"  {_since_text(problem)}"
        yield f"  {problem.remedy}" + ("." if problem.command is None else ":")
        if problem.command is not None:
            yield f"  $ {problem.command}"


def _problem(statement: Statement, local: LocalNames, typed_options: Sequence[str]) -> Problem:
    """Return the problem of ``statement``, with a command that can be typed as it is.

    If a process of a local cluster must be started, the command is ``waltz local start``. If it
    runs, but does not answer, the command shows its log, and the remedy names its restart.
    """
    since = _local_end(statement, local) or statement.period.since
    after = statement.period.after
    # If both contradict each other, ``since`` is the end of a local process. It is right, because
    # the supervisor saw this end, so ``after`` is wrong.
    if since is not None and after is not None and after >= since:
        after = None
    remedy = statement.remedy
    command = local.start_command(statement.process)
    if (hanging := local.remedy_if_hanging(statement.process)) is not None:
        remedy, command = hanging
    if command is None:
        command = local.start_missing_command(statement.missing)
        if command is not None:
            # The other sentences announce the command of ``statement``, which is not shown.
            remedy = remedy.partition(". ")[0]
    if command is None and statement.command is not None:
        command = suggested(statement.command, typed_options)
    return Problem(statement.severity, statement.text, _utc(since), remedy, command, _utc(after))


def _local_end(statement: Statement, local: LocalNames) -> float | None:
    """Return when the local process whose end is the problem ended, None if that is unknown."""
    if statement.process is not None:
        return local.ended_at(statement.process)
    return None if statement.missing is None else local.missing_since(statement.missing)


def _utc(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")


def _since_text(problem: Problem) -> str:
    """Return what is known of the beginning of a problem."""
    match problem.since, problem.after:
        case None, None:
            return "since: unknown"
        case None, after:
            return f"since some time after {after}"
        case since, None:
            return f"since {since} or earlier"
        case since, after:
            return f"since some time between {after} and {since}"
