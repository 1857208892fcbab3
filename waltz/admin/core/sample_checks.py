"""Verify a cluster by a sample: the checks of ``waltz cluster verify``, without queries. Pure.

A sample does not say which storages each server reaches: to find out, the servers would open
connections to all storages. So the caller passes what it knows, from queries at longer intervals.
"""

from __future__ import annotations

from collections.abc import Mapping

from waltz.admin.core.sample import Sample, ServerSample, StorageSample
from waltz.admin.core.verification import (
    ClusterFacts,
    Finding,
    ServerReport,
    StorageReport,
    verify,
)

Reached = Mapping[int, Mapping[str, bool]]
"""For each server that reported its storages: those storages, and whether it reaches them."""


def check_sample(sample: Sample, reached: Reached) -> list[Finding]:
    """Return the outcome of every check. The sample must have details (`waltz.admin.monitoring`).

    A server without an entry in ``reached`` counts as reaching all its storages.

    The quorum check counts the replicas of a storage that does not answer as switched off. All
    other checks pass for such a storage: it counts as reached, it holds what ZooKeeper assigns to
    it, and its sessions are those in the metadata. The caller reports the storage itself once, not
    in each check of each partition.
    """
    return verify(
        ClusterFacts(
            num_partitions=sample.num_partitions,
            assignment=sample.membership.assignment,
            members=sample.membership.servers(),
            replicas=sample.maps.assignments,
            metadata=sample.metadata,
            servers={
                server: _server_report(sample, report, reached.get(server))
                for server, report in sample.servers.items()
            },
            storages={
                storage: _storage_report(sample, storage, report)
                for storage, report in sample.storages.items()
            },
        )
    )


def _server_report(
    sample: Sample, report: ServerSample, reached: Mapping[str, bool] | None
) -> ServerReport:
    """Return the input of the checks about a server; see `check_sample`."""
    if report.problem is not None:
        return ServerReport(problem=report.problem)
    answering = {s for s, stored in sample.storages.items() if stored.problem is None}
    storages = dict.fromkeys(sample.maps.assignments.partitions, True)
    storages |= {s: is_reached for s, is_reached in (reached or {}).items() if s in answering}
    return ServerReport(frozenset(report.marks), storages, report.health or {})


def _storage_report(sample: Sample, storage: str, report: StorageSample) -> StorageReport:
    """Return the input of the checks about a storage; see `check_sample`."""
    if report.problem is not None:
        assigned = sample.maps.assignments.partitions.get(storage, ())
        sessions = {p: sample.session(p) for p in assigned}
        return StorageReport(
            dict.fromkeys(assigned, False),
            {p: session for p, session in sessions.items() if session is not None},
        )
    return StorageReport(
        {partition: held.available for partition, held in report.held.items()},
        {partition: held.session_id for partition, held in report.held.items()},
    )
