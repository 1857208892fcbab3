"""How the result of ``waltz top`` is shown: a cluster at one moment, and its rates.

`waltz.admin.core.sample` has the samples from which the rows are made. The terms, such as store
session and high-water mark, are in spec/README.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from waltz.admin.core.sample import Sample, rate, sessions_since
from waltz.cli.local_names import NO_NAMES, LocalNames
from waltz.cli.rows import Rendering, Rows, as_cell, as_value, column, nested, nested_tables
from waltz.protocol.notation import format_partitions

_RATE_DIGITS = 1
"""The decimal places of a rate."""


@dataclass(frozen=True, slots=True)
class WatchedReplica:
    """One replica that ZooKeeper assigns to a storage.

    ``in_session`` is whether the replica takes part in the partition's store session. ``available``
    is whether the storage holds the replica and both of the replica's switches are on. ``lag`` is
    the number of committed transactions that the replica lacks, None if it is unknown.
    ``available`` and ``damaged_records`` are None if the storage does not answer.
    """

    storage: str
    in_session: bool
    available: bool | None
    lag: int | None
    damaged_records: int | None

    @property
    def trouble(self) -> str:
        """Why the replica is not healthy; empty if it is healthy, or if its state is unknown."""
        if self.available is None:
            return ""
        if not self.available:
            return "off or missing"
        if self.damaged_records:
            return "damaged records"
        return "" if self.in_session else "not in session"


Replicas = tuple[WatchedReplica, ...]


def _or_unknown(value: object) -> object:
    """Return ``value``, or the word unknown for None."""
    return "unknown" if value is None else value


def _megabytes(size: int | None) -> object:
    """Return a number of bytes in megabytes of a million bytes, or the word unknown for None."""
    return "unknown" if size is None else f"{size / 1e6:.1f}"


@dataclass(frozen=True, slots=True)
class WatchedPartition:
    """One partition; ``replicas_in_session`` and ``greatest_lag`` summarize its replicas.

    ``greatest_lag`` is None if the lag of a replica is unknown. ``recoveries`` is how many store
    sessions have begun since the command started.
    """

    partition: int
    server: int | None
    generation: Annotated[int | None, column(in_table=False)]
    session: int | None
    high_water_mark: Annotated[int | None, column("high-water mark", show=_or_unknown)]
    transactions_per_second: Annotated[float | None, column("tx/s", show=_or_unknown)]
    replicas_in_session: Annotated[str, column("replicas", in_json=False)]
    greatest_lag: Annotated[int | None, column("lag", in_json=False, show=_or_unknown)]
    recoveries: Annotated[int, column(in_table=False)]
    replicas: Annotated[Replicas, nested(WatchedReplica)]


@dataclass(frozen=True, slots=True)
class WatchedServer:
    """One server; ``problem`` is why it does not answer.

    ``local_name`` is its name for ``waltz local``, None if the cluster is not a local one.
    """

    id: int
    endpoint: str
    local_name: Annotated[str | None, column(in_table=False)]
    partitions: Annotated[tuple[int, ...] | None, column(show=lambda p: as_cell(_or_unknown(p)))]
    transactions_per_second: Annotated[float | None, column("tx/s", show=_or_unknown)]
    problem: Annotated[str | None, column(in_table=False)]


@dataclass(frozen=True, slots=True)
class WatchedStorage:
    """One storage; ``problem`` is why it does not answer.

    ``partitions`` are those whose replicas the storage holds. ``in_session`` is how many of its
    replicas take part in the sessions of their partitions. ``lag`` and ``size_bytes`` are the sums
    over its replicas, each None if it is unknown for one of them. If the storage does not answer,
    ``partitions``, ``lag`` and ``size_bytes`` are None.
    """

    storage: str
    group: int | None
    partitions: Annotated[tuple[int, ...] | None, column(show=lambda p: as_cell(_or_unknown(p)))]
    in_session: Annotated[int, column("in session")]
    lag: Annotated[int | None, column(show=_or_unknown)]
    size_bytes: Annotated[int | None, column("MB", show=_megabytes)]
    problem: Annotated[str | None, column(in_table=False)]


@dataclass(frozen=True, slots=True)
class Trouble:
    """All problems of one process, in one line of text: ``trouble``."""

    process: str
    trouble: str


@dataclass(frozen=True, slots=True)
class WatchedCluster:
    """A cluster at one moment. The total rate is None if that of a partition is unknown."""

    transactions_per_second: float | None
    recoveries: int
    trouble: Annotated[tuple[Trouble, ...], nested(Trouble, "Trouble")]
    partitions: Annotated[tuple[WatchedPartition, ...], nested(WatchedPartition, "Partitions")]
    servers: Annotated[tuple[WatchedServer, ...], nested(WatchedServer, "Servers")]
    storages: Annotated[tuple[WatchedStorage, ...], nested(WatchedStorage, "Storages")]


def render_sample(
    first: Sample, before: Sample | None, now: Sample, names: LocalNames = NO_NAMES
) -> Rendering:
    """Return the rendering of ``now``: rates since ``before``, recoveries since ``first``.

    ``before`` is None if there is no earlier sample; then all rates are unknown.
    """
    partitions = tuple(_partition(first, before, now, p) for p in range(now.num_partitions))
    servers = tuple(_server(now, server, partitions, names) for server in sorted(now.servers))
    storages = tuple(_storage(now, storage) for storage in sorted(now.storages))
    cluster = WatchedCluster(
        transactions_per_second=_sum_of_rates(p.transactions_per_second for p in partitions),
        recoveries=sum(p.recoveries for p in partitions),
        trouble=tuple(_troubles(partitions, servers, storages)),
        partitions=partitions,
        servers=servers,
        storages=storages,
    )
    tables = nested_tables(cluster)
    # Tables without rows are left out, such as that of troubles in a healthy cluster.
    rendering = Rendering(
        as_value(cluster), (_summary(cluster), *(table for table in tables if table.cells))
    )
    return names.name_processes(rendering, now.membership.servers())


def _troubles(
    partitions: Iterable[WatchedPartition],
    servers: Iterable[WatchedServer],
    storages: Iterable[WatchedStorage],
) -> Iterator[Trouble]:
    """Yield one line for each server and each storage that has a problem.

    The line of a storage has why it does not answer, and the unhealthy replicas that ZooKeeper
    assigns to it.
    """
    for server in servers:
        if server.problem is not None:
            yield Trouble(f"server {server.id}", server.problem)
    # By storage and trouble, the partitions whose replicas at the storage have the trouble.
    unhealthy: dict[str, dict[str, list[int]]] = {}
    for partition in partitions:
        for replica in partition.replicas:
            if replica.trouble:
                by_trouble = unhealthy.setdefault(replica.storage, {})
                by_trouble.setdefault(replica.trouble, []).append(partition.partition)
    problem_of_silent = {s.storage: s.problem for s in storages if s.problem is not None}
    for storage in sorted({*unhealthy, *problem_of_silent}):
        texts = [problem_of_silent[storage]] if storage in problem_of_silent else []
        for trouble, partition_ids in unhealthy.get(storage, {}).items():
            texts.append(f"{trouble}: {format_partitions(partition_ids)}")
        yield Trouble(storage, "; ".join(text for text in texts if text))


def _sum_of_rates(rates: Iterable[float | None]) -> float | None:
    """Return the sum of rates, None if one of them is unknown; 0 if there are none."""
    all_rates = list(rates)
    known = [number for number in all_rates if number is not None]
    if len(known) < len(all_rates):
        return None
    return round(sum(known), _RATE_DIGITS)


def _partition(
    first: Sample, before: Sample | None, now: Sample, partition: int
) -> WatchedPartition:
    """Return the row of a partition: its rate since ``before``, its recoveries since ``first``."""
    server, generation = now.owner(partition)
    transactions_per_second = rate(before, now, partition)
    if transactions_per_second is not None:
        transactions_per_second = round(transactions_per_second, _RATE_DIGITS)
    replicas = tuple(
        WatchedReplica(
            storage,
            in_session=now.in_session(partition, storage),
            available=_available(now, partition, storage),
            lag=now.lag(partition, storage),
            damaged_records=_damaged(now, partition, storage),
        )
        for storage in sorted(now.maps.assignments.storages_of(partition))
    )
    return WatchedPartition(
        partition,
        server,
        generation,
        session=now.session(partition),
        high_water_mark=now.mark(partition),
        transactions_per_second=transactions_per_second,
        replicas_in_session=_in_session_text(replicas),
        greatest_lag=_greatest_lag(replicas),
        recoveries=sessions_since(first, now, partition),
        replicas=replicas,
    )


def _server(
    now: Sample, server: int, partitions: tuple[WatchedPartition, ...], names: LocalNames
) -> WatchedServer:
    """Return the row of a server; its rate is the sum over the partitions that it owns."""
    member, report = now.membership.servers()[server], now.servers[server]
    answers = report.problem is None
    rates = [p.transactions_per_second for p in partitions if p.server == server]
    return WatchedServer(
        server,
        member.address,
        local_name=names.names.get(member.address),
        partitions=tuple(sorted(report.marks)) if answers else None,
        transactions_per_second=_sum_of_rates(rates) if answers else None,
        problem=report.problem,
    )


def _storage(now: Sample, storage: str) -> WatchedStorage:
    """Return the row of a storage; a value that it does not report is None."""
    report = now.storages[storage]
    answers = report.problem is None
    sizes = [held.size_bytes for held in report.held.values()]
    known_sizes = [size for size in sizes if size is not None]
    lags = [now.lag(partition, storage) for partition in report.held]
    known_lags = [lag for lag in lags if lag is not None]
    return WatchedStorage(
        storage,
        group=now.maps.groups.groups.get(storage),
        partitions=tuple(sorted(report.held)) if answers else None,
        in_session=sum(now.in_session(p, storage) for p in range(now.num_partitions)),
        lag=sum(known_lags) if answers and len(known_lags) == len(lags) else None,
        size_bytes=sum(known_sizes) if answers and len(known_sizes) == len(sizes) else None,
        problem=report.problem,
    )


def _available(now: Sample, partition: int, storage: str) -> bool | None:
    """Return `WatchedReplica.available` of the replica of ``partition`` at ``storage``."""
    report = now.storages.get(storage)
    if report is None or report.problem is not None:
        return None
    held = report.held.get(partition)
    return held is not None and held.available


def _damaged(now: Sample, partition: int, storage: str) -> int | None:
    """Return `WatchedReplica.damaged_records` of the replica of ``partition`` at ``storage``."""
    report = now.storages.get(storage)
    if report is None or report.problem is not None:
        return None
    return now.damaged_records(partition, storage)


def _greatest_lag(replicas: Replicas) -> int | None:
    """Return `WatchedPartition.greatest_lag` of a partition with these ``replicas``."""
    known = [replica.lag for replica in replicas if replica.lag is not None]
    if len(known) < len(replicas):
        return None
    return max(known, default=0)


def _in_session_text(replicas: Replicas) -> str:
    """Return how many of ``replicas`` are in their session, as a text: ``2 of 3``."""
    return f"{sum(r.in_session for r in replicas)} of {len(replicas)}"


def _summary(cluster: WatchedCluster) -> Rows:
    """Return the table of the whole cluster, which has one row.

    A silent process is a server or a storage that does not answer.
    """
    problems = [s.problem for s in cluster.servers] + [s.problem for s in cluster.storages]
    num_silent = sum(bool(problem) for problem in problems)
    columns = ("transactions/s", "replicas in session", "recoveries", "silent processes")
    cells = [
        (
            _or_unknown(cluster.transactions_per_second),
            _in_session_text(tuple(r for p in cluster.partitions for r in p.replicas)),
            cluster.recoveries,
            num_silent,
        )
    ]
    return Rows("Cluster", columns, cells)
