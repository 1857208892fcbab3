"""How the results of ``waltz storage`` are shown.

The terms, such as store session and low-water mark, are in spec/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from waltz.admin import ComparisonResult, HeldPartition, PortProblems
from waltz.admin.core.sample import damaged_records
from waltz.cli.rows import Rendering, blank, column, listing, nested, record
from waltz.metadata.core.storage_maps import StorageMaps
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.notation import format_partitions


@dataclass(frozen=True, slots=True)
class Holdings:
    """The report of a storage on its replicas: ``partitions`` has one entry for each replica.

    ``problem`` is why the storage did not report. ``damaged`` are the records that the storage
    found damaged.
    """

    partitions: tuple[HeldPartition, ...] = ()
    problem: str | None = None
    damaged: tuple[DamagedRange, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownStorage:
    """The entries of a storage in the three maps in ZooKeeper: group, admin port, partitions.

    ``group`` and ``admin_port`` are None if their map does not have the storage.
    """

    storage: str
    group: int | None
    admin_port: int | None
    assigned: Annotated[tuple[int, ...], column("partitions")]


@dataclass(frozen=True, slots=True)
class HeldReplica:
    """The report of a storage on one of its replicas; None where the storage knows no value.

    ``readable`` and ``writable`` are the positions of the replica's two switches; ``available`` is
    whether both are on. ``damaged_records`` is a number. `waltz.admin.HeldPartition` describes the
    session, the marks and the last id.
    """

    partition: int
    available: Annotated[bool, column(in_table=False)]
    readable: bool
    writable: bool
    session: int
    low_water_mark: int
    local_low_water_mark: int
    max_transaction_id: int | None
    size_bytes: int | None
    damaged_records: int


@dataclass(frozen=True, slots=True)
class ListedStorage:
    """The entries of a storage in ZooKeeper's maps, and the report of the storage.

    ``problem`` is why the storage did not report, None if it did. ``partitions`` is empty then.
    """

    storage: str
    group: int | None
    admin_port: int | None
    assigned: Annotated[tuple[int, ...], column("assigned in ZooKeeper")]
    partitions: Annotated[
        tuple[HeldReplica, ...],
        nested(
            HeldReplica,
            "Partitions held",
            title="held",
            show=lambda held: format_partitions([replica.partition for replica in held]),
        ),
    ]
    problem: Annotated[str | None, column(show=blank)]


@dataclass(frozen=True, slots=True)
class PortState:
    """Why each of the two ports of a storage does not answer; None if that port answers."""

    storage: str
    storage_problem: Annotated[
        str | None, column("storage port", show=lambda problem: problem or "ok")
    ]
    admin_problem: Annotated[str | None, column("admin port", show=lambda problem: problem or "ok")]


@dataclass(frozen=True, slots=True)
class ReplicaEnd:
    """The last transaction that a replica holds, committed or not."""

    storage: str
    partition: int
    max_transaction_id: int


@dataclass(frozen=True, slots=True)
class SyncedStorage:
    """The replicas that changed at a storage, by partition.

    The storage created those of ``assigned``, and dropped those of ``unassigned``.
    """

    storage: str
    assigned: tuple[int, ...] = ()
    unassigned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedPartition:
    """The comparison of a partition's replicas up to the transaction ``compared_to``.

    ``first_difference`` is the first transaction that differs, None if none differs. ``versions``
    has, for each version of this transaction, the storages that hold the version. ``behind`` has,
    by storage, the last transaction of each replica that ends before ``compared_to``. ``problems``
    has, by storage, why a replica was not compared.
    """

    partition: int
    compared_to: int
    first_difference: Annotated[int | None, column("differs at")]
    versions: Annotated[
        tuple[tuple[str, ...], ...],
        column("storages that agree", show=lambda versions: " / ".join(map(", ".join, versions))),
    ]
    behind: Annotated[
        Mapping[str, int],
        column(
            show=lambda ends: ", ".join(f"{storage} ends at {end}" for storage, end in ends.items())
        ),
    ]
    problems: Annotated[
        Mapping[str, str],
        column(
            "problem",
            show=lambda problems: "; ".join(f"{storage}: {p}" for storage, p in problems.items()),
        ),
    ]


def render_storages(maps: StorageMaps, holdings: Mapping[str, Holdings]) -> Rendering:
    """Return the rendering of the storages in ``holdings``."""
    rows = [
        ListedStorage(
            known.storage,
            known.group,
            known.admin_port,
            known.assigned,
            _held_replicas(holdings[known.storage]),
            holdings[known.storage].problem,
        )
        for known in known_storages(maps)
        if known.storage in holdings
    ]
    return listing("Storages", ListedStorage, rows)


def render_ports(ports: Mapping[str, PortProblems]) -> Rendering:
    """Return the rendering of the check of the ports of storages."""
    states = [
        PortState(storage, problems.storage_problem, problems.admin_problem)
        for storage, problems in ports.items()
    ]
    return listing("Ports", PortState, states)


def render_replica_end(storage: str, partition: int, transaction_id: int) -> Rendering:
    """Return the rendering of a replica's end."""
    return record("Replica", ReplicaEnd(storage, partition, transaction_id))


def render_synced(changes: Mapping[str, SyncedStorage]) -> Rendering:
    """Return the rendering of the replicas that each storage created and dropped."""
    return listing("Synced", SyncedStorage, list(changes.values()))


def render_comparisons(comparisons: Mapping[int, ComparisonResult]) -> Rendering:
    """Return the rendering of comparisons, by partition."""
    results = []
    for partition, comparison in comparisons.items():
        difference = comparison.difference
        versions = () if difference is None else difference.versions
        results.append(
            ComparedPartition(
                partition,
                compared_to=comparison.last_id,
                first_difference=None if difference is None else difference.transaction_id,
                versions=tuple(tuple(sorted(storages)) for storages in versions),
                behind=dict(comparison.ends),
                problems=dict(comparison.problems),
            )
        )
    return listing("Replicas", ComparedPartition, results)


def known_storages(maps: StorageMaps) -> tuple[KnownStorage, ...]:
    """Return each storage in ZooKeeper's maps, also those that only some of the maps have."""
    groups, ports = maps.groups.groups, maps.connections.admin_ports
    assigned = maps.assignments.partitions
    return tuple(
        KnownStorage(
            storage,
            groups.get(storage),
            ports.get(storage),
            tuple(sorted(assigned.get(storage, ()))),
        )
        for storage in sorted({*groups, *ports, *assigned})
    )


def _held_replicas(holdings: Holdings) -> tuple[HeldReplica, ...]:
    """Return the rows of the replicas that a storage reports; none if it did not report."""
    return tuple(
        HeldReplica(
            state.partition,
            state.available,
            state.readable,
            state.writable,
            state.session_id,
            state.low_water_mark,
            state.local_low_water_mark,
            state.max_transaction_id,
            state.size_bytes,
            damaged_records(holdings.damaged, state.partition),
        )
        for state in holdings.partitions
    )
