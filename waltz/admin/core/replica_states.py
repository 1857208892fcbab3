"""Judge partitions and their replicas for display: a state, and a few words that say why. Pure.

If a process does not answer, the state that only this process could report is UNKNOWN, and numbers
that only it could report are None, never 0. There is one exception. If a server's host refuses the
connection, the server does not run, so its partitions are UNAVAILABLE. In all functions, ``now`` is
the newest sample of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from waltz.admin.core.replicas import quorum
from waltz.admin.core.sample import Sample, StorageSample, rate


class ReplicaState(StrEnum):
    """The state of one replica.

    IN_SESSION: the replica takes part in the current store session. FILLING: the server fills it,
    and it takes part when it has caught up. OUT: neither of the two. OFF: reading, writing or both
    are switched off. MISSING: it is assigned, but the storage does not hold it. REFUSED: the
    storage cannot serve it. DAMAGED: it has damaged records, but may take part in the session
    nevertheless (`ReplicaStatus.in_session`).
    """

    IN_SESSION = "in session"
    FILLING = "being filled"
    OUT = "out of session"
    OFF = "switched off"
    MISSING = "not held"
    REFUSED = "refused"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"


class PartitionState(StrEnum):
    """The state of one partition.

    OPEN: the partition accepts appends, and all replicas are healthy. DEGRADED: it accepts appends,
    but some replicas are not healthy. OPENING: its server runs, and will open it. UNAVAILABLE: it
    accepts no appends.
    """

    OPEN = "open"
    DEGRADED = "degraded"
    OPENING = "opening"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The status of one replica.

    ``reason`` explains ``state``; it is empty if there is nothing to explain. ``lag`` is how many
    committed transactions the replica lacks. ``last_id`` is the id of its last transaction,
    committed or not. A number is None if no process reported it.
    """

    storage: str
    state: ReplicaState
    reason: str
    in_session: bool
    lag: int | None
    last_id: int | None
    damaged_records: int | None

    @property
    def unusable(self) -> bool:
        """Whether the storage refuses the replica, or an administrator has switched it off."""
        return self.state in (ReplicaState.REFUSED, ReplicaState.OFF)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The status of one partition.

    ``reason`` says why the state is not OPEN; it is empty if the state is OPEN. ``server`` and
    ``generation`` are None if the partition is assigned to no server. ``endpoint`` is the server's
    address, None if ZooKeeper does not have it. ``session`` is the newest store session, which may
    not be open yet; None if no session has begun. The last two numbers are None if they are
    unknown.
    """

    partition: int
    state: PartitionState
    reason: str
    server: int | None
    endpoint: str | None
    generation: int | None
    session: int | None
    high_water_mark: int | None
    transactions_per_second: float | None
    replicas: tuple[ReplicaStatus, ...]


def view_partition(before: Sample | None, now: Sample, partition: int) -> PartitionStatus:
    """Return the status of a partition.

    ``before`` is an earlier sample, from which the rate is computed. If it is None, the rate is
    None, too.
    """
    replicas = tuple(
        view_replica(now, partition, storage)
        for storage in sorted(now.maps.assignments.storages_of(partition))
    )
    server, generation = now.owner(partition)
    member = None if server is None else now.membership.servers().get(server)
    state, reason = _partition_state(now, partition, replicas)
    return PartitionStatus(
        partition,
        state,
        reason,
        server,
        None if member is None else member.address,
        generation,
        session=now.session(partition),
        high_water_mark=now.mark(partition),
        transactions_per_second=rate(before, now, partition),
        replicas=replicas,
    )


def view_replica(now: Sample, partition: int, storage: str) -> ReplicaStatus:
    """Return the status of the replica of a partition on a storage."""
    report = now.storages.get(storage)
    held = None if report is None else report.held.get(partition)
    is_silent = report is None or report.problem is not None
    state, reason = _replica_state(now, partition, storage, report)
    return ReplicaStatus(
        storage,
        state,
        reason,
        in_session=now.in_session(partition, storage),
        lag=now.lag(partition, storage),
        last_id=None if held is None else held.max_transaction_id,
        damaged_records=None if is_silent else now.damaged_records(partition, storage),
    )


def _replica_state(
    now: Sample, partition: int, storage: str, report: StorageSample | None
) -> tuple[ReplicaState, str]:
    """Return the state of a replica, and the reason (see `ReplicaStatus`).

    ``report`` is None if ZooKeeper has no admin port of the storage: then it was not queried.
    """
    if report is None:
        reason = "ZooKeeper has no admin port of the storage, so its state cannot be read"
        return ReplicaState.UNKNOWN, reason
    if report.problem is not None:
        return ReplicaState.UNKNOWN, "the storage does not answer"
    refusals = {} if report.figures is None else report.figures.refused
    if partition in refusals:
        return ReplicaState.REFUSED, refusals[partition]
    held = report.held.get(partition)
    if held is None:
        return ReplicaState.MISSING, "the storage does not hold the replica assigned to it"
    if not held.available:
        return ReplicaState.OFF, _forbidden_use(held.readable, held.writable)
    if damaged := now.damaged_records(partition, storage):
        return ReplicaState.DAMAGED, f"{damaged} damaged record{'' if damaged == 1 else 's'}"
    if now.in_session(partition, storage):
        return ReplicaState.IN_SESSION, ""
    # The server writes the id of the session into the entry of a replica before it fills the
    # replica.
    metadata = now.metadata.get(partition)
    entry = None if metadata is None else metadata.replicas.get(storage)
    if metadata is not None and entry is not None and entry.session_id == metadata.session_id:
        return ReplicaState.FILLING, ""
    return ReplicaState.OUT, ""


def _forbidden_use(readable: bool, writable: bool) -> str:
    """Return what servers may not do with a replica; at least one of its switches is off."""
    if not readable and not writable:
        return "servers may neither read nor write it"
    return "servers may not write it" if readable else "servers may not read it"


def _partition_state(
    now: Sample, partition: int, replicas: tuple[ReplicaStatus, ...]
) -> tuple[PartitionState, str]:
    """Return the state of a partition, and why it is not open (see `PartitionStatus`)."""
    server, _ = now.owner(partition)
    if server is None:
        return PartitionState.UNAVAILABLE, "it is assigned to no server"
    report = now.servers.get(server)
    if report is None:
        return PartitionState.UNAVAILABLE, f"it is assigned to server {server}, which does not run"
    if report.refused:
        return PartitionState.UNAVAILABLE, f"server {server} does not run: connection refused"
    if report.problem is not None:
        return PartitionState.UNKNOWN, f"server {server} does not answer"
    if partition not in report.marks:
        return PartitionState.OPENING, f"server {server} has not acquired it yet"
    if report.health is not None and not report.health.get(partition, False):
        # Do not say that a quorum is missing: the server may also wait until a replica is copied.
        why = f"server {server} has no open store session; its log and its /health say why"
        return PartitionState.UNAVAILABLE, why
    if report.marks[partition] is None:
        return PartitionState.OPENING, f"server {server} opens it"
    return _open_partition_state(replicas)


def _open_partition_state(replicas: tuple[ReplicaStatus, ...]) -> tuple[PartitionState, str]:
    """Return the state of an open partition, which depends on its replicas, and the reason."""
    unhealthy = [replica for replica in replicas if replica.state is not ReplicaState.IN_SESSION]
    if not unhealthy:
        return PartitionState.OPEN, ""
    total = len(replicas)
    num_unknown = sum(replica.state is ReplicaState.UNKNOWN for replica in unhealthy)
    if total - num_unknown < quorum(total):
        # The silent storages may still answer the server, although they do not answer this process.
        reason = f"{num_unknown} of {total} storages report nothing: a quorum is not certain"
        return PartitionState.UNKNOWN, reason
    verb = "is" if len(unhealthy) == 1 else "are"
    return PartitionState.DEGRADED, f"{len(unhealthy)} of {total} replicas {verb} not healthy"
