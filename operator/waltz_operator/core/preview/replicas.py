"""Simulate what servers and storages do with replicas, and count how many storages may fail. Pure.

A preview (`core.preview`) uses this to find out what the planner would do next.

A *session* is a store session: the exclusive right of one server to write the replicas of a
partition (`waltz.admin.core.replicas`). A replica is *available* if it can take part in a session.
Servers begin a new session when the available replicas of a partition have changed. The session
makes its replicas equal. The *last session* of a partition is the one in its metadata, open or not.
The metadata name the replicas of this session (`PartitionView.session_replicas`). Those of them
that have recovered *take part* in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from waltz.admin.core.replicas import (
    PartitionView,
    ReplicaObservation,
    absence_reason,
    quorum,
    session_opens,
)
from waltz.metadata.core.formats import NO_SESSION, UNRESOLVED, PartitionMetadata, ReplicaState

_NOT_IN_SESSION = ReplicaState(NO_SESSION, closing_mark=-1)
"""The state in the metadata of an assigned replica that was never in a session.

With the closing mark -1, a recovery trusts no transaction of the replica (see `ReplicaState`).
"""


def with_sessions(
    replicas: ReplicaObservation, partitions: Iterable[int], *, all_catch_up: bool
) -> ReplicaObservation:
    """Return the observation after servers have begun the sessions that ``partitions`` need.

    A partition without a server gets a server. With ``all_catch_up``, replicas that lag in their
    session get the missing transactions, too.
    """
    for partition in sorted(partitions):
        view = replicas.partitions[partition]
        available = _available(replicas, view)
        needs_session = not _has_current_session(replicas, view, available) or (
            all_catch_up and _has_lagging_replica(replicas, view, available)
        )
        if needs_session and _opens(replicas, view, available):
            replicas = _with_session(replicas, view, available)
    return replicas


def size_of_partition(
    replicas: ReplicaObservation, partition: int, storages: Iterable[str]
) -> int | None:
    """Return the size in bytes of a partition's largest replica; None if none is reported."""
    reported = (replicas.held(storage, partition) for storage in storages)
    sizes = (held.size_bytes for held in reported if held is not None)
    return max((size for size in sizes if size is not None), default=None)


def spare_storages(replicas: ReplicaObservation) -> int:
    """Return how many storages may fail while every partition keeps the quorums of a session.

    The number is true for any choice of storages. A negative number means that a partition has no
    quorum. A partition that was never open has no transactions to lose, and does not count. If no
    partition counts, the number is 0.
    """
    spares = (
        _spare(replicas, view)
        for view in replicas.partitions.values()
        if view.session_replicas and view.replicas
    )
    return min(spares, default=0)


def _spare(replicas: ReplicaObservation, view: PartitionView) -> int:
    """Return how many storages may fail while a partition keeps its quorums.

    A new session needs two quorums. One is of the assigned replicas. The other is of the replicas
    of the last session: any such quorum has all committed transactions.
    """
    available = _available(replicas, view)
    up_to_date = available & _in_session(replicas, view)
    return min(
        len(available) - quorum(len(view.replicas)),
        len(up_to_date) - quorum(len(view.session_replicas)),
    )


def _available(replicas: ReplicaObservation, view: PartitionView) -> frozenset[str]:
    """Return the assigned storages that can take part in a session."""
    return frozenset(s for s in view.replicas if absence_reason(replicas, view, s) is None)


def _in_session(replicas: ReplicaObservation, view: PartitionView) -> frozenset[str]:
    """Return the storages that take part in the last session."""
    return frozenset(
        storage
        for storage in view.session_replicas
        if (held := replicas.held(storage, view.partition)) is not None
        and view.in_session(storage, held)
    )


def _has_current_session(
    replicas: ReplicaObservation, view: PartitionView, available: frozenset[str]
) -> bool:
    """Return whether a server serves the partition with exactly its available replicas.

    Then the partition needs no new session. This is so if exactly the ``available`` replicas take
    part in the last session, and if the metadata name exactly the assigned replicas as those of
    this session. Otherwise a replica has come, has failed, or was assigned or removed since.
    """
    return (
        view.server_problem is None
        and available == _in_session(replicas, view)
        and view.replicas == view.session_replicas
    )


def _has_lagging_replica(
    replicas: ReplicaObservation, view: PartitionView, available: frozenset[str]
) -> bool:
    """Return whether an available replica lacks transactions."""
    end = _last_id_of_partition(replicas, view, available)
    last_ids = (_last_id_of_replica(replicas, s, view.partition) for s in available)
    return any(last_id < end for last_id in last_ids)


def _opens(replicas: ReplicaObservation, view: PartitionView, available: frozenset[str]) -> bool:
    """Return whether a server can begin a session with the ``available`` replicas.

    A replica of the last session that has dropped out of it does not count: it may lack committed
    transactions.
    """
    last = view.session_replicas
    dropped_out = last - _in_session(replicas, view)
    return session_opens(available - dropped_out, view.replicas, last)


def _with_session(
    replicas: ReplicaObservation, view: PartitionView, available: frozenset[str]
) -> ReplicaObservation:
    """Return the observation after a new session of a partition has made its replicas equal."""
    partition, session = view.partition, view.metadata.session_id + 1
    # The available replicas take part in the new session, which none of them has left
    # (UNRESOLVED). Absent replicas keep the states that they had.
    states = {s: view.metadata.replicas.get(s, _NOT_IN_SESSION) for s in view.replicas}
    states |= {s: ReplicaState(session, UNRESOLVED) for s in available}
    metadata = PartitionMetadata(view.metadata.generation, session, states)
    end = _last_id_of_partition(replicas, view, available)
    size = size_of_partition(replicas, partition, available)
    storages = dict(replicas.storages)
    for storage in available:
        held = replicas.held(storage, partition)
        assert held is not None, "an available replica exists"
        filled = replace(
            held,
            session_id=session,
            low_water_mark=end,
            local_low_water_mark=end,
            max_transaction_id=end,
            size_bytes=size,
        )
        report = storages[storage]
        storages[storage] = replace(report, held={**report.held, partition: filled})
    opened = replace(view, metadata=metadata, server_problem=None)
    partitions = {**replicas.partitions, partition: opened}
    return replace(replicas, partitions=partitions, storages=storages)


def _last_id_of_partition(
    replicas: ReplicaObservation, view: PartitionView, available: frozenset[str]
) -> int:
    """Return the highest last id of the available replicas that take part in the last session.

    If none takes part, it is the highest last id of all ``available`` replicas. The result is never
    below the commit bound, an id at or above every committed transaction
    (`ReplicaObservation.commit_bounds`). A replica with a lower last id would not count as healthy
    (`unhealthy_reason`).
    """
    up_to_date = available & _in_session(replicas, view)
    last_ids = [_last_id_of_replica(replicas, s, view.partition) for s in up_to_date or available]
    return max([*last_ids, replicas.commit_bounds.get(view.partition, -1)])


def _last_id_of_replica(replicas: ReplicaObservation, storage: str, partition: int) -> int:
    """Return the last id of a replica, -1 if it is empty, missing or not reported."""
    held = replicas.held(storage, partition)
    if held is None or held.max_transaction_id is None:
        return -1
    return held.max_transaction_id
