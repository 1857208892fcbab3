"""What the verbs of storages show. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from waltz.admin import HeldPartition, Ports
from waltz.cli.rows import Rows, Shown, or_dash, pairs, word
from waltz.client.core.ranges import format_partitions
from waltz.metadata.core.storage_maps import StorageMaps


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a storage says of the partitions that it holds; ``problem`` is why it says nothing."""

    partitions: tuple[HeldPartition, ...] = ()
    problem: str | None = None


def storages(maps: StorageMaps, holdings: Mapping[str, Holdings]) -> Shown:
    """Return what is shown of the storages in ``holdings``."""
    value = [
        {
            **entry,
            "partitions": [_held(p) for p in holdings[entry["storage"]].partitions],
            "problem": holdings[entry["storage"]].problem,
        }
        for entry in known_storages(maps)
        if entry["storage"] in holdings
    ]
    overview = Rows(
        "Storages",
        ("storage", "group", "admin port", "assigned in ZooKeeper", "held", "problem"),
        [
            (
                s["storage"],
                or_dash(s["group"]),
                or_dash(s["admin_port"]),
                format_partitions(s["assigned"]),
                format_partitions([p["partition"] for p in s["partitions"]]),
                s["problem"] or "",
            )
            for s in value
        ],
    )
    names = (
        "partition",
        "readable",
        "writable",
        "session",
        "low_water_mark",
        "local_low_water_mark",
        "max_transaction_id",
        "size_bytes",
    )
    details = Rows(
        "Partitions held",
        ("storage", *(name.replace("_", " ") for name in names)),
        [
            (s["storage"], *(word(p[name]) for name in names))
            for s in value
            for p in s["partitions"]
        ],
    )
    return Shown(value, (overview, details))


def ports(found: Mapping[str, Ports]) -> Shown:
    """Return what is shown of whether storages answer."""
    value = [
        {
            "storage": storage,
            "storage_problem": each.storage_problem,
            "admin_problem": each.admin_problem,
        }
        for storage, each in found.items()
    ]
    cells = [(s, e.storage_problem or "ok", e.admin_problem or "ok") for s, e in found.items()]
    return Shown(value, (Rows("Ports", ("storage", "storage port", "admin port"), cells),))


def max_id(storage: str, partition: int, transaction_id: int) -> Shown:
    """Return what is shown of a replica's end."""
    value = {"storage": storage, "partition": partition, "max_transaction_id": transaction_id}
    return Shown(value, (pairs("Replica", value),))


@dataclass(frozen=True, slots=True)
class Synced:
    """The partitions of which a storage created replicas, and those it dropped."""

    assigned: tuple[int, ...] = ()
    unassigned: tuple[int, ...] = ()


def synced(changes: Mapping[str, Synced]) -> Shown:
    """Return what is shown of a sync: per storage what it now holds, and holds no longer."""
    value = [
        {
            "storage": storage,
            "assigned": list(change.assigned),
            "unassigned": list(change.unassigned),
        }
        for storage, change in changes.items()
    ]
    cells = [
        (storage, format_partitions(change.assigned), format_partitions(change.unassigned))
        for storage, change in changes.items()
    ]
    return Shown(value, (Rows("Synced", ("storage", "assigned", "unassigned"), cells),))


def _held(state: HeldPartition) -> dict[str, Any]:
    return {
        "partition": state.partition,
        "available": state.available,
        "readable": state.readable,
        "writable": state.writable,
        "session": state.session_id,
        "low_water_mark": state.low_water_mark,
        "local_low_water_mark": state.local_low_water_mark,
        "max_transaction_id": state.max_transaction_id,
        "size_bytes": state.size_bytes,
    }


def known_storages(maps: StorageMaps) -> list[dict[str, Any]]:
    """Return what ZooKeeper says of each storage, also of those that it knows only in part."""
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
