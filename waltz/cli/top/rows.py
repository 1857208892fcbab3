"""What ``waltz top`` shows: a cluster at one moment, and what goes on in it. Pure."""

from __future__ import annotations

from typing import Any

from waltz.admin.core.sample import Sample, rate, sessions_since
from waltz.cli.rows import Rows, Shown, or_dash
from waltz.client.core.ranges import format_partitions

_DIGITS = 1


def top(first: Sample, before: Sample | None, now: Sample) -> Shown:
    """Return what is shown of ``now``: rates since ``before``, recoveries since ``first``."""
    partitions = [_partition(first, before, now, p) for p in range(now.num_partitions)]
    servers = [_server(now, server, partitions) for server in sorted(now.view.servers())]
    storages = [_storage(now, storage) for storage in sorted(now.storages)]
    rates = [p["transactions_per_second"] for p in partitions]
    known = [each for each in rates if each is not None]
    value = {
        "transactions_per_second": round(sum(known), _DIGITS) if known else None,
        "recoveries": sum(p["recoveries"] for p in partitions),
        "partitions": partitions,
        "servers": servers,
        "storages": storages,
    }
    return Shown(value, (_summary(value), *_tables(value)))


def _partition(first: Sample, before: Sample | None, now: Sample, partition: int) -> dict[str, Any]:
    server, generation = now.owner(partition)
    speed = rate(before, now, partition)
    return {
        "partition": partition,
        "server": server,
        "generation": generation,
        "session": now.session(partition),
        "high_water_mark": now.mark(partition),
        "transactions_per_second": None if speed is None else round(speed, _DIGITS),
        "recoveries": sessions_since(first, now, partition),
        "replicas": [
            {
                "storage": storage,
                "in_session": now.in_session(partition, storage),
                "available": _available(now, partition, storage),
                "lag": now.lag(partition, storage),
            }
            for storage in sorted(now.maps.assignments.storages_of(partition))
        ],
    }


def _server(now: Sample, server: int, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    member, said = now.view.servers()[server], now.servers[server]
    rates = [p["transactions_per_second"] or 0.0 for p in partitions if p["server"] == server]
    return {
        "id": server,
        "endpoint": f"{member.host}:{member.port}",
        "partitions": sorted(said.marks),
        "transactions_per_second": round(sum(rates), _DIGITS),
        "problem": said.problem,
    }


def _storage(now: Sample, storage: str) -> dict[str, Any]:
    said = now.storages[storage]
    lags = [now.lag(partition, storage) for partition in said.held]
    sizes = [held.size_bytes for held in said.held.values()]
    known = [size for size in sizes if size is not None]
    return {
        "storage": storage,
        "group": now.maps.groups.groups.get(storage),
        "partitions": sorted(said.held),
        "in_session": sum(now.in_session(p, storage) for p in range(now.num_partitions)),
        "lag": sum(lag or 0 for lag in lags),
        "size_bytes": sum(known) if known else None,
        "problem": said.problem,
    }


def _available(now: Sample, partition: int, storage: str) -> bool | None:
    """Return whether the replica is switched on, None if its storage does not say."""
    said = now.storages.get(storage)
    if said is None or said.problem is not None:
        return None
    held = said.held.get(partition)
    return held is not None and held.available


def _summary(value: dict[str, Any]) -> Rows:
    replicas = [replica for p in value["partitions"] for replica in p["replicas"]]
    silent = [each for each in (*value["servers"], *value["storages"]) if each["problem"]]
    cells = [
        (
            or_dash(value["transactions_per_second"]),
            f"{sum(r['in_session'] for r in replicas)} of {len(replicas)}",
            value["recoveries"],
            len(silent) or "-",
        )
    ]
    columns = (
        "transactions/s",
        "replicas in session",
        "recoveries",
        "processes that do not answer",
    )
    return Rows("Cluster", columns, cells)


def _tables(value: dict[str, Any]) -> tuple[Rows, ...]:
    partitions = [
        (
            p["partition"],
            or_dash(p["server"]),
            or_dash(p["generation"]),
            or_dash(p["session"]),
            or_dash(p["high_water_mark"]),
            or_dash(p["transactions_per_second"]),
            f"{sum(r['in_session'] for r in p['replicas'])} of {len(p['replicas'])}",
            max((r["lag"] or 0 for r in p["replicas"]), default=0),
            p["recoveries"],
            " ".join(_trouble(r) for r in p["replicas"] if _trouble(r)),
        )
        for p in value["partitions"]
    ]
    servers = [
        (
            s["id"],
            s["endpoint"],
            format_partitions(s["partitions"]),
            s["transactions_per_second"],
            s["problem"] or "",
        )
        for s in value["servers"]
    ]
    storages = [
        (
            s["storage"],
            or_dash(s["group"]),
            format_partitions(s["partitions"]),
            s["in_session"],
            s["lag"],
            "-" if s["size_bytes"] is None else f"{s['size_bytes'] / 1e6:.1f}",
            s["problem"] or "",
        )
        for s in value["storages"]
    ]
    return (
        Rows("Partitions", _PARTITION_COLUMNS, partitions),
        Rows("Servers", ("id", "endpoint", "partitions", "transactions/s", "problem"), servers),
        Rows("Storages", _STORAGE_COLUMNS, storages),
    )


def _trouble(replica: dict[str, Any]) -> str:
    if replica["available"] is None:
        return f"{replica['storage']}: does not answer"
    if not replica["available"]:
        return f"{replica['storage']}: off"
    return "" if replica["in_session"] else f"{replica['storage']}: recovering"


_PARTITION_COLUMNS = (
    "partition",
    "server",
    "generation",
    "session",
    "high-water mark",
    "transactions/s",
    "replicas",
    "greatest lag",
    "recoveries",
    "trouble",
)
_STORAGE_COLUMNS = ("storage", "group", "partitions", "in session", "lag", "MB", "problem")
