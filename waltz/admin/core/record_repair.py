"""Order: repair the damaged records of one replica from its peers, while it is in use. Pure.

Only records up to the local low-water marks (`HeldPartition` in `core.replicas`) of both replicas
are repaired. These records are committed, so both replicas must have the same ones. Records above
the marks can be repaired after the next store session has begun, because it raises the marks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from waltz.admin.core.replicas import (
    ObservationScope,
    PartitionView,
    ReplicaObservation,
    unhealthy_reason,
)
from waltz.admin.core.steps import (
    Done,
    Next,
    Order,
    Refuse,
    RepairRecords,
    Wait,
    records_text,
)
from waltz.protocol.damaged_ranges import DamagedRange


@dataclass(frozen=True, slots=True)
class RepairSource:
    """A storage from which records up to ``last_id`` can be repaired."""

    storage: str
    last_id: int


@dataclass(frozen=True, slots=True)
class RecordRepair(Order):
    """Repair the records of ``partition`` that the storage ``destination`` found damaged.

    ``source`` is the storage to take the records from. If it is None, each damaged range is taken
    from the healthy replica that has the longest undamaged part from the beginning of the range on.
    """

    partition: int
    destination: str
    source: str | None = None

    @property
    def scope(self) -> ObservationScope:
        """The scope: the partition, the source and the destination, with their damaged records."""
        named = {self.destination} if self.source is None else {self.destination, self.source}
        return ObservationScope((self.partition,), frozenset(named), damage=True)

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""
        view = observation.partitions.get(self.partition)
        if view is None:
            return Refuse(f"partition {self.partition} does not exist")
        if self.source == self.destination:
            return Refuse(f"storage {self.destination} cannot be repaired from itself")
        if self.destination not in observation.groups:
            return Refuse(f"storage {self.destination} is in no group of the cluster")
        if problem := observation.storage_problem(self.destination):
            return Wait(f"storage {self.destination} does not answer: {problem}")
        held = observation.held(self.destination, self.partition)
        damaged = observation.damaged(self.destination, self.partition)
        if held is None or not damaged:
            return Done()
        local_mark = held.local_low_water_mark
        repairable = [each for each in damaged if each.first_id <= local_mark]
        if not repairable:
            return self._refuse_newer_records(damaged[0], local_mark)
        without_source: list[str] = []
        for damaged_range in repairable:
            last_id = min(damaged_range.last_id, local_mark)
            source = self._best_source(observation, view, damaged_range.first_id, last_id)
            # If the source has only the beginning of the range, the rest stays damaged, and the
            # next observation shows it.
            if source is not None:
                return RepairRecords(
                    source.storage,
                    self.destination,
                    self.partition,
                    damaged_range.first_id,
                    source.last_id,
                )
            without_source.append(records_text(damaged_range.first_id, last_id))
        return Wait(
            f"partition {self.partition} has no healthy replica from which "
            f"{', '.join(without_source)} at storage {self.destination} can be repaired"
        )

    def _refuse_newer_records(self, damaged: DamagedRange, local_mark: int) -> Refuse:
        """Refuse the order, because all damaged records are above the local low-water mark."""
        records = records_text(damaged.first_id, damaged.last_id)
        return Refuse(
            f"{records} of partition {self.partition} at storage {self.destination} cannot be "
            f"repaired yet: the local low-water mark is {local_mark}; run the same command again "
            "when a server has begun the next store session"
        )

    def _best_source(
        self, observation: ReplicaObservation, view: PartitionView, first_id: int, last_id: int
    ) -> RepairSource | None:
        """Return the source that `repair_source` chooses among the healthy replicas, if any.

        If the order names a source, no other replica is considered.
        """
        storages = sorted(view.replicas) if self.source is None else [self.source]
        healthy = (
            storage
            for storage in storages
            if storage != self.destination and not unhealthy_reason(observation, view, storage)
        )
        return repair_source(observation, view.partition, healthy, first_id, last_id)


def repair_source(
    observation: ReplicaObservation,
    partition: int,
    storages: Iterable[str],
    first_id: int,
    last_id: int,
) -> RepairSource | None:
    """Return the storage that has the most undamaged records from ``first_id`` on without a gap.

    Each of ``storages`` must hold a replica that takes part in the present store session. The
    records after a damaged one do not count. Their source cannot repair the damaged one, so it
    stays damaged at the destination, which refuses records that directly follow a damaged record.
    Return None if no storage has the record ``first_id`` undamaged.
    """
    best: RepairSource | None = None
    for storage in storages:
        held = observation.held(storage, partition)
        assert held is not None, "a replica of the session is held"
        damaged = observation.damaged(storage, partition)
        end = min(
            last_id,
            held.local_low_water_mark,
            *(each.first_id - 1 for each in damaged if each.last_id >= first_id),
        )
        if end >= first_id and (best is None or end > best.last_id):
            best = RepairSource(storage, end)
    return best
