"""Say in words what is wrong with a cluster, and which command comes next. Pure.

The statements follow from a sample (`core.sample`) and from the checks of ``waltz cluster verify``
(`core.verification`). If a process does not answer, it has a statement. Other problems that may
follow from that are left out, unless appends wait because of them (`_CRITICAL`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from waltz.admin.core import problem_times
from waltz.admin.core.problem_times import UNKNOWN_PERIOD, Period
from waltz.admin.core.replica_states import PartitionState, PartitionStatus, ReplicaState
from waltz.admin.core.sample import Sample
from waltz.admin.core.verification import Check, Finding
from waltz.protocol.notation import format_partitions

MIN_DISK_FREE = 20.0
"""A disk with a smaller percentage of free space is reported, as by the Helm chart's alert."""

_REMEDIES = {
    Check.ONE_SERVER: (
        "Start a server, which takes over partitions without one. To see which servers run",
        "waltz server list",
    ),
    Check.SERVER_AGREES: (
        "Wait some seconds. If it stays so, read the log of the server. To repeat the checks for "
        "up to 30 s",
        "waltz cluster verify --wait 30",
    ),
    Check.STORAGES_REACHED: ("Check the network between both", "waltz cluster check-connectivity"),
    Check.STORAGES_AGREE: ("Compare and correct", "waltz storage sync --dry-run"),
    Check.QUORUM: ("Start storages until the partition has a majority", "waltz storage list"),
    Check.REPLICAS_RECOVERED: (
        "Wait until the server has filled the replica; the log of the server has the progress. "
        "To watch the lag of replicas",
        "waltz top",
    ),
    Check.SERVER_HEALTHY: ("Find the missing replicas", "waltz cluster verify"),
}
"""For each check: what to do if it fails, and the next command, which is shown after a colon."""
_IMPLIED_BY_NO_QUORUM = {Check.SERVER_HEALTHY, Check.REPLICAS_RECOVERED}
"""Checks that fail because of a missing quorum; then only the missing quorum gets a statement."""
_IMPLIED_BY_NO_SERVER = (
    re.compile(r"server \d+ is not running"),
    re.compile(r"it is assigned to no server"),
)
"""Problems that other checks find because ONE_SERVER fails; then they get no statement."""
_GENERAL = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"it is assigned to server \d+, which is not running", "its server is not running"),
        (r"server \d+ is not running", "its server is not running"),
        (r"server \d+ could not open", "its server could not open"),
        (r"server \d+ does not reach", "its server does not reach"),
        (r"took part in session \d+, but not in the current one, \d+", "is out of its session"),
        (r"is being filled in session \d+", "is being filled"),
        (r"reports that it is in (no session|session \d+), not in \d+", "is in another session"),
    )
)
"""For a statement on several partitions: parts of a problem with numbers, and their substitutes."""
_PERIOD_OF = {
    Check.ONE_SERVER: problem_times.of_missing_server,
    Check.QUORUM: problem_times.of_closed_session,
    Check.SERVER_HEALTHY: problem_times.of_closed_session,
    Check.REPLICAS_RECOVERED: problem_times.of_missing_replica,
}
"""The functions that return the `Period` of a check's problems, where metadata can show it."""
_CRITICAL = {Check.ONE_SERVER, Check.QUORUM, Check.SERVER_HEALTHY}
"""Checks whose problems make appends wait."""


class Severity(StrEnum):
    """How urgent a statement is. CRITICAL: appends wait, or data are at risk."""

    CRITICAL = "critical"
    WARNING = "warning"


class ProcessKind(StrEnum):
    """The kinds of processes of which a cluster has several."""

    SERVER = "server"
    STORAGE = "storage"


_MISSING = {Check.ONE_SERVER: ProcessKind.SERVER, Check.QUORUM: ProcessKind.STORAGE}
"""If one of these checks fails, one more process of the given kind is the remedy."""


