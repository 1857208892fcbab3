"""Find the work under way on replicas, with its progress: catching up, moves, repairs. Pure.

Neither ZooKeeper nor a process records such work, so it is derived from the state of the replicas.
Therefore the work of a command that was interrupted is found, too: as work without progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from waltz.admin.core.replica_states import PartitionState, PartitionStatus, ReplicaState
from waltz.admin.core.sample import Sample


class WorkKind(StrEnum):
    """What kind of work it is."""

    CATCH_UP = "catch-up"
    COPY = "copy"
    MOVE = "move"
    REPAIR = "repair"


@dataclass(frozen=True, slots=True)
class Work:
    """Work on the replica of ``partition`` on ``storage``.

    ``done`` of ``total`` transactions or records, as ``unit`` says, are complete. Both are None if
    they are unknown.
    """

    kind: WorkKind
    partition: int
    storage: str
    text: str
    done: int | None
    total: int | None
    unit: str = "transactions"


_CATCH_UP_TEXTS = {
    ReplicaState.FILLING: "The server fills the replica, which then joins the session.",
    ReplicaState.OUT: "The replica waits for the server to let it join the session.",
    ReplicaState.OFF: "The replica is switched off; a copy fills it, or it waits.",
}
"""The text for each state of a replica that is assigned but not in the session."""

DamagePeaks = Mapping[tuple[str, int], int]
"""For each storage and partition: the most damaged records since they were last all repaired."""


def work_under_way(
    now: Sample, partitions: Sequence[PartitionStatus], peaks: DamagePeaks
) -> tuple[Work, ...]:
    """Return all work under way, in the order of the partitions."""
    work: list[Work] = []
    for status in partitions:
        work += _catching_up(status)
        work += _unassigned(now, status)
        work += _both_assigned(now, status)
        work += _repairs(status, peaks)
    return tuple(work)


def _catching_up(status: PartitionStatus) -> Iterator[Work]:
    """Yield the work on replicas that are assigned to the partition but not in its session."""
    if status.state not in (PartitionState.OPEN, PartitionState.DEGRADED):
        return  # Without a session there is nothing to catch up with.
    for replica in status.replicas:
        text = _CATCH_UP_TEXTS.get(replica.state)
        if text is not None:
            done, total = _progress(replica.last_id, status.high_water_mark)
            yield Work(WorkKind.CATCH_UP, status.partition, replica.storage, text, done, total)


def _unassigned(now: Sample, status: PartitionStatus) -> Iterator[Work]:
    """Yield the work on replicas that a storage has, but that ZooKeeper does not assign to it."""
    assigned = {replica.storage for replica in status.replicas}
    groups = now.maps.groups.groups
    for storage, report in sorted(now.storages.items()):
        held = report.held.get(status.partition)
        if held is None or storage in assigned:
            continue
        done, total = _progress(held.max_transaction_id, status.high_water_mark)
        # Each group has one replica of a partition, so a second one in the group is part of a move.
        same_group = [each for each in sorted(assigned) if groups.get(each) == groups.get(storage)]
        if same_group:
            kind = WorkKind.MOVE
            holder = same_group[0]
            text = f"A move between {holder} and {storage}, whose replica is not assigned."
        else:
            kind = WorkKind.COPY
            text = "The storage holds a replica that is not assigned: it is new, or to be dropped."
        yield Work(kind, status.partition, storage, text, done, total)


def _both_assigned(now: Sample, status: PartitionStatus) -> Iterator[Work]:
    """Yield the moves whose source and destination are both assigned at present."""
    groups = now.maps.groups.groups
    by_group: dict[int, list[str]] = {}
    for replica in status.replicas:
        if replica.storage in groups:
            by_group.setdefault(groups[replica.storage], []).append(replica.storage)
    for group, storages in sorted(by_group.items()):
        if len(storages) > 1:
            names = " and ".join(storages)
            text = f"A move in group {group}: {names} both hold the partition until one leaves."
            # Which of the storages is the destination is unknown, and so is the progress.
            yield Work(WorkKind.MOVE, status.partition, storages[-1], text, done=None, total=None)


def _repairs(status: PartitionStatus, peaks: DamagePeaks) -> Iterator[Work]:
    """Yield the repairs of damaged records."""
    for replica in status.replicas:
        damaged = replica.damaged_records
        if not damaged:
            continue
        total = max(damaged, peaks.get((replica.storage, status.partition), 0))
        repaired = total - damaged
        if repaired:
            text = "The damaged records are being replaced by those of a healthy replica."
        else:
            text = "The damaged records wait for their repair: the storage's log says why"
        yield Work(
            WorkKind.REPAIR, status.partition, replica.storage, text, repaired, total, "records"
        )


def _progress(last_id: int | None, mark: int | None) -> tuple[int | None, int | None]:
    """Return how many transactions a replica has, and how many it must have.

    ``last_id`` is its last transaction, ``mark`` the high-water mark of the partition. If one of
    them is unknown, both results are None.
    """
    if last_id is None or mark is None:
        return None, None
    # Ids start at 0, so id + 1 is the number of transactions up to an id.
    return min(last_id, mark) + 1, mark + 1
