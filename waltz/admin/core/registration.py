"""Orders: add a storage that has no partitions to the cluster, or remove such a storage. Pure.

Both orders change only the storage maps, the three znodes about storages
(`waltz.metadata.core.storage_maps`).
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.replicas import ObservationScope, ReplicaObservation
from waltz.admin.core.steps import Done, Next, Order, RegisterStorage, UnregisterStorage
from waltz.metadata.core.storage_maps import (
    ChangeRefused,
    add_storage_node,
    remove_storage_node,
)


@dataclass(frozen=True, slots=True)
class Registration(Order):
    """Add ``storage`` to the storage maps, in ``group``, with no partitions."""

    storage: str
    group: int
    admin_port: int

    @property
    def scope(self) -> ObservationScope:
        """The scope: the storage maps only."""
        return ObservationScope(())

    def refusal(self, observation: ReplicaObservation) -> str | None:
        """Return why the storage maps forbid the order, None if they allow it."""
        try:
            add_storage_node(observation.maps, self.storage, self.group, self.admin_port)
        except ChangeRefused as problem:
            return str(problem)
        return None

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step."""
        if self.storage in observation.groups:
            return Done()
        return RegisterStorage(self.storage, self.group, self.admin_port)


@dataclass(frozen=True, slots=True)
class Deregistration(Order):
    """Remove ``storage``, which must have no partitions, from the storage maps."""

    storage: str

    @property
    def scope(self) -> ObservationScope:
        """The scope: the storage maps only."""
        return ObservationScope(())

    def refusal(self, observation: ReplicaObservation) -> str | None:
        """Return why the storage maps forbid the order, None if they allow it."""
        try:
            remove_storage_node(observation.maps, self.storage)
        except ChangeRefused as problem:
            return str(problem)
        return None

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step. The order is done when the storage is in none of the three maps."""
        maps = observation.maps
        known = {*maps.groups.groups, *maps.connections.admin_ports, *maps.assignments.partitions}
        return UnregisterStorage(self.storage) if self.storage in known else Done()
