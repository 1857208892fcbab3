"""What the verbs of clusters show. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from waltz.admin import Check, Finding, ServerReport
from waltz.cli.rows import Rows, Shown, or_dash, pairs
from waltz.cli.storage.rows import known_storages
from waltz.client.core.ranges import format_partitions
from waltz.metadata.core.formats import (
    UNRESOLVED,
    ClusterParams,
    PartitionMetadata,
    ServerDescriptor,
    StoreParams,
)
from waltz.metadata.core.membership_steps import Membership
from waltz.metadata.core.storage_maps import StorageMaps

_SHORT = {
    Check.ONE_SERVER: "one server",
    Check.SERVER_AGREES: "server agrees",
    Check.STORAGES_REACHED: "storages reached",
    Check.STORAGES_AGREE: "storages agree",
    Check.QUORUM: "quorum",
    Check.REPLICAS_RECOVERED: "recovered",
    Check.SERVER_HEALTHY: "healthy",
}


def created(name: str, root: str, key: uuid.UUID | None, num_partitions: int) -> Shown:
    """Return what is shown of a new cluster, or, without a key, of one that was not made."""
    shown_key = None if key is None else str(key)
    value = {"name": name, "root": root, "key": shown_key, "num_partitions": num_partitions}
    return Shown(value, (pairs("Would be created" if key is None else "Created", value),))


def key(cluster_key: uuid.UUID) -> Shown:
    """Return what is shown of a cluster's key."""
    value = {"key": str(cluster_key)}
    return Shown(value, (pairs("Cluster", value),))


def connectivity(
    members: Mapping[int, ServerDescriptor], answers: Mapping[int, ServerReport]
) -> Shown:
    """Return what is shown of which storages servers reach.

    A server that did not answer has one entry, without a storage.
    """
    value: list[dict[str, Any]] = []
    for server, member in sorted(members.items()):
        said = answers[server]
        reached = {None: False} if said.problem is not None else said.storages
        value += (
            {
                "server": server,
                "endpoint": f"{member.host}:{member.port}",
                "storage": storage,
                "reached": whether,
                "problem": said.problem,
            }
            for storage, whether in sorted(reached.items(), key=lambda pair: str(pair[0]))
        )
    cells = [
        (
            e["server"],
            e["endpoint"],
            or_dash(e["storage"]),
            "yes" if e["reached"] else "UNREACHABLE",
            e["problem"] or "",
        )
        for e in value
    ]
    columns = ("server", "endpoint", "storage", "reached", "problem")
    return Shown(value, (Rows("Connectivity", columns, cells),))


def cluster(
    root: str,
    params: ClusterParams,
    store: StoreParams,
    view: Membership,
    maps: StorageMaps,
    partitions: Mapping[int, PartitionMetadata],
) -> Shown:
    """Return what is shown of a cluster."""
    head = {
        "name": params.name,
        "root": root,
        "key": str(store.key),
        "num_partitions": params.num_partitions,
    }
    value = {
        **head,
        "servers": [
            {
                "id": server,
                "endpoint": f"{descriptor.host}:{descriptor.port}",
                "preferred": sorted(descriptor.preferred),
                "partitions": sorted(p for p, _ in view.assignment.servers.get(server, ())),
            }
            for server, descriptor in sorted(view.servers().items())
        ],
        "storages": known_storages(maps),
        "partitions": [
            _partition(p, view, maps, partitions.get(p)) for p in range(params.num_partitions)
        ],
    }
    return Shown(value, (pairs("Cluster", head), *_cluster_tables(value)))


def verified(findings: Sequence[Finding]) -> Shown:
    """Return what is shown of the checks."""
    failed = [finding for finding in findings if finding.problem is not None]
    value = {
        "passed": not failed,
        "findings": [
            {
                "partition": finding.partition,
                "check": finding.check.value,
                "passed": finding.problem is None,
                "problem": finding.problem,
            }
            for finding in findings
        ],
    }
    by_partition: dict[int, dict[Check, Finding]] = {}
    for finding in findings:
        by_partition.setdefault(finding.partition, {})[finding.check] = finding
    matrix = Rows(
        "Checks",
        ("partition", *_SHORT.values()),
        [
            (p, *("ok" if of[check].problem is None else "FAILED" for check in _SHORT))
            for p, of in by_partition.items()
        ],
    )
    problems = Rows(
        "Failed",
        ("partition", "check", "problem"),
        [(f.partition, _SHORT[f.check], f.problem) for f in failed],
    )
    return Shown(value, (matrix, problems) if failed else (matrix,))


def marks(high_water_marks: Mapping[int, int]) -> Shown:
    """Return what is shown of the partitions' ends."""
    value = [{"partition": p, "high_water_mark": mark} for p, mark in high_water_marks.items()]
    cells = list(high_water_marks.items())
    return Shown(value, (Rows("High-water marks", ("partition", "high-water mark"), cells),))


def local_processes(description: Mapping[str, Any]) -> Shown:
    """Return what is shown of a local cluster; the value is its description as it is."""
    head = {name: description[name] for name in ("zookeeper", "root", "tls", "partitions")}
    columns = ("process", "pid", "address", "log")
    cells = [
        (name, or_dash(process["pid"]), process["address"], process["log"])
        for name, process in description["processes"].items()
    ]
    return Shown(dict(description), (pairs("Cluster", head), Rows("Processes", columns, cells)))


def _partition(
    partition: int, view: Membership, maps: StorageMaps, metadata: PartitionMetadata | None
) -> dict[str, Any]:
    owner = next(
        (
            (server, generation)
            for server, owned in view.assignment.servers.items()
            for p, generation in owned
            if p == partition
        ),
        (None, None),
    )
    states = metadata.replicas if metadata else {}
    replicas: list[dict[str, Any]] = []
    for storage in sorted({*maps.assignments.storages_of(partition), *states}):
        state = states.get(storage)
        mark = state.closing_mark if state else None
        replicas.append(
            {
                "storage": storage,
                "session": state.session_id if state else None,
                "closing_mark": None if mark == UNRESOLVED else mark,
            }
        )
    session = metadata.session_id if metadata else None
    return {
        "partition": partition,
        "server": owner[0],
        "generation": owner[1],
        "session": session,
        "replicas": replicas,
    }


def _cluster_tables(value: Mapping[str, Any]) -> Iterable[Rows]:
    yield Rows(
        "Servers",
        ("id", "endpoint", "partitions", "preferred"),
        [
            (
                s["id"],
                s["endpoint"],
                format_partitions(s["partitions"]),
                format_partitions(s["preferred"]),
            )
            for s in value["servers"]
        ],
    )
    yield Rows(
        "Storages",
        ("storage", "group", "admin port", "partitions"),
        [
            (
                s["storage"],
                or_dash(s["group"]),
                or_dash(s["admin_port"]),
                format_partitions(s["assigned"]),
            )
            for s in value["storages"]
        ],
    )
    yield Rows(
        "Partitions",
        ("partition", "server", "generation", "session", "replicas in the session"),
        [
            (
                p["partition"],
                or_dash(p["server"]),
                or_dash(p["generation"]),
                or_dash(p["session"]),
                f"{sum(_is_current(r, p) for r in p['replicas'])} of {len(p['replicas'])}",
            )
            for p in value["partitions"]
        ],
    )


def _is_current(replica: Mapping[str, Any], partition: Mapping[str, Any]) -> bool:
    in_session = replica["session"] is not None and replica["session"] == partition["session"]
    return in_session and replica["closing_mark"] is None