class HealthState(StrEnum):
    """The health of the whole cluster.

    UNAVAILABLE: a partition accepts no appends. UNKNOWN: none is known to be unavailable, but it is
    unknown whether all accept appends. DEGRADED: there is another problem, or a partition is being
    opened.
    """

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that is wrong, what to do about it, and the next command (None: there is none).

    A statement is shown as ``text``, then ``remedy``, and after a colon ``command``. ``period`` is
    what is known of the time at which the problem began. ``process`` is the address of the process
    that does not answer, None if the problem is another one. ``missing`` is the kind of process to
    add, None if that is no remedy.
    """

    severity: Severity
    text: str
    remedy: str
    command: str | None = None
    period: Period = UNKNOWN_PERIOD
    process: str | None = None
    missing: ProcessKind | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a cluster: a state, a sentence, and the statements, the most urgent first."""

    state: HealthState
    headline: str
    statements: tuple[Statement, ...]


def no_sample(problem: str) -> Health:
    """Return the health if the cluster could not be sampled, because ZooKeeper does not answer."""
    statement = Statement(
        Severity.CRITICAL, problem, "Check that a majority of ZooKeeper's servers is running"
    )
    return unknown_health(statement)


def unknown_health(*statements: Statement) -> Health:
    """Return the health of a cluster if no more than ``statements`` is known."""
    text = "The state of the cluster is unknown at present."
    return Health(HealthState.UNKNOWN, text, statements)


def judge(
    now: Sample,
    partitions: Sequence[PartitionStatus],
    findings: Sequence[Finding],
    *,
    min_disk_free: float = MIN_DISK_FREE,
) -> Health:
    """Return the health of the cluster of which ``now`` is the newest sample.

    ``min_disk_free`` is the percentage of a disk that must be free.
    """
    statements = (
        *_silent_processes(now),
        *_failed_checks(now, partitions, findings),
        *_faulty_replicas(now, partitions),
        *_differences(now),
        *_full_disks(now, min_disk_free),
    )
    critical_first = sorted(statements, key=lambda each: each.severity is not Severity.CRITICAL)
    state, headline = _headline(partitions, len(statements))
    return Health(state, headline, tuple(critical_first))


def _headline(partitions: Sequence[PartitionStatus], num_problems: int) -> tuple[HealthState, str]:
    """Return the state and its sentence; ``num_problems`` is the number of statements."""
    total = len(partitions)
    states = [each.state for each in partitions]
    unavailable = states.count(PartitionState.UNAVAILABLE)
    unknown = states.count(PartitionState.UNKNOWN)
    opening = states.count(PartitionState.OPENING)
    if unavailable:
        text = f"{unavailable} of {total} partitions accept no appends"
        more = f"; it is unknown whether {unknown} others accept them" if unknown else ""
        return HealthState.UNAVAILABLE, f"{text}{more}."
    if unknown:
        text = f"It is unknown whether {unknown} of {total} partitions accept appends."
        return HealthState.UNKNOWN, text
    if opening:
        return HealthState.DEGRADED, f"{opening} of {total} partitions are being opened."
    if num_problems:
        counted = "1 problem needs" if num_problems == 1 else f"{num_problems} problems need"
        text = f"All {total} partitions accept appends. {counted} attention."
        return HealthState.DEGRADED, text
    replicas = sum(len(each.replicas) for each in partitions)
    text = f"All {total} partitions accept appends, and all {replicas} replicas take part."
    return HealthState.HEALTHY, text


def _silent_processes(now: Sample) -> Iterator[Statement]:
    """Yield a statement for each server and storage that reports nothing."""
    for server, report in sorted(now.servers.items()):
        if report.denied:
            yield Statement(
                Severity.WARNING,
                f"Server {server} runs, but reports nothing: {report.problem}.",
                "Use a client that has the right to read all partitions, or grant it",
                "waltz access list",
            )
        elif report.problem is not None:
            # If the connection is refused, no process runs. Then the server's partitions accept no
            # appends until another server has them.
            appends_wait = report.refused and bool(now.membership.assignment.servers.get(server))
            yield Statement(
                Severity.CRITICAL if appends_wait else Severity.WARNING,
                f"Server {server} does not answer: {report.problem}.",
                "Read its log, and restart it. Other servers take over its partitions when "
                "ZooKeeper ends its session",
                "waltz server list",
                period=problem_times.of_silent_server(now, server),
                process=now.endpoint(server),
            )
    for storage, stored in sorted(now.storages.items()):
        if stored.problem is not None:
            yield Statement(
                Severity.WARNING,
                f"Storage {storage} does not answer: {stored.problem}.",
                "Read its log, and restart it with its disk",
                "waltz storage validate",
                period=problem_times.of_silent_storage(now, storage),
                process=storage,
            )


