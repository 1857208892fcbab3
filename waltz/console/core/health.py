"""Say in words what is wrong with a cluster, and which command comes next. Pure.

The statements follow from a sample and from the checks of ``waltz cluster verify``. A check that
fails only because a process does not answer is left out: the process has its own statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from waltz.admin.core.sample import Sample
from waltz.admin.core.verification import Check, Finding
from waltz.client.core.ranges import format_partitions
from waltz.console.core.replicas import PartitionState, PartitionView, ReplicaState

_DISK_LOW = 0.2
"""The part of a disk below which its free space is reported, as by the alert of the chart."""

_REMEDIES = {
    Check.ONE_SERVER: "Start a server: it takes over partitions without one.",
    Check.SERVER_AGREES: "Wait some seconds; if it stays so, read the log of the server.",
    Check.STORAGES_REACHED: "Check the network between both: waltz cluster check-connectivity",
    Check.STORAGES_AGREE: "Compare and correct: waltz storage sync --dry-run",
    Check.QUORUM: "Start storages until the partition has a majority: waltz storage list",
    Check.REPLICAS_RECOVERED: "Wait until the server has filled the replica; its log has the "
    "progress.",
    Check.SERVER_HEALTHY: "Find the missing replicas: waltz cluster verify",
}
_IMPLIED_BY_QUORUM = {Check.SERVER_HEALTHY, Check.REPLICAS_RECOVERED}
"""Their failure follows if the partition has no quorum, and says nothing more."""
_CRITICAL = {Check.ONE_SERVER, Check.QUORUM, Check.SERVER_HEALTHY}


class Severity(StrEnum):
    """How urgent a statement is. CRITICAL: appends wait, or data are at risk."""

    CRITICAL = "critical"
    WARNING = "warning"


class HealthState(StrEnum):
    """The health of the whole cluster."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that is wrong, and what to do about it."""

    severity: Severity
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a cluster: a state, a sentence, and the statements, the most urgent first."""

    state: HealthState
    headline: str
    statements: tuple[Statement, ...]


def no_sample(problem: str) -> Health:
    """Return the health if the cluster could not be sampled."""
    statement = Statement(
        Severity.CRITICAL, problem, "Check that a majority of ZooKeeper's servers is running."
    )
    return Health(
        HealthState.UNKNOWN, "The state of the cluster is unknown at present.", (statement,)
    )


def judge(now: Sample, partitions: Sequence[PartitionView], findings: Sequence[Finding]) -> Health:
    """Return the health of the sampled cluster."""
    statements = (
        *_silent_processes(now),
        *_failed_checks(now, findings),
        *_damage(now, partitions),
        *_full_disks(now),
    )
    ordered = sorted(statements, key=lambda each: each.severity is not Severity.CRITICAL)
    state, headline = _headline(partitions, len(ordered))
    return Health(state, headline, tuple(ordered))


def _headline(partitions: Sequence[PartitionView], problems: int) -> tuple[HealthState, str]:
    total = len(partitions)
    states = [each.state for each in partitions]
    unavailable, unknown = (
        states.count(state) for state in (PartitionState.UNAVAILABLE, PartitionState.UNKNOWN)
    )
    opening = states.count(PartitionState.OPENING)
    if unavailable:
        text = f"{unavailable} of {total} partitions accept no appends."
        return HealthState.UNAVAILABLE, text
    if unknown:
        text = f"It is unknown whether {unknown} of {total} partitions accept appends."
        return HealthState.UNKNOWN, text
    if opening:
        return HealthState.DEGRADED, f"{opening} of {total} partitions are being opened."
    if problems:
        counted = "1 problem needs" if problems == 1 else f"{problems} problems need"
        text = f"All {total} partitions accept appends. {counted} attention."
        return HealthState.DEGRADED, text
    replicas = sum(len(each.replicas) for each in partitions)
    text = f"All {total} partitions accept appends, and all {replicas} replicas take part."
    return HealthState.HEALTHY, text


def _silent_processes(now: Sample) -> Iterator[Statement]:
    for server, report in sorted(now.servers.items()):
        if report.problem is not None:
            yield Statement(
                Severity.WARNING,
                f"Server {server} does not answer: {report.problem}.",
                "Read its log, and restart it. Other servers take over its partitions when "
                "ZooKeeper ends its session.",
            )
    for storage, stored in sorted(now.storages.items()):
        if stored.problem is not None:
            yield Statement(
                Severity.WARNING,
                f"Storage {storage} does not answer: {stored.problem}.",
                "Read its log, and restart it with its disk: waltz storage validate",
            )


def _failed_checks(now: Sample, findings: Iterable[Finding]) -> Iterator[Statement]:
    """Yield one statement for each check and problem, with all partitions that have it."""
    silent = _names_of_silent(now)
    failed = [finding for finding in findings if finding.problem is not None]
    without_quorum = {each.partition for each in failed if each.check is Check.QUORUM}
    grouped: dict[tuple[Check, str], list[int]] = {}
    for finding in failed:
        assert finding.problem is not None
        if finding.check in _IMPLIED_BY_QUORUM and finding.partition in without_quorum:
            continue
        # The text of a finding names the processes that it is about by their addresses.
        implied = silent & {word.strip(",:;") for word in finding.problem.split()}
        if finding.check not in _CRITICAL and implied:
            continue
        if finding.check is Check.SERVER_HEALTHY and _server_is_silent(now, finding.partition):
            continue
        grouped.setdefault((finding.check, finding.problem), []).append(finding.partition)
    for (check, problem), partitions in grouped.items():
        severity = Severity.CRITICAL if check in _CRITICAL else Severity.WARNING
        yield Statement(severity, f"{_named(partitions)}: {problem}.", _REMEDIES[check])


def _names_of_silent(now: Sample) -> set[str]:
    """Return the addresses of the processes that do not answer."""
    members = now.membership.servers()
    storages = {name for name, report in now.storages.items() if report.problem is not None}
    servers = {
        f"{members[server].host}:{members[server].port}"
        for server, report in now.servers.items()
        if report.problem is not None
    }
    return storages | servers


def _server_is_silent(now: Sample, partition: int) -> bool:
    """Return whether the partition's server does not answer, or there is no server."""
    server, _ = now.owner(partition)
    report = None if server is None else now.servers.get(server)
    return report is None or report.problem is not None


