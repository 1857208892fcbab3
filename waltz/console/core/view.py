"""The state of a cluster as the page gets it: one value for JSON. Pure.

Numbers that are not known are null. ``docs/console.md`` describes the fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from waltz.admin.core.health import (
    MIN_DISK_FREE,
    Health,
    Statement,
    judge,
    no_sample,
    unknown_health,
)
from waltz.admin.core.replica_states import (
    PartitionState,
    PartitionStatus,
    ReplicaState,
    view_partition,
)
from waltz.admin.core.sample import Sample
from waltz.admin.core.sample_checks import Reached, check_sample
from waltz.console.core.history import History
from waltz.console.core.processes import ServerView, StorageView, view_servers, view_storages
from waltz.console.core.work import Work, work_under_way


@dataclass(frozen=True, slots=True)
class Names:
    """How the cluster is named: its name, its znode, and the address of its ZooKeeper."""

    name: str
    root: str
    zookeeper: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the cluster.

    ``open_partitions`` counts the partitions that accept appends, also the degraded ones.
    ``healthy_replicas`` counts the replicas that take part in their session and have no known
    damage. ``damaged_records`` counts those of the storages that answer: there may be more.
    """

    partitions: int
    open_partitions: int
    unknown_partitions: int
    replicas: int
    healthy_replicas: int
    unknown_replicas: int
    servers: int
    answering_servers: int
    storages: int
    answering_storages: int
    damaged_records: int
    transactions_per_second: float | None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster at one moment; ``at`` is when it was sampled, in seconds since 1970.

    ``problem`` is why the newest sample failed, None if it succeeded. After a failure, ``health``
    says that the health is unknown, and the other values are those of the last sample that
    succeeded. ``at`` and ``totals`` are None if no sample has succeeded yet.
    """

    names: Names
    at: float | None
    problem: str | None
    health: Health
    totals: Totals | None
    partitions: tuple[PartitionStatus, ...]
    servers: tuple[ServerView, ...]
    storages: tuple[StorageView, ...]
    work: tuple[Work, ...]


def view_cluster(
    names: Names,
    before: Sample | None,
    now: Sample,
    at: float,
    *,
    reached: Reached,
    history: History,
    min_disk_free: float = MIN_DISK_FREE,
) -> ClusterView:
    """Return the view of a sampled cluster.

    The sample ``now`` must have details: the health of partitions and the figures of storages. The
    rates are computed from ``now`` and the earlier sample ``before``. If ``before`` is None, they
    are unknown. ``reached`` says for each server which storages it reaches. The newest sample of
    ``history`` is ``now``. ``min_disk_free`` is the percentage of a disk that must be free.
    """
    numbers = range(now.num_partitions)
    partitions = tuple(view_partition(before, now, number) for number in numbers)
    servers, storages = view_servers(now, partitions), view_storages(now)
    return ClusterView(
        names=names,
        at=at,
        problem=None,
        health=judge(now, partitions, check_sample(now, reached), min_disk_free=min_disk_free),
        totals=_totals(partitions, servers, storages, history),
        partitions=partitions,
        servers=servers,
        storages=storages,
        work=work_under_way(now, partitions, history.peaks),
    )


def failed_view(
    names: Names, last: ClusterView | None, problem: str, statement: Statement | None = None
) -> ClusterView:
    """Return the view after a sample that failed because of ``problem``.

    It has the values of ``last``, the view before. ``last`` is None for the first sample.
    ``statement`` says what to do about ``problem``. It is None if ZooKeeper does not answer.
    """
    health = no_sample(problem) if statement is None else unknown_health(statement)
    if last is None:
        return ClusterView(
            names,
            at=None,
            problem=problem,
            health=health,
            totals=None,
            partitions=(),
            servers=(),
            storages=(),
            work=(),
        )
    return replace(last, names=names, problem=problem, health=health)


def as_value(number: int, view: ClusterView, history: History) -> dict[str, Any]:
    """Return the JSON value of a view and of the history up to it.

    ``number`` counts the views. To request the next view, the page sends the number of its own.
    """
    return {
        "number": number,
        **asdict(view),
        "watching_since": history.since,
        "rates": [asdict(point) for point in history.rates],
        "timeline": [
            {"number": entry.number, "after": entry.after, "at": entry.at, **asdict(entry.change)}
            for entry in reversed(history.entries)
        ],
    }


def _totals(
    partitions: Sequence[PartitionStatus],
    servers: Sequence[ServerView],
    storages: Sequence[StorageView],
    history: History,
) -> Totals:
    """Return the sums; the rate is that of the newest sample."""
    replicas = [replica for partition in partitions for replica in partition.replicas]
    states = [partition.state for partition in partitions]
    damaged = [records for storage in storages for records in storage.damaged or ()]
    return Totals(
        partitions=len(partitions),
        open_partitions=states.count(PartitionState.OPEN) + states.count(PartitionState.DEGRADED),
        unknown_partitions=states.count(PartitionState.UNKNOWN),
        replicas=len(replicas),
        healthy_replicas=sum(replica.state is ReplicaState.IN_SESSION for replica in replicas),
        unknown_replicas=sum(replica.state is ReplicaState.UNKNOWN for replica in replicas),
        servers=len(servers),
        answering_servers=sum(server.answers for server in servers),
        storages=len(storages),
        answering_storages=sum(storage.answers for storage in storages),
        damaged_records=sum(records.last_id - records.first_id + 1 for records in damaged),
        transactions_per_second=(
            history.rates[-1].transactions_per_second if history.rates else None
        ),
    )
