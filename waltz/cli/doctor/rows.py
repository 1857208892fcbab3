"""The result of ``waltz doctor``: its fields for scripts, and its lines for people.

`waltz.admin.core.health` finds the problems. This module adds what only the command line knows: the
options that name the cluster, and the processes of a local cluster.
"""

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

    ``since`` is a time in UTC at which the problem existed already, ``after`` an earlier one at
    which it did not exist yet; each is None if no such time is known. ``remedy`` is what to do.
    ``command`` is the command to type next, None if there is none.
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
    """Return the result for ``health``.

    ``local`` has the processes if the cluster is a local one. ``typed_options``, which name the
    cluster on the command line, are added to suggested commands.
    """
    problems = tuple(_problem(statement, local, typed_options) for statement in health.statements)
    return Diagnosis(health.state, health.headline, problems)


def text_lines(result: Diagnosis) -> Iterator[str]:
    """Yield the lines that are printed for people."""
    yield result.headline
    for problem in result.problems:
        yield ""
        yield f"{problem.severity.value.upper()}  {problem.text}"
        yield f"  {_since_text(problem)}"
        yield f"  {problem.remedy}" + ("." if problem.command is None else ":")
        if problem.command is not None:
            yield f"  $ {problem.command}"


def _problem(statement: Statement, local: LocalNames, typed_options: Sequence[str]) -> Problem:
    """Return the problem of ``statement``, with a command that can be typed as it is."""
    since = _local_end(statement, local) or statement.period.since
    after = statement.period.after
    if since is not None and after is not None and after >= since:
        # The times of a `Period` never contradict each other, so here ``since`` is from
        # `_local_end`. The supervisor saw the process end at that time: ``after`` is wrong.
        after = None
    remedy, command = _remedy_and_command(statement, local, typed_options)
    return Problem(statement.severity, statement.text, _utc(since), remedy, command, _utc(after))


def _remedy_and_command(
    statement: Statement, local: LocalNames, typed_options: Sequence[str]
) -> tuple[str, str | None]:
    """Return the remedy and the command for ``statement``.

    If the remedy is to start or restart a process of a local cluster, they name the commands of
    ``waltz local``. Otherwise they are those of ``statement``.
    """
    # A local process runs and does not answer: restart it.
    hanging = local.remedy_if_hanging(statement.process)
    if hanging is not None:
        return hanging
    # A local process does not run: start it.
    command = local.start_command(statement.process)
    if command is not None:
        return statement.remedy, command
    # Too few local processes of a kind run: start one of them.
    command = local.start_missing_command(statement.missing)
    if command is not None:
        # Only the first sentence: the others introduce the command of ``statement``.
        return statement.remedy.partition(". ")[0], command
    if statement.command is not None:
        command = suggested(statement.command, typed_options)
    return statement.remedy, command


def _local_end(statement: Statement, local: LocalNames) -> float | None:
    """Return when the problem began by the end of a process of a local cluster.

    In seconds since 1970; None if the problem has another cause, or the time is unknown.
    """
    if statement.process is not None:
        return local.ended_at(statement.process)
    if statement.missing is not None:
        return local.missing_since(statement.missing)
    return None


def _utc(time: float | None) -> str | None:
    """Return a time, given in seconds since 1970, as text; None for None."""
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")


def _since_text(problem: Problem) -> str:
    """Return what is known of the beginning of a problem, as text."""
    match problem.since, problem.after:
        case None, None:
            return "since: unknown"
        case None, after:
            return f"since some time after {after}"
        case since, None:
            return f"since {since} or earlier"
        case since, after:
            return f"since some time between {after} and {since}"
