"""How the results of ``waltz server`` are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from waltz.admin import ServerReport
from waltz.cli.local_names import LocalNames
from waltz.cli.rows import Rendering, blank, column, listing, nested
from waltz.metadata.core.formats import ReplicaAssignments, ServerDescriptor
from waltz.protocol.notation import format_partitions


@dataclass(frozen=True, slots=True)
class ServedPartition:
    """A partition of a server; ``healthy`` is what the server reports, None if it reports nothing.

    ``storages`` are the storages that ZooKeeper assigns the partition to. ``unreached`` are those
    of them that the server has no connection to.
    """

    partition: int
    healthy: bool | None
    storages: tuple[str, ...]
    unreached: Annotated[tuple[str, ...], column("not reached")]


@dataclass(frozen=True, slots=True)
class ListedServer:
    """One server and its report; ``problem`` is why the server did not answer, None if it did.

    ``local_name`` is the server's name for ``waltz local``, None if the cluster is not a local one.
    ``count`` and ``partition_ranges`` summarize ``partitions`` for the table. ``preferred`` are the
    partitions that the server prefers to own, empty if it has no preference.
    """

    id: int
    endpoint: str
    local_name: Annotated[str | None, column(in_table=False)]
    count: Annotated[int, column("number of partitions", in_json=False)]
    partition_ranges: Annotated[str, column("partitions", in_json=False)]
    preferred: tuple[int, ...]
    problem: Annotated[str | None, column(show=blank)]
    partitions: Annotated[tuple[ServedPartition, ...], nested(ServedPartition, "Partitions")]


def render_servers(
    members: Mapping[int, ServerDescriptor],
    reports: Mapping[int, ServerReport],
    replicas: ReplicaAssignments,
    names: LocalNames,
) -> Rendering:
    """Return the rendering of servers: their reports, and where their partitions are stored.

    ``members`` and ``reports`` have the same servers, by their ids.
    """
    rows = []
    for server_id, member in sorted(members.items()):
        report = reports[server_id]
        served = tuple(_partition(p, report, replicas) for p in sorted(report.partitions))
        rows.append(
            ListedServer(
                server_id,
                member.address,
                local_name=names.names.get(member.address),
                count=len(served),
                partition_ranges=format_partitions(sorted(report.partitions)),
                preferred=tuple(sorted(member.preferred)),
                problem=report.problem,
                partitions=served,
            )
        )
    # ``local_name`` is only in JSON. In the table, the names stand beside addresses and ids.
    return names.name_processes(listing("Servers", ListedServer, rows), members)


def _partition(
    partition: int, report: ServerReport, replicas: ReplicaAssignments
) -> ServedPartition:
    """Return the row of a partition; a storage that the server does not report is not reached."""
    storages = tuple(sorted(replicas.storages_of(partition)))
    unreached = tuple(storage for storage in storages if not report.storages.get(storage, False))
    return ServedPartition(partition, report.health.get(partition), storages, unreached)