def _failed_checks(
    now: Sample, partitions: Sequence[PartitionStatus], findings: Iterable[Finding]
) -> Iterator[Statement]:
    """Yield one statement for each check and kind of problem, with all partitions that have it."""
    # Problems are of one kind if their texts differ only in numbers that `_GENERAL` replaces. For
    # each kind: the texts of its problems, each with the partitions that have the problem.
    kinds: dict[tuple[Check, str], dict[str, list[int]]] = {}
    for finding, problem in _unexplained_problems(now, partitions, findings):
        partitions_of = kinds.setdefault((finding.check, _general_text(problem)), {})
        partitions_of.setdefault(problem, []).append(finding.partition)
    for (check, general_text), partitions_of in kinds.items():
        problem = next(iter(partitions_of)) if len(partitions_of) == 1 else general_text
        affected = sorted({each for named in partitions_of.values() for each in named})
        severity = Severity.CRITICAL if check in _CRITICAL else Severity.WARNING
        period_of = _PERIOD_OF.get(check, problem_times.of_undated_problem)
        yield Statement(
            severity,
            f"{_subject(affected)}: {problem}.",
            *_REMEDIES[check],
            period=Period.of_first(period_of(now, partition) for partition in affected),
            missing=_MISSING.get(check),
        )


def _unexplained_problems(
    now: Sample, partitions: Sequence[PartitionStatus], findings: Iterable[Finding]
) -> Iterator[tuple[Finding, str]]:
    """Yield each problem of a failed check that does not follow from another statement."""
    silent = _silent_addresses(now)
    unusable = {
        each.partition: {r.storage for r in each.replicas if r.unusable} for each in partitions
    }
    failed = [finding for finding in findings if finding.problems]
    without_quorum = {each.partition for each in failed if each.check is Check.QUORUM}
    without_server = {each.partition for each in failed if each.check is Check.ONE_SERVER}
    for finding in failed:
        if finding.check in _IMPLIED_BY_NO_QUORUM and finding.partition in without_quorum:
            continue
        # The statement on the silent or missing server already says this.
        if finding.check is Check.SERVER_HEALTHY and _server_is_silent(now, finding.partition):
            continue
        for problem in finding.problems:
            # The text of a problem has the addresses of the processes that it is about. If one of
            # these processes is silent, the problem may follow from that. It is kept nevertheless
            # if its check is in `_CRITICAL`, because then appends wait.
            words = {word.strip(",:;") for word in problem.split()}
            if finding.check not in _CRITICAL and silent & words:
                continue
            # The remedy of this check is to wait until a server has filled the replica. No server
            # fills one that is refused or switched off: `_faulty_replicas` has its statement.
            if finding.check is Check.REPLICAS_RECOVERED and words & unusable[finding.partition]:
                continue
            if (
                finding.check is not Check.ONE_SERVER
                and finding.partition in without_server
                and any(implied.fullmatch(problem) for implied in _IMPLIED_BY_NO_SERVER)
            ):
                continue
            yield finding, problem


def _general_text(problem: str) -> str:
    """Return a problem without the numbers that differ between partitions (see `_GENERAL`)."""
    for pattern, words in _GENERAL:
        problem = pattern.sub(words, problem)
    return problem


def _silent_addresses(now: Sample) -> set[str]:
    """Return the addresses of the processes that do not answer."""
    members = now.membership.servers()
    storages = {name for name, report in now.storages.items() if report.problem is not None}
    servers = {
        members[server].address
        for server, report in now.servers.items()
        if report.problem is not None
    }
    return storages | servers