def _damage(now: Sample, partitions: Iterable[PartitionView]) -> Iterator[Statement]:
    for each in partitions:
        for replica in each.replicas:
            command = f"waltz storage recover {replica.storage} {each.partition}"
            place = f"of partition {each.partition} on storage {replica.storage}"
            if replica.state is ReplicaState.REFUSED:
                text = f"The replica {place} is refused: {replica.reason}."
                yield Statement(Severity.CRITICAL, text, f"Rebuild it: {command}")
            elif replica.damaged_records:
                ranges = now.storages[replica.storage].damaged
                ids = format_ranges(
                    (r.first_id, r.last_id) for r in ranges if r.partition == each.partition
                )
                text = f"{replica.damaged_records} records {place} are damaged: ids {ids}."
                yield Statement(Severity.CRITICAL, text, f"Repair them: {command}")


def _full_disks(now: Sample) -> Iterator[Statement]:
    for storage, report in sorted(now.storages.items()):
        figures = report.figures
        if figures is None or figures.disk_free_bytes is None or not figures.disk_size_bytes:
            continue
        free = figures.disk_free_bytes / figures.disk_size_bytes
        if free < _DISK_LOW:
            yield Statement(
                Severity.WARNING,
                f"The disk of storage {storage} is {100 - int(free * 100)} % full.",
                "Enlarge the disk, or move partitions: waltz storage move. The log is never "
                "deleted.",
            )


def format_ranges(ranges: Iterable[tuple[int, int]], most: int = 5) -> str:
    """Return ranges of ids as text, the first ``most`` of them."""
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return ", ".join(texts[:most]) + (", …" if len(texts) > most else "")


def _named(partitions: Sequence[int]) -> str:
    if len(partitions) == 1:
        return f"Partition {partitions[0]}"
    return f"Each of partitions {format_partitions(partitions).replace(',', ', ')}"
