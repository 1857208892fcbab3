"""Order: make a storage hold exactly the partitions that ZooKeeper assigns to it. Pure.

A storage whose disk was replaced needs this order. Where the order makes the storage drop a
partition, the files stay, because the assignment in ZooKeeper may be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.replicas import ObservationScope, ReplicaObservation
from waltz.admin.core.steps import CreateReplicas, Done, DropReplicas, Next, Order, Wait


@dataclass(frozen=True, slots=True)
class Synchronization(Order):
    """Make ``storage`` hold exactly the partitions that ZooKeeper assigns to it."""

    storage: str

    @property
    def scope(self) -> ObservationScope:
        """The scope: the storage."""
        return ObservationScope((), frozenset({self.storage}))

    def refusal(self, observation: ReplicaObservation) -> str | None:
        """Return an error if the storage is not in the cluster, otherwise None."""
        return observation.unknown_storage(self.storage)

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""
        return next_sync_step(observation, self.storage) or Done()


def next_sync_step(
    observation: ReplicaObservation, storage: str
) -> CreateReplicas | DropReplicas | Wait | None:
    """Return the next step, None once ``storage`` holds exactly its assigned partitions."""
    if problem := observation.storage_problem(storage):
        return Wait(f"storage {storage} does not answer: {problem}")
    assigned = observation.assigned(storage)
    held = observation.storages[storage].held.keys()
    if missing := tuple(sorted(assigned - held)):
        return CreateReplicas(storage, missing)
    if extra := tuple(sorted(held - assigned)):
        return DropReplicas(storage, extra, delete_files=False)
    return None
