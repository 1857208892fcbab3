"""The result of ``waltz top``: a cluster at one moment, and its rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from waltz.admin.core.sample import Sample, rate, sessions_since
from waltz.cli.rows import Rendering, Rows, as_value, blank, column, nested, nested_tables, or_dash

_RATE_DIGITS = 1


@dataclass(frozen=True, slots=True)
class WatchedReplica:
    """One replica; ``lag`` is how many committed transactions it lacks, None if that is unknown.

    ``available`` is whether the replica is switched on: False also if the storage does not hold the
    replica, None if the storage does not answer.
    """

    storage: str
    in_session: bool
    available: bool | None
    lag: int | None
    damaged_records: int

    @property
    def trouble(self) -> str:
        """Why the replica is not healthy; empty if the replica is healthy."""
        if self.available is None:
            return f"{self.storage}: does not answer"
        if not self.available:
            return f"{self.storage}: off or missing"
        if self.damaged_records:
            return f"{self.storage}: {self.damaged_records} damaged records"
        return "" if self.in_session else f"{self.storage}: not in session"


Replicas = tuple[WatchedReplica, ...]


@dataclass(frozen=True, slots=True)
class WatchedPartition:
    """One partition; ``replicas_in_session`` and ``greatest_lag`` summarize its replicas."""

    partition: int
    server: int | None
    generation: int | None
    session: int | None
    high_water_mark: Annotated[int | None, column("high-water mark")]
    transactions_per_second: Annotated[float | None, column("transactions/s")]
    replicas_in_session: Annotated[str, column("replicas", in_value=False)]
    greatest_lag: Annotated[int, column(in_value=False)]
    recoveries: int
    replicas: Annotated[
        Replicas,
        nested(
            WatchedReplica,
            title="trouble",
            show=lambda replicas: " ".join(r.trouble for r in replicas if r.trouble),
        ),
    ]


@dataclass(frozen=True, slots=True)
class WatchedServer:
    """One server; ``problem`` is why it does not answer."""

    id: int
    endpoint: str
    partitions: tuple[int, ...]
    transactions_per_second: Annotated[float, column("transactions/s")]
    problem: Annotated[str | None, column(show=blank)]


@dataclass(frozen=True, slots=True)
class WatchedStorage:
    """One storage; ``problem`` is why it does not answer.

    ``in_session`` is how many of its replicas are in sessions, ``lag`` the sum of their lags.
    """

    storage: str
    group: int | None
    partitions: tuple[int, ...]
    in_session: int
    lag: int
    size_bytes: Annotated[
        int | None, column("MB", show=lambda size: "-" if size is None else f"{size / 1e6:.1f}")
    ]
    problem: Annotated[str | None, column(show=blank)]


@dataclass(frozen=True, slots=True)
class WatchedCluster:
    """A cluster at one moment."""

    transactions_per_second: float | None
    recoveries: int
    partitions: Annotated[tuple[WatchedPartition, ...], nested(WatchedPartition, "Partitions")]
    servers: Annotated[tuple[WatchedServer, ...], nested(WatchedServer, "Servers")]
    storages: Annotated[tuple[WatchedStorage, ...], nested(WatchedStorage, "Storages")]


def render_sample(first: Sample, before: Sample | None, now: Sample) -> Rendering:
    """Return the result for ``now``: rates since ``before``, recoveries since ``first``."""
    partitions = tuple(_partition(first, before, now, p) for p in range(now.num_partitions))
    rates = [p.transactions_per_second for p in partitions]
    known_rates = [each for each in rates if each is not None]
    cluster = WatchedCluster(
        round(sum(known_rates), _RATE_DIGITS) if known_rates else None,
        sum(p.recoveries for p in partitions),
        partitions,
        tuple(_server(now, server, partitions) for server in sorted(now.membership.servers())),
        tuple(_storage(now, storage) for storage in sorted(now.storages)),
    )
    return Rendering(as_value(cluster), (_summary(cluster), *nested_tables(cluster)))


def _partition(
    first: Sample, before: Sample | None, now: Sample, partition: int
) -> WatchedPartition:
    server, generation = now.owner(partition)
    speed = rate(before, now, partition)
    replicas = tuple(
        WatchedReplica(
            storage,
            now.in_session(partition, storage),
            _available(now, partition, storage),
            now.lag(partition, storage),
            now.damaged_records(partition, storage),
        )
        for storage in sorted(now.maps.assignments.storages_of(partition))
    )
    return WatchedPartition(
        partition,
        server,
        generation,
        now.session(partition),
        now.mark(partition),
        None if speed is None else round(speed, _RATE_DIGITS),
        _in_session(replicas),
        max((r.lag or 0 for r in replicas), default=0),
        sessions_since(first, now, partition),
        replicas,
    )


def _server(now: Sample, server: int, partitions: tuple[WatchedPartition, ...]) -> WatchedServer:
    member, report = now.membership.servers()[server], now.servers[server]
    rates = [p.transactions_per_second or 0.0 for p in partitions if p.server == server]
    return WatchedServer(
        server,
        f"{member.host}:{member.port}",
        tuple(sorted(report.marks)),
        round(sum(rates), _RATE_DIGITS),
        report.problem,
    )


def _storage(now: Sample, storage: str) -> WatchedStorage:
    report = now.storages[storage]
    sizes = [held.size_bytes for held in report.held.values()]
    known_sizes = [size for size in sizes if size is not None]
    return WatchedStorage(
        storage,
        now.maps.groups.groups.get(storage),
        tuple(sorted(report.held)),
        sum(now.in_session(p, storage) for p in range(now.num_partitions)),
        sum(now.lag(partition, storage) or 0 for partition in report.held),
        sum(known_sizes) if known_sizes else None,
        report.problem,
    )


def _available(now: Sample, partition: int, storage: str) -> bool | None:
    """Return `WatchedReplica.available` of a replica."""
    report = now.storages.get(storage)
    if report is None or report.problem is not None:
        return None
    held = report.held.get(partition)
    return held is not None and held.available


def _in_session(replicas: Replicas) -> str:
    return f"{sum(r.in_session for r in replicas)} of {len(replicas)}"


def _summary(cluster: WatchedCluster) -> Rows:
    problems = [s.problem for s in cluster.servers] + [s.problem for s in cluster.storages]
    num_silent = sum(bool(problem) for problem in problems)
    columns = (
        "transactions/s",
        "replicas in session",
        "recoveries",
        "processes that do not answer",
    )
    cells = [
        (
            or_dash(cluster.transactions_per_second),
            _in_session(tuple(r for p in cluster.partitions for r in p.replicas)),
            cluster.recoveries,
            num_silent or "-",
        )
    ]
    return Rows("Cluster", columns, cells)
