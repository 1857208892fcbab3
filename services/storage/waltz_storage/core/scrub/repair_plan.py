"""Pure. Which of the storage's own damaged records to take from which peer.

A *peer* is another storage that has a replica of the same partition. The storage does not know its
own name in ZooKeeper, and needs none here: the observation includes the storage itself, with the
records that it reports as damaged. So the plan never takes these from the storage itself. If a
damaged record is not in that report, because it was found later, its read from the storage itself
fails, and the storage is excluded like a peer that fails.
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

    ``marks`` are the local low-water marks of the storage's own replicas. The mark of a replica is
    its last record when its last store session began; the records up to there are committed. Only
    records up to the marks of both replicas are repaired, because both must have the same ones. The
    ``observation`` must have all partitions in ``damaged``, and all storages to which they are
    assigned. No record is taken from the ``excluded`` storages.
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
        # No mark: the partition was unassigned since the damage was found.
        mark = marks.get(partition, -1)
        for ids in ranges:
            if ids.first_id > mark:
                obstacles.append(
                    f"{_text(partition, ids)}: above the local low-water mark {mark}; they can be "
                    "repaired after the next store session has begun"
                )
                continue
            # If the range goes beyond the mark, the rest is an obstacle of a later plan.
            next_id, last_id = ids.first_id, min(ids.last_id, mark)
            while next_id <= last_id:
                # The replica that has the most of these records without a gap, from the first on.
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
    """Whether ``storage`` can be read and its replica takes part in the present store session."""
    if absence_reason(observation, view, storage) is not None:
        return False
    held = observation.held(storage, view.partition)
    assert held is not None, "a replica that is not absent is held"
    metadata = view.metadata
    return metadata.takes_part(storage) and held.session_id == metadata.session_id


def _text(partition: int, ids: IdRange) -> str:
    return f"{records_text(ids.first_id, ids.last_id)} of partition {partition}"
