"""Brings one replica back whose disk was lost or set back, by an offline copy: what is next. Pure.

Only a replica that servers count as *unknown* is filled: one that is older than its metadata, never
took part, or is not assigned yet. One whose disk is intact is a witness to what was committed;
cutting it could lose transactions, so it is left to the servers, who bring it up to date
themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.filling import fill, switch_on
from waltz.admin.core.replicas import (
    HeldPartition,
    Observed,
    PartitionView,
    Scope,
    absence,
    ailment,
    first_ailment,
    opens,
)
from waltz.admin.core.steps import Done, Hold, Next, Refuse, SwitchOff, Wait
from waltz.metadata.core.formats import NO_SESSION


@dataclass(frozen=True, slots=True)
class ReplicaRecovery:
    """The replica of ``partition`` on ``destination`` shall be whole again.

    ``source`` is the storage to copy from; None: the replica that has got furthest.
    """

    partition: int
    destination: str
    source: str | None = None

    @property
    def scope(self) -> Scope:
        """The partition, and where it is copied from and to."""
        named = {self.destination} if self.source is None else {self.destination, self.source}
        return Scope((self.partition,), frozenset(named))

    def next_step(self, observed: Observed) -> Next:
        """Return what is next; from any state in which an earlier attempt was broken off, too."""
        return _next_step(observed, self)


def _next_step(observed: Observed, order: ReplicaRecovery) -> Next:
    view = observed.partitions.get(order.partition)
    if view is None:
        return Refuse(f"partition {order.partition} does not exist")
    if order.source == order.destination:
        return Refuse(f"storage {order.destination} cannot be filled from itself")
    if order.destination not in observed.groups:
        return Refuse(f"storage {order.destination} is in no group of the cluster")
    if problem := observed.storage_problem(order.destination):
        return Wait(f"storage {order.destination} does not answer: {problem}")
    held = observed.held(order.destination, view.partition)
    if held is None:
        return Hold(order.destination, view.partition)
    if order.destination in view.replicas:
        return _of_an_assigned_one(observed, view, order, held)
    if order.destination in view.last:
        return Wait(f"the last change of the replicas of partition {view.partition} is not through")
    return (
        fill(observed, view, order.destination, source=order.source)
        or switch_on(observed, view, order.destination)
        or Done()
    )


def is_witness(view: PartitionView, storage: str, held: HeldPartition) -> bool:
    """Whether a vote may count what the replica on ``storage`` holds: its disk forgot nothing."""
    state = view.metadata.replicas.get(storage)
    if state is None or state.session_id == NO_SESSION:
        return False
    return held.session_id >= state.session_id


def _of_an_assigned_one(
    observed: Observed, view: PartitionView, order: ReplicaRecovery, held: HeldPartition
) -> Next:
    storage = order.destination
    if ailment(observed, view, storage) is None:
        problem = first_ailment(observed, view, (storage,))
        return Done() if problem is None else Wait(problem)
    step = None
    if not is_witness(view, storage, held):
        step = fill(observed, view, storage, source=order.source)
    if isinstance(step, SwitchOff) and not _opens_without(observed, view, storage):
        return Wait(f"partition {view.partition} has no quorum without storage {storage}")
    if step := step or switch_on(observed, view, storage):
        return step
    return Wait(first_ailment(observed, view, (storage,)) or "")


def _opens_without(observed: Observed, view: PartitionView, storage: str) -> bool:
    others = view.replicas - {storage}
    here = frozenset(other for other in others if absence(observed, view, other) is None)
    return opens(here, view.replicas, view.last)
