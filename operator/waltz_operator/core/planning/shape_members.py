"""The storages of one pool with their partitions, as the plans of moves use them. Pure.

A storage is *drained* if its ordinal is not below ``spec.storages``: its partitions move away. The
other storages are *staying*. A *recorded* move is one that a rebalance by bytes has chosen, and
recorded in the pool before the first move began (`core.rebalance`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from waltz.admin.core.move import Move
from waltz_operator.core.balance import PlannedMove
from waltz_operator.core.desired import address_of, ordinal_of
from waltz_operator.core.names import pod_of_storage
from waltz_operator.core.observed import ClusterPresent
from waltz_operator.core.planning.shape_removal import registered_storages
from waltz_operator.core.planning.znodes import is_registered
from waltz_operator.core.rebalance import Rebalance, open_request
from waltz_operator.core.resources import Disposal, StoragePool
from waltz_operator.core.shape_change import ShapeChange, ShapeChangeKind


@dataclass(frozen=True, slots=True)
class PoolMembers:
    """The registered storages of a pool; ``assigned`` has the partitions of each of them.

    ``staying`` and ``drained`` are in the order of their ordinals. A storage of the spec that is
    registered in another group than the pool's, or with another admin port, is in neither of the
    two: it gets no partitions. But ``assigned`` has the partitions of such a storage, too.
    ``record`` is how far the requests to rebalance the pool are.
    """

    pool: StoragePool
    staying: tuple[str, ...]
    drained: tuple[str, ...]
    assigned: Mapping[str, frozenset[int]]
    record: Rebalance

    @classmethod
    def of(
        cls, pool: StoragePool, present: ClusterPresent, group: int, record: Rebalance
    ) -> PoolMembers:
        """Return the members of ``pool``; only the storages in its ``group`` get partitions."""
        known = registered_storages(pool, present)
        ordinals = {
            storage: ordinal
            for storage in known
            if (ordinal := ordinal_of(pool, storage)) is not None
        }
        ordered = sorted(ordinals, key=lambda storage: ordinals[storage])
        count, port = pool.spec.storages, pool.spec.admin_port
        staying = tuple(
            storage
            for storage in ordered
            if ordinals[storage] < count and is_registered(present.maps, storage, group, port)
        )
        drained = tuple(storage for storage in ordered if ordinals[storage] >= count)
        assigned = {storage: present.replicas.assigned(storage) for storage in ordered}
        return cls(pool, staying, drained, assigned, record)

    @property
    def request(self) -> str:
        """The request for a rebalance that is to be answered, empty without one."""
        return open_request(self.pool, self.record)

    @property
    def is_spread_by_count(self) -> bool:
        """Whether the partitions are spread by their number, and not arranged by their bytes.

        They are arranged by bytes while a request is open, and afterwards as long as the pool has
        the number of storages that the record names.
        """
        return not self.request and self.record.storages != self.pool.spec.storages

    def move(self, partition: int, source: str, destination: str) -> Move:
        """Return the order that moves a partition.

        The source keeps its files only if it is drained and its volume is kept.
        """
        keeps_volume = self.pool.spec.volumes.on_scale_down is Disposal.KEEP
        keeps_files = keeps_volume and source in self.drained
        return Move(partition, source, destination, delete_files=not keeps_files, prove=True)

    def recorded_move(self, planned: PlannedMove) -> Move | None:
        """Return the order for a recorded move; None if one of its storages is not staying."""
        source, destination = (
            address_of(self.pool, ordinal) for ordinal in (planned.source, planned.destination)
        )
        if source not in self.staying or destination not in self.staying:
            return None
        return self.move(planned.partition, source, destination)

    def load_key(self, storage: str) -> tuple[int, int]:
        """Return the sort key of a staying storage: by number of partitions, then by ordinal."""
        return len(self.assigned[storage]), self.staying.index(storage)

    def keep_key(self, partition: int, storage: str) -> tuple[int, int, int]:
        """Return the sort key of a storage with a partition.

        If several storages of the pool have the partition, the one with the lowest key keeps it.
        The destination of a recorded move comes first, because the move would otherwise begin again
        (test_recorded_move_ends_at_its_destination_although_it_has_more_partitions). Then come the
        other staying storages, then the drained ones. A storage that is registered wrongly comes
        last, because neither servers nor the operator may be able to use its replica
        (test_half_done_move_ends_at_the_storage_that_is_registered).
        """
        if storage in self.staying:
            is_recorded_destination = any(
                planned.partition == partition
                and address_of(self.pool, planned.destination) == storage
                for planned in self.record.moves
            )
            rank = -1 if is_recorded_destination else 0
            return rank, *self.load_key(storage)
        if storage in self.drained:
            return 1, 0, 0
        return 2, 0, 0

    def change(self, present: ClusterPresent, what: str, kind: ShapeChangeKind) -> ShapeChange:
        """Return the change of the pool's storages; ``what`` is what happens now, for users."""
        views = present.replicas.partitions.values()
        copies = max((len(view.replicas) for view in views), default=1)
        name = self.pool.metadata.name
        return ShapeChange(kind, name, f"pool {name}: {what}", copies)


def move_text(move: Move) -> str:
    """Return which partition a move takes from which pod to which."""
    source, destination = map(pod_of_storage, (move.source, move.destination))
    return f"partition {move.partition} from {source} to {destination}"
