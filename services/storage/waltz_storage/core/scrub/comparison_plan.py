"""Pure. Which partitions a storage compares with their other replicas, and how far.

Checksums of single records find damage on disk. They do not find replicas whose records are valid
but different, so a storage also compares checksums of ranges with its peers.
"""

from __future__ import annotations

from waltz.admin.core.comparison import SLICE_IDS, Comparison
from waltz.admin.core.replicas import ReplicaObservation

_SLICE_BYTES = 4 << 20
"""About how many bytes of records the range of one request has."""


def due_partitions(observation: ReplicaObservation, passes: int) -> tuple[int, ...]:
    """Return the partitions that a storage compares after its pass number ``passes``.

    Of a partition with three replicas, each storage compares every third pass. So each record is
    compared about once in the time of a pass, although no storage knows the passes of the others.
    A partition with one replica is never compared.
    """
    return tuple(
        partition
        for partition, view in sorted(observation.partitions.items())
        if len(view.replicas) > 1 and (partition + passes) % len(view.replicas) == 0
    )


def replica_comparison(
    observation: ReplicaObservation, partition: int, slice_ids: int
) -> Comparison:
    """Return the comparison of all assigned replicas of a partition, each up to its local mark.

    A replica had its records up to its local low-water mark when its store session began, and they
    were committed then. So two replicas have the same ones for ever, also if the observation is old
    by now. A comparison of later records could find a difference that a recovery is about to
    remove.
    """
    replicas: dict[str, int | str] = {}
    for storage in observation.partitions[partition].replicas:
        held = observation.held(storage, partition)
        if problem := observation.storage_problem(storage):
            replicas[storage] = problem
        elif held is None:
            replicas[storage] = "it does not hold the partition"
        else:
            replicas[storage] = held.local_low_water_mark
    last_id = max((end for end in replicas.values() if isinstance(end, int)), default=-1)
    return Comparison(replicas, last_id, slice_ids=slice_ids)


def slice_size(log_bytes: int, log_records: int) -> int:
    """Return how many records of a log one request compares: about `_SLICE_BYTES`, at least one."""
    mean_bytes = max(1, log_bytes // max(1, log_records))
    return max(1, min(SLICE_IDS, _SLICE_BYTES // mean_bytes))
