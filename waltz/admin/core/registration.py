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
    StorageMaps,
    add_storage_node,
    remove_storage_node,
)


@dataclass(frozen=True, slots=True)
class Registration(Order):
    """Add ``storage`` to the storage maps, in ``group``, with no partitions.

    The maps are three znodes, written one after the other. A storage that only some of them have,
    because adding or removing it was interrupted, is removed from these and then added to all.
    """

    storage: str
    group: int
    admin_port: int

    @property
    def scope(self) -> ObservationScope:
        """The scope: the storage maps only."""
        return ObservationScope(())

    def refusal(self, observation: ReplicaObservation) -> str | None:
        """Return why the storage maps forbid the order, None if they allow it."""
        maps = observation.maps
        try:
            if _is_half_known(maps, self.storage):
                maps = remove_storage_node(maps, self.storage)
            add_storage_node(maps, self.storage, self.group, self.admin_port)
        except ChangeRefused as problem:
            return str(problem)
        return None

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""
        if _is_half_known(observation.maps, self.storage):
            return UnregisterStorage(self.storage)
        if observation.maps.num_maps_with(self.storage):
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
        is_known = observation.maps.num_maps_with(self.storage) > 0
        return UnregisterStorage(self.storage) if is_known else Done()


def _is_half_known(maps: StorageMaps, storage: str) -> bool:
    """Return whether only some of the three maps have ``storage``."""
    return maps.num_maps_with(storage) in (1, 2)
