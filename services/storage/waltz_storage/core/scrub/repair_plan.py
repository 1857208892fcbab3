"""Pure. Which of the storage's own damaged records to take from which peer.

The storage does not know under which name it is in ZooKeeper. It needs no name here: it reports its
damaged records to itself as to every peer, so it is never a source for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from waltz.admin.core.record_repair import repair_source
from waltz.admin.core.replicas import PartitionView, ReplicaObservation, absence_reason
from waltz.admin.core.steps import records_text
from waltz.protocol.damaged_ranges import DamagedRange
from waltz_storage.core.scrub.findings import IdRange, Ranges


@dataclass(frozen=True, slots=True)
class PeerRepair:
    """Replace the records ``damaged`` by those of the storage ``source``."""

    source: str
    damaged: DamagedRange

    def __str__(self) -> str:
        records = records_text(self.damaged.first_id, self.damaged.last_id)
        return f"{records} of partition {self.damaged.partition} from storage {self.source}"


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The repairs that are possible now, in their order, and why the others are not."""

    repairs: tuple[PeerRepair, ...]
    obstacles: tuple[str, ...]


def plan_repairs(
    damaged: Mapping[int, Ranges],
    marks: Mapping[int, int],
    observation: ReplicaObservation,
    excluded: Set[str] = frozenset(),
) -> RepairPlan:
    """Return how the ``damaged`` ranges of each partition can be repaired.

    ``marks`` are the local low-water marks of the storage's own replicas. Only records up to the
    mark of both replicas are repaired: these are committed, so both must have the same ones. The
    observation has these partitions, and all storages to which they are assigned. The ``excluded``
    storages are no sources.
    """
    repairs: list[PeerRepair] = []
    obstacles: list[str] = []
    for partition, ranges in sorted(damaged.items()):
        view = observation.partitions[partition]
        peers = [
            storage
            for storage in sorted(view.replicas - excluded)
            if _usable(observation, view, storage)
        ]
        mark = marks.get(partition, -1)
        for ids in ranges:
            if ids.first_id > mark:
                obstacles.append(
                    f"{_text(partition, ids)}: above the local low-water mark {mark}; they can be "
                    "repaired after the next store session has begun"
                )
                continue
            next_id, last_id = ids.first_id, min(ids.last_id, mark)
            while next_id <= last_id:
                # The replica that has the most of what is left.
                source = repair_source(observation, partition, peers, next_id, last_id)
                if source is None:
                    left = IdRange(next_id, last_id)
                    obstacles.append(
                        f"{_text(partition, left)}: no other replica that takes part in the store "
                        "session has them undamaged and can be read"
                    )
                    break
                repaired = DamagedRange(partition, next_id, source.last_id)
                repairs.append(PeerRepair(source.storage, repaired))
                next_id = source.last_id + 1
    return RepairPlan(tuple(repairs), tuple(obstacles))


def _usable(observation: ReplicaObservation, view: PartitionView, storage: str) -> bool:
    """Whether the replica on ``storage`` answers and takes part in the present store session."""
    if absence_reason(observation, view, storage) is not None:
        return False
    held = observation.held(storage, view.partition)
    assert held is not None, "a replica that is not absent is held"
    metadata = view.metadata
    return metadata.takes_part(storage) and held.session_id == metadata.session_id


def _text(partition: int, ids: IdRange) -> str:
    return f"{records_text(ids.first_id, ids.last_id)} of partition {partition}"
