"""What the verbs of servers show. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waltz.admin import ServerReport
from waltz.cli.rows import Rows, Shown, or_dash, word
from waltz.client.core.ranges import format_partitions
from waltz.metadata.core.formats import ReplicaAssignments, ServerDescriptor


def servers(
    members: Mapping[int, ServerDescriptor],
    answers: Mapping[int, ServerReport],
    replicas: ReplicaAssignments,
) -> Shown:
    """Return what is shown of servers: what they say, and where their partitions are stored."""
    value = [
        _server(server, member, answers[server], replicas)
        for server, member in sorted(members.items())
    ]
    overview = Rows(
        "Servers",
        ("id", "endpoint", "number of partitions", "partitions", "preferred", "problem"),
        [
            (
                s["id"],
                s["endpoint"],
                len(s["partitions"]),
                format_partitions(p["partition"] for p in s["partitions"]),
                format_partitions(s["preferred"]),
                s["problem"] or "",
            )
            for s in value
        ],
    )
    details = Rows(
        "Partitions",
        ("id", "partition", "healthy", "storages", "not reached"),
        [
            (
                s["id"],
                p["partition"],
                word(p["healthy"]),
                " ".join(p["storages"]),
                or_dash(" ".join(p["unreached"]) or None),
            )
            for s in value
            for p in s["partitions"]
        ],
    )
    return Shown(value, (overview, details))


def _server(
    server: int, member: ServerDescriptor, said: ServerReport, replicas: ReplicaAssignments
) -> dict[str, Any]:
    return {
        "id": server,
        "endpoint": f"{member.host}:{member.port}",
        "preferred": sorted(member.preferred),
        "problem": said.problem,
        "partitions": [
            {
                "partition": partition,
                "healthy": said.health.get(partition),
                "storages": sorted(replicas.storages_of(partition)),
                "unreached": sorted(
                    s for s in replicas.storages_of(partition) if not said.storages.get(s, False)
                ),
            }
            for partition in sorted(said.partitions)
        ],
    }
