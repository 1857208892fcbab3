"""The result of ``waltz doctor``: its fields, and its lines."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from waltz.admin.core.health import Health, HealthState, Severity, Statement
from waltz.cli.cluster_options import LOCAL_DIRECTORY


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


@dataclass(frozen=True, slots=True)
class LocalNames:
    """The names of a local cluster's processes by address, and the cluster's directory.

    The directory is None for other clusters.
    """

    directory: Path | None
    names: Mapping[str, str]

    def start_command(self, address: str | None) -> str | None:
        """Return the command that starts the process at ``address``, None if it is not local."""
        name = None if address is None else self.names.get(address)
        if name is None or self.directory is None:
            return None
        where = (
            []
            if self.directory.absolute() == LOCAL_DIRECTORY.absolute()
            else ["--dir", str(self.directory)]
        )
        return shlex.join(["waltz", "local", "start", name, *where])


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
        if each.since is not None:
            yield f"  since {each.since} or earlier"
        yield f"  {each.remedy}" + ("." if each.command is None else ":")
        if each.command is not None:
            yield f"  $ {each.command}"


def _problem(each: Statement, local: LocalNames, given: Sequence[str]) -> Problem:
    """Return a problem with a command that can be typed as it is (see `diagnosis`)."""
    since = None
    if each.since is not None:
        since = datetime.fromtimestamp(each.since, UTC).isoformat(timespec="seconds")
    command = local.start_command(each.process)
    if command is None and each.command is not None:
        command = " ".join([each.command, *map(shlex.quote, given)])
    return Problem(each.severity, each.text, since, each.remedy, command)
