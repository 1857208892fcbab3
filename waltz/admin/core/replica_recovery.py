"""Order: rebuild a replica whose disk was lost or restored, by an offline copy. Pure.

A copy first cuts the replica to its low-water mark (`core.replica_filling` says why that is a
danger). So the order fills only a replica that does not count in the vote on the committed
transactions, which servers hold when a store session begins:

* a replica whose disk reports an older session than the metadata,
* a replica that never took part in a session,
* a replica that is not assigned yet.

An assigned replica with an intact disk counts in the vote. The order does not fill it: the cut
could lose transactions, and servers bring the replica up to date themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.replica_filling import next_fill_step, next_switch_on_step
from waltz.admin.core.replicas import (
    HeldPartition,
    ObservationScope,
    PartitionView,
    ReplicaObservation,
    absence_reason,
    session_opens,
    unhealthy_reason,
)
from waltz.admin.core.steps import CreateReplicas, Done, Next, Order, Refuse, SwitchOff, Wait
from waltz.metadata.core.formats import NO_SESSION


@dataclass(frozen=True, slots=True)
class ReplicaRecovery(Order):
    """Rebuild the replica of ``partition`` on ``destination``.

    If ZooKeeper assigns the replica, the order is complete when the replica is healthy; otherwise,
    when it is filled and switched on. ``source`` is the storage to copy from. If it is None, the
    healthy replica with the highest local low-water mark is copied.
    """

    partition: int
    destination: str
    source: str | None = None

    @property
    def scope(self) -> ObservationScope:
        """The scope: the partition, the source and the destination."""
        named = {self.destination} if self.source is None else {self.destination, self.source}
        return ObservationScope((self.partition,), frozenset(named))

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""
        return _next_step(observation, self)


def _next_step(observation: ReplicaObservation, order: ReplicaRecovery) -> Next:
    """Return the next step: create the replica if needed, then fill it and switch it on."""
    view = observation.partitions.get(order.partition)
    if view is None:
        return Refuse(f"partition {order.partition} does not exist")
    if order.source == order.destination:
        return Refuse(f"storage {order.destination} cannot be filled from itself")
    if order.destination not in observation.groups:
        return Refuse(f"storage {order.destination} is in no group of the cluster")
    if problem := observation.storage_problem(order.destination):
        return Wait(f"storage {order.destination} does not answer: {problem}")
    held = observation.held(order.destination, view.partition)
    if held is None:
        return CreateReplicas(order.destination, (view.partition,))
    if order.destination in view.replicas:
        return _recover_assigned(observation, view, order, held)
    if order.destination in view.session_replicas:
        # ZooKeeper no longer assigns the replica. Until a session without this replica has
        # recovered, a vote may still count it, so a copy must not cut it.
        return Wait(
            f"the last change of the replicas of partition {view.partition} is not complete yet"
        )
    return (
        next_fill_step(observation, view, order.destination, source=order.source)
        or next_switch_on_step(observation, view, order.destination)
        or Done()
    )


def counts_in_vote(view: PartitionView, storage: str, held: HeldPartition) -> bool:
    """Return whether a vote on the committed transactions may count the replica on ``storage``.

    Every intact replica that took part in a session may count, also one that left its session.

    A disk that was emptied or restored reports an older session than the metadata, and its replica
    does not count. If its short log counted, the vote could cut committed transactions from the
    other replicas (``tests/unit/admin/test_operations_plans.py``,
    test_intact_replica_is_never_cut).
    """
    state = view.metadata.replicas.get(storage)
    if state is None or state.session_id == NO_SESSION:
        return False
    return held.session_id >= state.session_id


def _recover_assigned(
    observation: ReplicaObservation,
    view: PartitionView,
    order: ReplicaRecovery,
    held: HeldPartition,
) -> Next:
    """Return the next step for the replica ``held``, which ZooKeeper assigns to the destination."""
    storage = order.destination
    problem = unhealthy_reason(observation, view, storage)
    if problem is None:
        # The replica is healthy. Wait only if no server serves the partition.
        return Done() if view.server_problem is None else Wait(view.server_problem)
    step = None
    if not counts_in_vote(view, storage, held):
        step = next_fill_step(observation, view, storage, source=order.source)
    # A replica that is switched off leaves its session. If the others were no quorum without it,
    # the partition would close.
    if isinstance(step, SwitchOff) and not _opens_without(observation, view, storage):
        return Wait(f"partition {view.partition} has no quorum without storage {storage}")
    return (
        step
        or next_switch_on_step(observation, view, storage)
        or Wait(view.server_problem or problem)
    )


def _opens_without(observation: ReplicaObservation, view: PartitionView, storage: str) -> bool:
    """Return whether a session of the partition opens without the replica on ``storage``."""
    others = view.replicas - {storage}
    present = frozenset(s for s in others if absence_reason(observation, view, s) is None)
    return session_opens(present, view.replicas, view.session_replicas)
