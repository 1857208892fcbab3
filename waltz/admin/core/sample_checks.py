"""Verify a cluster by a sample: the checks of ``waltz cluster verify``, without queries. Pure.

A sample does not say which storages each server reaches. A query for this makes the server open
connections to all storages, so it is made less often than a sample is taken. The caller passes the
newest answers as ``reached``.
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
"""For each server that reported its storages: the storages, each with whether it is reached."""


def check_sample(sample: Sample, reached: Reached) -> list[Finding]:
    """Return the outcome of every check. The sample must have details (`waltz.admin.monitoring`).

    A server without an entry in ``reached`` counts as reaching all its storages.

    If a storage does not answer, the caller says so in one statement, so it must not fail each
    check of each partition. Only the quorum check counts its replicas as not available. For all
    other checks the storage counts as reached by all servers, as holding what ZooKeeper assigns to
    it, and as being in the sessions that the metadata name.
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
    return ServerReport(
        partitions=frozenset(report.marks), storages=storages, health=report.health or {}
    )


def _storage_report(sample: Sample, storage: str, report: StorageSample) -> StorageReport:
    """Return the input of the checks about a storage; see `check_sample`."""
    if report.problem is not None:
        assigned = sample.maps.assignments.partitions.get(storage, ())
        sessions = {p: sample.session(p) for p in assigned}
        return StorageReport(
            partitions=dict.fromkeys(assigned, False),
            sessions={p: session for p, session in sessions.items() if session is not None},
        )
    return StorageReport(
        partitions={partition: held.available for partition, held in report.held.items()},
        sessions={partition: held.session_id for partition, held in report.held.items()},
    )
