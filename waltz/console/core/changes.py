"""Find what happened to a cluster between two samples: the entries of the timeline. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from waltz.admin.core.replicas import quorum
from waltz.admin.core.sample import Sample, StorageSample


class ChangeKind(StrEnum):
    """What kind of change it is."""

    RECOVERY = "recovery"
    SERVER = "server"
    STORAGE = "storage"
    REPLICA = "replica"
    ASSIGNMENT = "assignment"
    DAMAGE = "damage"


@dataclass(frozen=True, slots=True)
class Change:
    """One change; ``bad`` is whether it made the cluster worse."""

    kind: ChangeKind
    text: str
    bad: bool = False


def changes(before: Sample, now: Sample) -> list[Change]:
    """Return what changed from one sample to the next. What is unknown in one is no change."""
    return [
        *_servers(before, now),
        *_storages(before, now),
        *(
            change
            for partition in range(now.num_partitions)
            for change in _partition(before, now, partition)
        ),
    ]


def _servers(before: Sample, now: Sample) -> Iterator[Change]:
    old, new = before.membership.servers(), now.membership.servers()
    for server in sorted(old.keys() - new.keys()):
        yield Change(ChangeKind.SERVER, f"Server {server} left the cluster", bad=True)
    for server in sorted(new.keys() - old.keys()):
        place = f"{new[server].host}:{new[server].port}"
        yield Change(ChangeKind.SERVER, f"Server {server} joined the cluster at {place}")
    for server in sorted(old.keys() & new.keys()):
        change = _answering(
            ChangeKind.SERVER,
            f"Server {server}",
            before.servers[server].problem,
            now.servers[server].problem,
        )
        if change is not None:
            yield change


def _storages(before: Sample, now: Sample) -> Iterator[Change]:
    for storage in sorted(before.storages.keys() - now.storages.keys()):
        yield Change(ChangeKind.STORAGE, f"Storage {storage} was removed from the cluster")
    for storage in sorted(now.storages.keys() - before.storages.keys()):
        yield Change(ChangeKind.STORAGE, f"Storage {storage} was added to the cluster")
    for storage in sorted(before.storages.keys() & now.storages.keys()):
        old, new = before.storages[storage], now.storages[storage]
        change = _answering(ChangeKind.STORAGE, f"Storage {storage}", old.problem, new.problem)
        if change is not None:
            yield change
        else:
            yield from _damage(storage, old, new)


def _answering(kind: ChangeKind, name: str, old: str | None, new: str | None) -> Change | None:
    """Return the change of a process that stopped answering, or answers again; None if neither."""
    if old is None and new is not None:
        return Change(kind, f"{name} stopped answering: {new}", bad=True)
    if old is not None and new is None:
        return Change(kind, f"{name} answers again")
    return None


def _damage(storage: str, old: StorageSample, new: StorageSample) -> Iterator[Change]:
    if old.problem is not None or new.problem is not None:
        return
    first, last = (sum(each.count for each in report.damaged) for report in (old, new))
    if last > first:
        text = f"Storage {storage} found {last - first} damaged records, {last} in all"
        yield Change(ChangeKind.DAMAGE, text, bad=True)
    elif last < first:
        text = f"{first - last} damaged records of storage {storage} were repaired, {last} are left"
        yield Change(ChangeKind.DAMAGE, text)


def _partition(before: Sample, now: Sample, partition: int) -> Iterator[Change]:
    owner, generation = now.owner(partition)
    if (owner, generation) != before.owner(partition):
        if owner is None:
            text = f"Partition {partition} lost its server"
            yield Change(ChangeKind.SERVER, text, bad=True)
        else:
            text = f"Partition {partition} moved to server {owner}, generation {generation}"
            yield Change(ChangeKind.SERVER, text)
    yield from _assignment(before, now, partition)
    session = now.session(partition)
    assigned = now.maps.assignments.storages_of(partition)
    took_part, take_part = (
        sum(s.in_session(partition, each) for each in assigned) for s in (before, now)
    )
    began = session != before.session(partition)
    needed = quorum(len(assigned))
    if began and session is not None:
        text = f"Partition {partition} began a recovery: store session {session}"
        yield Change(ChangeKind.RECOVERY, text)
    # A recovery has ended if a quorum takes part in a new session, or did not take part before.
    if take_part >= needed and (began or took_part < needed):
        part = f"{take_part} of {len(assigned)} replicas take part"
        text = f"Partition {partition} has recovered in session {session}: {part}"
        yield Change(ChangeKind.RECOVERY, text)
        return
    if began:
        # The recovery is under way: that replicas are not in the new session yet is no change.
        return
    for storage in assigned:
        was_in, is_in = (s.in_session(partition, storage) for s in (before, now))
        if is_in and not was_in:
            text = f"The replica of partition {partition} on {storage} joined session {session}"
            yield Change(ChangeKind.REPLICA, text)
        elif was_in and not is_in:
            text = f"The replica of partition {partition} on {storage} left session {session}"
            yield Change(ChangeKind.REPLICA, text, bad=True)


def _assignment(before: Sample, now: Sample, partition: int) -> Iterator[Change]:
    old, new = (set(s.maps.assignments.storages_of(partition)) for s in (before, now))
    for storage in sorted(new - old):
        text = f"Partition {partition} was assigned to storage {storage}"
        yield Change(ChangeKind.ASSIGNMENT, text)
    for storage in sorted(old - new):
        text = f"Partition {partition} was unassigned from storage {storage}"
        yield Change(ChangeKind.ASSIGNMENT, text)
