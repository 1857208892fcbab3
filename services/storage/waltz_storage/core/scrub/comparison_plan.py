"""Pure. Which partitions a storage compares with their other replicas, and how far.

Checksums of single records find damage on disk. They do not find replicas whose records are valid
but different, so a storage also compares checksums of ranges with its peers.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from waltz.admin.core.comparison import SLICE_IDS, Comparison
from waltz.admin.core.replicas import ReplicaObservation

_SLICE_BYTES = 4 << 20
"""About how many bytes of records the range of one request has."""


def due_partitions(assigned: Mapping[int, Set[str]], passes: int) -> tuple[int, ...]:
    """Return the partitions that a storage compares after a pass of its scrubber.

    ``passes`` is the number of the pass, plus the offset of this storage (`PeerComparison`).
    ``assigned`` maps each partition that the storage could compare to the storages of its replicas.
    A storage compares a partition with n replicas after every n-th pass. So the n storages together
    make about one comparison per pass, although no storage knows the passes of the others. The
    number of the partition is added to ``passes``, so that not all partitions are due after the
    same pass. A partition with one replica is never compared.
    """
    return tuple(
        partition
        for partition, storages in sorted(assigned.items())
        if len(storages) > 1 and (partition + passes) % len(storages) == 0
    )


def replica_comparison(
    observation: ReplicaObservation, partition: int, slice_ids: int, only_id: int | None = None
) -> Comparison:
    """Return the comparison of a partition's replicas, each up to its local low-water mark.

    Only replicas in the present store session are compared: when the session began, they were made
    equal up to their marks. A replica outside of it may have the mark of a session that never
    opened, and a recovery may be about to remove some of its records. ``slice_ids`` is how many
    transactions one request compares. With ``only_id``, only this transaction is compared.
    """
    view = observation.partitions[partition]
    # The last id to compare on each storage, or why its replica is not compared.
    replicas: dict[str, int | str] = {}
    for storage in view.replicas:
        held = observation.held(storage, partition)
        problem = observation.storage_problem(storage)
        if problem:
            replicas[storage] = problem
        elif held is None:
            replicas[storage] = "it does not hold the partition"
        elif not view.in_session(storage, held):
            replicas[storage] = "it takes no part in the present store session"
        else:
            replicas[storage] = held.local_low_water_mark
    last_id = max((end for end in replicas.values() if isinstance(end, int)), default=-1)
    if only_id is not None:
        # If no replica is compared up to ``only_id``, the range is empty.
        return Comparison(replicas, min(only_id, last_id), first_id=only_id)
    return Comparison(replicas, last_id, slice_ids=slice_ids)


def slice_size(log_bytes: int, log_records: int) -> int:
    """Return how many records of a log one request compares: about `_SLICE_BYTES` of them.

    ``log_bytes`` is the size of the log, and ``log_records`` how many records it has. The result is
    between 1 and `SLICE_IDS`.
    """
    mean_bytes = max(1, log_bytes // max(1, log_records))
    return max(1, min(SLICE_IDS, _SLICE_BYTES // mean_bytes))
