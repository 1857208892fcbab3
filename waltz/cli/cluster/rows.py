"""How the results of ``waltz cluster`` are shown, and some of ``waltz local`` and ``waltz log``.

The terms, such as store session and generation, are in spec/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict
from uuid import UUID

from waltz.admin import Check, Finding, ServerReport
from waltz.cli.rows import (
    Rendering,
    Rows,
    as_value,
    blank,
    column,
    listing,
    nested,
    or_dash,
    pairs,
    record,
)
from waltz.cli.storage.rows import KnownStorage, known_storages
from waltz.metadata.core.formats import (
    UNRESOLVED,
    ClusterParams,
    PartitionMetadata,
    ServerDescriptor,
    StoreParams,
)
from waltz.metadata.core.membership_steps import Membership
from waltz.metadata.core.storage_maps import StorageMaps

_CHECK_TITLES = {
    Check.ONE_SERVER: "one server",
    Check.SERVER_AGREES: "server agrees",
    Check.STORAGES_REACHED: "storages reached",
    Check.STORAGES_AGREE: "storages agree",
    Check.QUORUM: "quorum",
    Check.REPLICAS_RECOVERED: "recovered",
    Check.SERVER_HEALTHY: "healthy",
}
"""The columns of the table of checks."""


@dataclass(frozen=True, slots=True)
class CreatedCluster:
    """A new cluster; ``key`` is None in a dry run, which creates nothing."""

    name: str
    root: str
    key: UUID | None
    num_partitions: int


@dataclass(frozen=True, slots=True)
class ClusterKey:
    """The key of a cluster."""

    key: UUID


@dataclass(frozen=True, slots=True)
class StorageReached:
    """Whether one server reaches one storage.

    If the server did not answer, ``storage`` is None and ``problem`` is the reason.
    """

    server: int
    endpoint: str
    storage: str | None
    reached: Annotated[bool, column(show=lambda reached: "yes" if reached else "UNREACHABLE")]
    problem: Annotated[str | None, column(show=blank)]


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A registered server, the partitions that ZooKeeper assigns to it, and those it prefers."""

    id: int
    endpoint: str
    partitions: tuple[int, ...]
    preferred: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SessionReplica:
    """The state of one replica in the metadata of its partition.

    ``session`` is the last store session of the replica. If the replica has left it,
    ``closing_mark`` is the id up to which a recovery trusts the replica; otherwise it is None. Both
    are None if the metadata do not have the replica. ``current`` is whether the replica has
    recovered in the present session of the partition.
    """

    storage: str
    session: int | None
    closing_mark: int | None
    current: Annotated[bool, column(in_json=False)]


@dataclass(frozen=True, slots=True)
class KnownPartition:
    """The state of one partition in ZooKeeper.

    ``server`` is the id of the server that ZooKeeper assigns the partition to. ``generation`` grows
    whenever the partition changes servers. Both are None if no server has the partition.
    ``session`` is the present store session, None if ZooKeeper has no metadata of the partition.
    """

    partition: int
    server: int | None
    generation: int | None
    session: int | None
    replicas: Annotated[
        tuple[SessionReplica, ...],
        nested(
            SessionReplica,
            title="replicas in the session",
            show=lambda replicas: f"{sum(r.current for r in replicas)} of {len(replicas)}",
        ),
    ]


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The contents of ZooKeeper for a cluster."""

    name: str
    root: str
    key: UUID
    num_partitions: int
    servers: Annotated[tuple[KnownServer, ...], nested(KnownServer, "Servers")]
    storages: Annotated[tuple[KnownStorage, ...], nested(KnownStorage, "Storages")]
    partitions: Annotated[tuple[KnownPartition, ...], nested(KnownPartition, "Partitions")]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check of one partition; ``problem`` joins all ``problems``."""

    partition: int
    check: Annotated[Check, column(show=lambda check: _CHECK_TITLES[check])]
    passed: Annotated[bool, column(in_table=False)]
    problem: str | None
    problems: Annotated[tuple[str, ...], column(in_table=False)]


class Verification(TypedDict):
    """The result of ``waltz cluster verify``; ``passed`` is whether all checks passed."""

    passed: bool
    findings: list[CheckResult]


class LocalProcess(TypedDict, total=False):
    """One process in ``cluster.json``.

    A field that does not apply to a process is absent, such as the admin port of a server. ``pid``
    is None if the process does not run. ``ended_at`` is then the time of its end, in seconds since
    1970, None if this time is unknown.
    """

    address: str
    port: int
    admin_port: int
    http_port: int
    directory: str
    server_id: int | None
    pid: int | None
    ended_at: float | None
    log: str


class LocalStatus(TypedDict):
    """The contents of ``cluster.json``.

    ``supervisor`` is the pid of the process that runs the cluster (`waltz.local.supervisor`), and
    ``control`` the path of the socket by which it takes commands.
    """

    zookeeper: str
    root: str
    tls: bool
    partitions: int
    supervisor: int | None
    control: str | None
    processes: Mapping[str, LocalProcess]


class LogLine(TypedDict):
    """One line of the log of a process of a local cluster."""

    process: str
    line: str


@dataclass(frozen=True, slots=True)
class HighWaterMark:
    """The id of the last transaction of a partition, -1 for an empty log."""

    partition: int
    high_water_mark: Annotated[int, column("high-water mark")]


