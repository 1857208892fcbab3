"""The servers and storages of a cluster, as the console shows them. Pure.

They are computed from a sample of the cluster. If a process did not answer, the values that only
this process knows are None, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from waltz.admin.core.replica_states import PartitionStatus
from waltz.admin.core.sample import Sample
from waltz.admin.core.storage_figures import StorageFigures
from waltz.protocol.damaged_ranges import DamagedRange

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class ServerView:
    """One server. ``partitions`` are those that ZooKeeper assigns to it.

    ``endpoint`` is its address for clients, None if it is not running. ``problem`` says why it does
    not answer, and is None if it does. ``preferred`` are the partitions that this server gets if
    possible. ``transactions_per_second`` is None if the server does not answer, or if the rate of
    one of its partitions is unknown.
    """

    id: int
    endpoint: str | None
    answers: bool
    problem: str | None
    partitions: tuple[int, ...]
    preferred: tuple[int, ...]
    transactions_per_second: float | None


@dataclass(frozen=True, slots=True)
class DamagedRecords:
    """Damaged records of one partition at one storage."""

    partition: int
    first_id: int
    last_id: int


@dataclass(frozen=True, slots=True)
class RefusedPartition:
    """A partition that a storage cannot serve, and why."""

    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class StorageView:
    """One storage. ``assigned`` are the partitions of which ZooKeeper assigns a replica to it.

    ``problem`` says why the storage does not answer, and is None if it does. ``held`` is the number
    of replicas that the storage has. ``greatest_lag`` is the greatest lag of the assigned replicas
    in transactions. It is None if the lag of one of them is unknown, or if none is assigned.
    `StorageFigures` explains the figures of the disk and of the scrubber.
    """

    storage: str
    group: int | None
    answers: bool
    problem: str | None
    assigned: tuple[int, ...]
    held: int | None
    greatest_lag: int | None
    log_bytes: int | None
    disk_free_bytes: int | None
    disk_size_bytes: int | None
    scrub_progress: float | None
    scrub_passes: int | None
    damaged: tuple[DamagedRecords, ...] | None
    refused: tuple[RefusedPartition, ...] | None


def view_servers(now: Sample, partitions: Sequence[PartitionStatus]) -> tuple[ServerView, ...]:
    """Return the views of all servers that run, or that still have partitions assigned."""
    members, owned = now.membership.servers(), now.membership.assignment.servers
    views = []
    owners = {server for server, assigned in owned.items() if assigned}
    for server in sorted({*members, *owners}):
        member, report = members.get(server), now.servers.get(server)
        problem = "it is not running" if report is None else report.problem
        statuses = [status for status in partitions if status.server == server]
        rates = _if_all_known([status.transactions_per_second for status in statuses])
        views.append(
            ServerView(
                id=server,
                endpoint=None if member is None else member.address,
                answers=problem is None,
                problem=problem,
                partitions=tuple(sorted(each.partition for each in owned.get(server, ()))),
                preferred=() if member is None else tuple(sorted(member.preferred)),
                transactions_per_second=(
                    None if problem is not None or rates is None else sum(rates)
                ),
            )
        )
    return tuple(views)


def view_storages(now: Sample) -> tuple[StorageView, ...]:
    """Return the views of all storages."""
    known = {*now.maps.groups.groups, *now.storages, *now.maps.assignments.partitions}
    return tuple(_view_storage(now, storage) for storage in sorted(known))


def _view_storage(now: Sample, storage: str) -> StorageView:
    """Return the view of a storage. Without an answer, all that the storage reports is None."""
    report = now.storages.get(storage)
    group = now.maps.groups.groups.get(storage)
    assigned = tuple(sorted(now.maps.assignments.partitions.get(storage, ())))
    if report is None or report.problem is not None:
        problem = "ZooKeeper has no admin port of it" if report is None else report.problem
        return StorageView(
            storage=storage,
            group=group,
            answers=False,
            problem=problem,
            assigned=assigned,
            held=None,
            greatest_lag=None,
            log_bytes=None,
            disk_free_bytes=None,
            disk_size_bytes=None,
            scrub_progress=None,
            scrub_passes=None,
            damaged=None,
            refused=None,
        )
    figures = report.figures or StorageFigures()
    lags = _if_all_known([now.lag(partition, storage) for partition in assigned])
    sizes = _if_all_known([held.size_bytes for held in report.held.values()])
    return StorageView(
        storage=storage,
        group=group,
        answers=True,
        problem=None,
        assigned=assigned,
        held=len(report.held),
        greatest_lag=max(lags) if lags else None,
        log_bytes=None if sizes is None else sum(sizes),
        disk_free_bytes=figures.disk_free_bytes,
        disk_size_bytes=figures.disk_size_bytes,
        scrub_progress=figures.scrub_progress,
        scrub_passes=figures.scrub_passes,
        damaged=tuple(map(_damaged, report.damaged)),
        refused=tuple(RefusedPartition(p, reason) for p, reason in sorted(figures.refused.items())),
    )


def _damaged(records: DamagedRange) -> DamagedRecords:
    """Return a range of damaged records as the page shows it."""
    return DamagedRecords(records.partition, records.first_id, records.last_id)


def _if_all_known(values: Sequence[Number | None]) -> list[Number] | None:
    """Return ``values``, None if one of them is unknown."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None
