"""Order: copy a switched-off replica from another storage, without a server. Pure.

The copy ends where the source's present store session began, because all transactions before that
point are committed. Servers copy the later ones when the replica is switched on. A destination that
already reaches that point is not changed: its transactions after that point may be committed, and
only a server's recovery can decide whether they are. (Waltz 0.13.2 cuts them off.)
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.replicas import ObservationScope, ReplicaObservation
from waltz.admin.core.steps import CopyReplica, Done, Next, Order, Refuse, Wait


@dataclass(frozen=True, slots=True)
class OfflineFill(Order):
    """Copy ``partition`` from ``source`` to ``destination``, up to the source's session start."""

    partition: int
    source: str
    destination: str

    @property
    def scope(self) -> ObservationScope:
        """The scope: both storages."""
        return ObservationScope((), frozenset({self.source, self.destination}))

    def refusal(self, observation: ReplicaObservation) -> str | None:
        """Return an error if one of the storages is not in the cluster, otherwise None."""
        for storage in (self.source, self.destination):
            if error := observation.unknown_storage(storage):
                return error
        return None

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""
        for storage in (self.source, self.destination):
            if problem := observation.storage_problem(storage):
                return Wait(f"storage {storage} does not answer: {problem}")
        partition, destination = self.partition, self.destination
        held = observation.held(destination, partition)
        if held is None:
            return Refuse(
                f"the destination does not hold partition {partition}; create it with: "
                f"waltz storage assign {destination} {partition} --only storage"
            )
        if held.readable or held.writable:
            return Refuse(
                f"partition {partition} is switched on at the destination, so that servers may "
                "write it; switch it off first with: "
                f"waltz storage availability {destination} {partition} off"
            )
        source_replica = observation.held(self.source, partition)
        if source_replica is None:
            return Refuse(f"the source, storage {self.source}, does not hold partition {partition}")
        # The last id that the destination holds. A destination of Waltz 0.13.2 may not report it.
        # Then its low-water mark shows whether the copy is complete: a copy raises this mark, too.
        last_held = held.max_transaction_id
        if last_held is None:
            last_held = held.low_water_mark
        # The copy ends at the source's local low-water mark: its last id when its session began.
        if last_held >= source_replica.local_low_water_mark:
            return Done()
        return CopyReplica(self.source, destination, partition, overwrite=False)