def render_created(name: str, root: str, key: UUID | None, num_partitions: int) -> Rendering:
    """Return the rendering of a new cluster. In a dry run, which creates none, ``key`` is None."""
    title = "Would be created" if key is None else "Created"
    return record(title, CreatedCluster(name, root, key, num_partitions))


def render_key(cluster_key: UUID) -> Rendering:
    """Return the rendering of a cluster's key."""
    return record("Cluster", ClusterKey(cluster_key))


def render_connectivity(
    members: Mapping[int, ServerDescriptor], reports: Mapping[int, ServerReport]
) -> Rendering:
    """Return the rendering of the connections of every server to storages.

    ``members`` and ``reports`` have the same servers, by their ids. A server that did not answer
    has one row without a storage.
    """
    rows: list[StorageReached] = []
    for server, member in sorted(members.items()):
        report, endpoint = reports[server], member.address
        if report.problem is not None:
            rows.append(
                StorageReached(
                    server, endpoint, storage=None, reached=False, problem=report.problem
                )
            )
            continue
        for storage, reached in sorted(report.storages.items()):
            rows.append(StorageReached(server, endpoint, storage, reached, problem=None))
    return listing("Connectivity", StorageReached, rows)


def render_cluster(
    root: str,
    params: ClusterParams,
    store: StoreParams,
    membership: Membership,
    maps: StorageMaps,
    partitions: Mapping[int, PartitionMetadata],
) -> Rendering:
    """Return the rendering of a cluster; ``partitions`` has the metadata by partition."""
    assignment = membership.assignment.servers
    servers = tuple(
        KnownServer(
            server,
            descriptor.address,
            tuple(sorted(owned.partition for owned in assignment.get(server, ()))),
            tuple(sorted(descriptor.preferred)),
        )
        for server, descriptor in sorted(membership.servers().items())
    )
    known_partitions = tuple(
        _partition(p, membership, maps, partitions.get(p)) for p in range(params.num_partitions)
    )
    state = ClusterState(
        params.name,
        root,
        store.key,
        params.num_partitions,
        servers,
        known_storages(maps),
        known_partitions,
    )
    return record("Cluster", state)


def render_checks(findings: Sequence[Finding]) -> Rendering:
    """Return the rendering of checks: a matrix of partitions and checks, then the failures."""
    results = [
        CheckResult(
            f.partition,
            f.check,
            passed=not f.problems,
            problem=f.problem,
            problems=f.problems,
        )
        for f in findings
    ]
    failed = [result for result in results if not result.passed]
    by_partition: dict[int, dict[Check, CheckResult]] = {}
    for result in results:
        by_partition.setdefault(result.partition, {})[result.check] = result
    matrix = Rows(
        "Checks",
        ("partition", *_CHECK_TITLES.values()),
        [
            (p, *("ok" if outcomes[check].passed else "FAILED" for check in _CHECK_TITLES))
            for p, outcomes in by_partition.items()
        ],
    )
    tables = (matrix, *listing("Failed", CheckResult, failed).tables) if failed else (matrix,)
    return Rendering({"passed": not failed, "findings": as_value(results)}, tables)


def render_high_water_marks(high_water_marks: Mapping[int, int]) -> Rendering:
    """Return the rendering of high-water marks, by partition."""
    rows = [HighWaterMark(partition, mark) for partition, mark in high_water_marks.items()]
    return listing("High-water marks", HighWaterMark, rows)


def render_local_processes(description: Mapping[str, Any]) -> Rendering:
    """Return the rendering of a local cluster, whose value for scripts is ``description``.

    ``description`` has the contents of ``cluster.json``. Each server in it also has its
    ``server_id``: its id in ZooKeeper, None if the id is unknown.
    """
    head = {name: description[name] for name in ("zookeeper", "root", "tls", "partitions")}
    columns = ("process", "pid", "server id", "address", "log")
    cells = [
        (
            name,
            or_dash(process["pid"]),
            or_dash(process.get("server_id")),
            process["address"],
            process["log"],
        )
        for name, process in description["processes"].items()
    ]
    return Rendering(dict(description), (pairs("Cluster", head), Rows("Processes", columns, cells)))


def _partition(
    partition: int, membership: Membership, maps: StorageMaps, metadata: PartitionMetadata | None
) -> KnownPartition:
    """Return the state of a partition; ``metadata`` is None if ZooKeeper has none of it."""
    server, generation = _owner(partition, membership)
    states = metadata.replicas if metadata else {}
    replicas = []
    # The metadata follow a change of the assignment only with the next store session. Until then
    # they may lack a new replica, and have one that is not assigned any more.
    for storage in sorted({*maps.assignments.storages_of(partition), *states}):
        state = states.get(storage)
        mark = state.closing_mark if state else None
        replicas.append(
            SessionReplica(
                storage,
                session=state.session_id if state else None,
                closing_mark=None if mark == UNRESOLVED else mark,
                current=metadata is not None and metadata.takes_part(storage),
            )
        )
    session = metadata.session_id if metadata else None
    return KnownPartition(partition, server, generation, session, tuple(replicas))


def _owner(partition: int, membership: Membership) -> tuple[int | None, int | None]:
    """Return the server that ZooKeeper assigns ``partition`` to, and the partition's generation.

    Both are None if ZooKeeper assigns the partition to no server.
    """
    for server, partitions in membership.assignment.servers.items():
        for owned in partitions:
            if owned.partition == partition:
                return server, owned.generation
    return None, None
