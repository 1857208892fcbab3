"""Pure. From which peer the storage takes its own damaged records.

The peers of a replica are the other replicas of its partition. The storage does not know its own
name in ZooKeeper, so it may find itself among the peers. That does no harm: it reports its damaged
records to itself, too, and a peer is no source for the records that it reports as damaged.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from waltz.admin.core.record_repair import repair_source
from waltz.admin.core.replicas import PartitionView, ReplicaObservation, absence_reason
from waltz.admin.core.steps import records_text
from waltz.protocol.damaged_ranges import DamagedRange
from waltz_storage.core.scrub.findings import IdRange


@dataclass(frozen=True, slots=True)
class PeerRepair:
    """Replace the records ``damaged`` by those of the storage ``source``."""

    source: str
    damaged: DamagedRange

    def __str__(self) -> str:
        return f"{records_of(self.damaged)} from storage {self.source}"


def records_of(damaged: DamagedRange) -> str:
    """Return, for example, ``records 4-6 of partition 0``."""
    records = records_text(damaged.first_id, damaged.last_id)
    return f"{records} of partition {damaged.partition}"


def next_repair(
    observation: ReplicaObservation, partition: int, ids: IdRange, without: Set[str]
) -> PeerRepair | None:
    """Return the repair of the first records of ``ids``, from the peer that has the most of them.

    Records up to the local low-water marks of both storages are committed, so they must be the
    same. The caller passes only ``ids`` up to the mark of this storage, and a source gives only
    records up to its own mark. The storages ``without`` are no sources. ``observation`` must
    include the partition, and all storages to which the partition is assigned. Return None if no
    peer that takes part in the present store session has the first record undamaged.
    """
    view = observation.partitions[partition]
    peers = [
        storage
        for storage in sorted(view.replicas - without)
        if _takes_part(observation, view, storage)
    ]
    source = repair_source(observation, partition, peers, ids.first_id, ids.last_id)
    if source is None:
        return None
    return PeerRepair(source.storage, DamagedRange(partition, ids.first_id, source.last_id))


def _takes_part(observation: ReplicaObservation, view: PartitionView, storage: str) -> bool:
    """Whether the replica on ``storage`` answers and takes part in the present store session."""
    if absence_reason(observation, view, storage) is not None:
        return False
    held = observation.held(storage, view.partition)
    assert held is not None, "a replica that is not absent is held"
    return view.in_session(storage, held)
