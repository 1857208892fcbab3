"""Find what happened to a cluster between two samples: the entries of the timeline. Pure.

A sample (`waltz.admin.core.sample`) has what ZooKeeper, servers and storages report at one moment.
A server opens a *store session* on the replicas of its partition (docs/concepts.md). The session
begins with a recovery. The replicas that take part in the session are its *members*.
"""

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
    """One change, as a sentence ``text``; ``bad`` says whether it made the cluster worse."""

    kind: ChangeKind
    text: str
    bad: bool = False


def changes(before: Sample, now: Sample) -> list[Change]:
    """Return what changed between two samples, which must have the same number of partitions.

    A value that is unknown in one of the samples counts as unchanged.
    """
    entries = [*_servers(before, now), *_storages(before, now)]
    for partition in range(now.num_partitions):
        entries += _partition(before, now, partition)
    return entries


def _servers(before: Sample, now: Sample) -> Iterator[Change]:
    """Yield which servers left, joined, stopped answering, or answer again."""
    old, new = before.membership.servers(), now.membership.servers()
    for server in sorted(old.keys() - new.keys()):
        yield Change(ChangeKind.SERVER, f"Server {server} left the cluster", bad=True)
    for server in sorted(new.keys() - old.keys()):
        address = new[server].address
        yield Change(ChangeKind.SERVER, f"Server {server} joined the cluster at {address}")
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
    """Yield which storages were removed or added, stopped answering, or answer again.

    For each storage that answered both times, yield the change of its damaged records.
    """
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


def _answering(
    kind: ChangeKind, name: str, old_problem: str | None, new_problem: str | None
) -> Change | None:
    """Return the change of a process that stopped answering, or answers again; None if neither.

    Each problem says why the process did not answer in a sample, and is None if it answered.
    """
    if old_problem is None and new_problem is not None:
        return Change(kind, f"{name} stopped answering: {new_problem}", bad=True)
    if old_problem is not None and new_problem is None:
        return Change(kind, f"{name} answers again")
    return None


def _damage(storage: str, old: StorageSample, new: StorageSample) -> Iterator[Change]:
    """Yield the change of a storage's number of damaged records, if both samples know it."""
    if old.problem is not None or new.problem is not None:
        return
    old_count = sum(each.count for each in old.damaged)
    count = sum(each.count for each in new.damaged)
    if count > old_count:
        text = f"Storage {storage} found {count - old_count} damaged records, {count} in all"
        yield Change(ChangeKind.DAMAGE, text, bad=True)
    elif count < old_count:
        repaired = old_count - count
        text = f"{repaired} damaged records of storage {storage} were repaired, {count} are left"
        yield Change(ChangeKind.DAMAGE, text)


def _partition(before: Sample, now: Sample, partition: int) -> Iterator[Change]:
    """Yield the changes of a partition: of its server, its storages, and its session."""
    yield from _owner(before, now, partition)
    yield from _assignment(before, now, partition)
    yield from _session(before, now, partition)


def _owner(before: Sample, now: Sample, partition: int) -> Iterator[Change]:
    """Yield the change of the server of a partition, if it changed."""
    owner, generation = now.owner(partition)
    if (owner, generation) != before.owner(partition):
        if owner is None:
            text = f"Partition {partition} lost its server"
            yield Change(ChangeKind.SERVER, text, bad=True)
        else:
            text = f"Partition {partition} moved to server {owner}, generation {generation}"
            yield Change(ChangeKind.SERVER, text)


def _assignment(before: Sample, now: Sample, partition: int) -> Iterator[Change]:
    """Yield the storages that a partition was assigned to or taken from."""
    old = set(before.maps.assignments.storages_of(partition))
    new = set(now.maps.assignments.storages_of(partition))
    for storage in sorted(new - old):
        text = f"Partition {partition} was assigned to storage {storage}"
        yield Change(ChangeKind.ASSIGNMENT, text)
    for storage in sorted(old - new):
        text = f"Partition {partition} was unassigned from storage {storage}"
        yield Change(ChangeKind.ASSIGNMENT, text)


def _session(before: Sample, now: Sample, partition: int) -> Iterator[Change]:
    """Yield the beginning and the end of a recovery.

    If there is none, yield the replicas that have joined or left the session.
    """
    session = now.session(partition)
    assigned = now.maps.assignments.storages_of(partition)
    members_before = {each for each in assigned if before.in_session(partition, each)}
    members = {each for each in assigned if now.in_session(partition, each)}
    session_changed = session != before.session(partition)
    needed = quorum(len(assigned))
    if session_changed and session is not None:
        text = f"Partition {partition} began a recovery: store session {session}"
        yield Change(ChangeKind.RECOVERY, text)
    # A recovery has ended if a quorum takes part now, and the session is new or had no quorum
    # before.
    if len(members) >= needed and (session_changed or len(members_before) < needed):
        share = f"{len(members)} of {len(assigned)} replicas take part"
        text = f"Partition {partition} has recovered in session {session}: {share}"
        yield Change(ChangeKind.RECOVERY, text)
        return
    if session_changed:
        # The recovery is under way. Replicas that are not in the new session yet did not leave it.
        return
    for storage in assigned:
        replica = f"The replica of partition {partition} on {storage}"
        if storage in members - members_before:
            yield Change(ChangeKind.REPLICA, f"{replica} joined session {session}")
        elif storage in members_before - members:
            yield Change(ChangeKind.REPLICA, f"{replica} left session {session}", bad=True)
