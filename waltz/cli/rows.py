"""What the verbs of clusters and storages show, as JSON values and as rows of tables. Pure.

The keys of the JSON values are for scripts: they stay what they are.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from waltz.metadata.admin import StorageMaps
from waltz.metadata.formats import UNRESOLVED, ClusterParams, PartitionMetadata, StoreParams
from waltz.metadata.recipe import View
from waltz.operations import Check, Finding
from waltz.ranges import format_partitions

_SHORT = {
    Check.ONE_SERVER: "one server",
    Check.SERVER_AGREES: "server agrees",
    Check.STORAGES_REACHED: "storages reached",
    Check.STORAGES_AGREE: "storages agree",
    Check.QUORUM: "quorum",
    Check.REPLICAS_RECOVERED: "recovered",
    Check.SERVER_HEALTHY: "healthy",
}


@dataclass(frozen=True, slots=True)
class Rows:
    """A table before it is drawn; cells are shown as text."""

    title: str
    columns: Sequence[str]
    cells: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Shown:
    """One result in both forms."""

    value: Any
    tables: tuple[Rows, ...]


def created(name: str, root: str, key: uuid.UUID, num_partitions: int) -> Shown:
    """Return what is shown of a new cluster."""
    value = {"name": name, "root": root, "key": str(key), "num_partitions": num_partitions}
    return Shown(value, (_pairs("Created", value),))


def cluster(
    root: str,
    params: ClusterParams,
    store: StoreParams,
    view: View,
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
        "storages": _storages(maps),
        "partitions": [
            _partition(p, view, maps, partitions.get(p)) for p in range(params.num_partitions)
        ],
    }
    return Shown(value, (_pairs("Cluster", head), *_cluster_tables(value)))


def storages(maps: StorageMaps, held: Mapping[str, Mapping[str, Any]]) -> Shown:
    """Return what is shown of the storages.

    ``held`` has for each storage ``partitions``, a list of what it says of those that it holds
    (see `held_partition`), and ``problem``, why it said nothing.
    """
    value = [{**entry, **held[entry["storage"]]} for entry in _storages(maps)]
    overview = Rows(
        "Storages",
        ("storage", "group", "admin port", "assigned in ZooKeeper", "held", "problem"),
        [
            (
                s["storage"],
                _or_dash(s["group"]),
                _or_dash(s["admin_port"]),
                format_partitions(s["assigned"]),
                format_partitions([p["partition"] for p in s["partitions"]]),
                s["problem"] or "",
            )
            for s in value
        ],
    )
    names = ("partition", "available", "session", "low_water_mark", "local_low_water_mark")
    details = Rows(
        "Partitions held",
        ("storage", *(name.replace("_", " ") for name in (*names, "max_transaction_id"))),
        [
            (s["storage"], *(_word(p[name]) for name in (*names, "max_transaction_id")))
            for s in value
            for p in s["partitions"]
        ],
    )
    return Shown(value, (overview, details))


def held_partition(
    partition: int, available: bool, session: tuple[int, int, int], max_id: int | None
) -> dict[str, Any]:
    """Return what a storage says of one partition; ``session`` is id, mark and local mark."""
    return {
        "partition": partition,
        "available": available,
        "session": session[0],
        "low_water_mark": session[1],
        "local_low_water_mark": session[2],
        "max_transaction_id": max_id,
    }


def synced(steps: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]) -> Shown:
    """Return what is shown of a sync: per storage what it now holds, and holds no longer."""
    value = [
        {"storage": storage, "assigned": list(assigned), "unassigned": list(unassigned)}
        for storage, (assigned, unassigned) in steps.items()
    ]
    cells = [(s, format_partitions(a), format_partitions(u)) for s, (a, u) in steps.items()]
    return Shown(value, (Rows("Synced", ("storage", "assigned", "unassigned"), cells),))


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
        (name, _or_dash(process["pid"]), process["address"], process["log"])
        for name, process in description["processes"].items()
    ]
    return Shown(dict(description), (_pairs("Cluster", head), Rows("Processes", columns, cells)))


def _storages(maps: StorageMaps) -> list[dict[str, Any]]:
    groups, ports = maps.groups.groups, maps.connections.admin_ports
    assigned = maps.assignments.partitions
    return [
        {
            "storage": storage,
            "group": groups.get(storage),
            "admin_port": ports.get(storage),
            "assigned": sorted(assigned.get(storage, ())),
        }
        for storage in sorted({*groups, *ports, *assigned})
    ]


def _partition(
    partition: int, view: View, maps: StorageMaps, metadata: PartitionMetadata | None
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
                _or_dash(s["group"]),
                _or_dash(s["admin_port"]),
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
                _or_dash(p["server"]),
                _or_dash(p["generation"]),
                _or_dash(p["session"]),
                f"{sum(_is_current(r, p) for r in p['replicas'])} of {len(p['replicas'])}",
            )
            for p in value["partitions"]
        ],
    )


def _is_current(replica: Mapping[str, Any], partition: Mapping[str, Any]) -> bool:
    in_session = replica["session"] is not None and replica["session"] == partition["session"]
    return in_session and replica["closing_mark"] is None


def _pairs(title: str, value: Mapping[str, object]) -> Rows:
    cells = [(name.replace("_", " "), content) for name, content in value.items()]
    return Rows(title, ("", ""), cells)


def _or_dash(value: object) -> object:
    return "-" if value is None else value


def _word(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _or_dash(value)