def _server_is_silent(now: Sample, partition: int) -> bool:
    """Return whether the partition has no server, or its server does not answer."""
    server, _ = now.owner(partition)
    report = None if server is None else now.servers.get(server)
    return report is None or report.problem is not None


def _faulty_replicas(now: Sample, partitions: Iterable[PartitionStatus]) -> Iterator[Statement]:
    """Yield a statement for each replica that is refused, switched off or has damaged records."""
    for partition in partitions:
        for replica in partition.replicas:
            place = f"of partition {partition.partition} on storage {replica.storage}"
            if replica.state is ReplicaState.REFUSED:
                # The text of the reason says what to do. There is no command for all reasons:
                # `waltz storage recover` fails, because the storage does not switch a refused
                # replica on.
                text = f"The replica {place} is refused: {replica.reason}."
                remedy = "Do what the storage advises, with its address for HOST:PORT"
                period = problem_times.of_refused_replica(now, partition.partition, replica.storage)
                yield Statement(Severity.CRITICAL, text, remedy, period=period)
            elif replica.damaged_records:
                ranges = now.storages[replica.storage].damaged
                ids = format_ranges(
                    (r.first_id, r.last_id) for r in ranges if r.partition == partition.partition
                )
                text = f"{replica.damaged_records} records {place} are damaged: ids {ids}."
                if replica.damaged_records == 1:
                    text = f"1 record {place} is damaged: id {ids}."
                command = f"waltz storage recover {replica.storage} {partition.partition}"
                yield Statement(Severity.CRITICAL, text, "Repair them", command)
            elif replica.state is ReplicaState.OFF:
                yield Statement(
                    Severity.WARNING,
                    f"The replica {place} is switched off: {replica.reason}.",
                    "Switch it on when the reason is gone for which it was switched off",
                    f"waltz storage switch {replica.storage} {partition.partition} "
                    "--read on --write on",
                    period=problem_times.of_switched_off_replica(
                        now, partition.partition, replica.storage
                    ),
                )


def _differences(now: Sample) -> Iterator[Statement]:
    """Yield a statement for each partition of which a storage has found different replicas."""
    differences: dict[int, str] = {}
    for _, report in sorted(now.storages.items()):
        if report.figures is not None:
            # Several storages may have found the same difference: the first text is kept.
            differences = {**report.figures.differing, **differences}
    for partition, text in sorted(differences.items()):
        yield Statement(
            Severity.CRITICAL,
            f"{text[:1].upper()}{text[1:]}.",
            "Find the wrong replica, and replace it",
            f"waltz storage compare {partition}",
        )


def _full_disks(now: Sample, min_disk_free: float) -> Iterator[Statement]:
    """Yield a statement for each storage whose disk is almost full."""
    for storage, report in sorted(now.storages.items()):
        figures = report.figures
        if figures is None or figures.disk_free_bytes is None or not figures.disk_size_bytes:
            continue
        free = 100 * figures.disk_free_bytes / figures.disk_size_bytes
        if free < min_disk_free:
            percent_full = 100 - int(free)  # Rounded up: 99.5 % are shown as 100 %.
            yield Statement(
                Severity.WARNING,
                f"The disk of storage {storage} is {percent_full} % full.",
                "Enlarge the disk, or move partitions to another storage. The log is never deleted",
                f"waltz storage list {storage}",
            )


def format_ranges(ranges: Iterable[tuple[int, int]], most: int = 5) -> str:
    """Return the first ``most`` ranges of ids as text, and an ellipsis if there are more."""
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return ", ".join(texts[:most]) + (", …" if len(texts) > most else "")


def _subject(partitions: Sequence[int]) -> str:
    """Return the subject of a sentence about partitions, such as ``Partition 3``."""
    if len(partitions) == 1:
        return f"Partition {partitions[0]}"
    return f"Each of partitions {format_partitions(partitions).replace(',', ', ')}"
