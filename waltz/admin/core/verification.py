"""Verify a cluster: check its state against rules that must hold. Pure.

Each partition has seven checks, those of Waltz 0.13.2 (spec/behaviour.md section 16). One differs:
here a quorum is a majority of the partition's replicas. Waltz 0.13.2 computes it from the number of
all storages.

A check that needs the report of a server or a storage fails if this process did not answer. There
are two exceptions for a storage that did not answer: the quorum check counts its replica as not
available, and the check of recovered replicas uses only the metadata. A process that the partition
is not assigned to need not answer: its report could only show that it has the partition
nevertheless.

`verify` comes first; the rules of the checks follow, in the order of the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from waltz.metadata.core.formats import (
    PartitionAssignment,
    PartitionMetadata,
    ReplicaAssignments,
    ServerDescriptor,
)


class Check(Enum):
    """The checks of each partition; the values are their names in Waltz 0.13.2."""

    ONE_SERVER = "PARTITION_ASSIGNMENT_ZK_VALIDITY"
    """ZooKeeper assigns the partition to exactly one server, which is running."""
    SERVER_AGREES = "PARTITION_ASSIGNMENT_ZK_SERVER_CONSISTENCY"
    """This server, and no other, reports that it has the partition."""
    STORAGES_REACHED = "SERVER_STORAGE_CONNECTIVITY"
    """The server reaches each storage to which the partition is assigned."""
    STORAGES_AGREE = "PARTITION_ASSIGNMENT_ZK_STORAGE_CONSISTENCY"
    """These storages, and no others, report that they hold the partition."""
    QUORUM = "PARTITION_QUORUM_STATUS"
    """A quorum of the replicas is switched on."""
    REPLICAS_RECOVERED = "REPLICA_RECOVERY_STATUS"
    """Each replica takes part in the present store session, as ZooKeeper and its storage say."""
    SERVER_HEALTHY = "SERVER_PARTITION_HEALTH_CHECK"
    """The server has an open store session."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The report of one server; ``problem`` is why the server reported nothing.

    ``partitions`` are those that the server has. ``storages`` has, by storage, whether the server
    can reach it. ``health`` has, by partition, whether the server could open a store session.
    """

    partitions: frozenset[int] = frozenset()
    storages: Mapping[str, bool] = field(default_factory=dict)
    health: Mapping[int, bool] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class StorageReport:
    """The report of one storage; ``problem`` is why the storage reported nothing.

    ``partitions`` has the partitions that the storage holds, each with whether it is switched on.
    ``sessions`` has the store session id of each of these partitions.
    """

    partitions: Mapping[int, bool] = field(default_factory=dict)
    sessions: Mapping[int, int] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The input of all checks: the contents of ZooKeeper, and the report of each process.

    Both ``assignment`` and ``replicas`` assign partitions: ``assignment`` to the servers that own
    them, ``replicas`` to the storages that hold them.
    """

    num_partitions: int
    assignment: PartitionAssignment
    members: Mapping[int, ServerDescriptor]
    replicas: ReplicaAssignments
    metadata: Mapping[int, PartitionMetadata]
    servers: Mapping[int, ServerReport]
    storages: Mapping[str, StorageReport]
    _owners: Mapping[int, list[int]] = field(init=False, repr=False, compare=False)
    """The servers of each assigned partition, computed once: many checks need them."""

    def __post_init__(self) -> None:
        owners: dict[int, list[int]] = {}
        for server, owned in self.assignment.servers.items():
            # A set: a server is one owner, even if its list names the partition twice.
            for partition in {each.partition for each in owned}:
                owners.setdefault(partition, []).append(server)
        object.__setattr__(self, "_owners", owners)

    def owners(self, partition: int) -> list[int]:
        """Return the servers that ZooKeeper assigns ``partition`` to; a correct state has one."""
        return self._owners.get(partition, [])


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check of one partition; ``problems`` is empty if it passed."""

    partition: int
    check: Check
    problems: tuple[str, ...] = ()

    @property
    def problem(self) -> str | None:
        """All problems as one text, None if there are none."""
        return "; ".join(self.problems) or None


def verify(facts: ClusterFacts, partition: int | None = None) -> list[Finding]:
    """Return the outcome of every check, of one partition or of all."""
    partitions = range(facts.num_partitions) if partition is None else (partition,)
    return [
        Finding(each, check, tuple(rule(facts, each)))
        for each in partitions
        for check, rule in _RULES.items()
    ]


# Each rule yields the problems that its check finds in one partition. The texts say "it" for the
# partition, because the user sees each text in the row of the partition. A problem is left out if
# it follows from an earlier problem of the same process.


def _one_server(facts: ClusterFacts, partition: int) -> Iterator[str]:
    if not 0 <= partition < facts.num_partitions:
        yield f"the cluster has partitions 0 to {facts.num_partitions - 1} only"
        return
    owners = facts.owners(partition)
    if not owners:
        yield "it is assigned to no server"
    elif len(owners) > 1:
        yield f"it is assigned to servers {', '.join(map(str, owners))}"
    elif owners[0] not in facts.members:
        yield f"it is assigned to server {owners[0]}, which is not running"


def _server_agrees(facts: ClusterFacts, partition: int) -> Iterator[str]:
    yield from _owner_problems(facts, partition)
    owners = facts.owners(partition)
    for server in _answering_owners(facts, partition):
        if partition not in _server_report(facts, server).partitions:
            yield f"it is assigned to server {server}, which does not have it"
    for server, report in facts.servers.items():
        if server not in owners and partition in report.partitions:
            yield f"server {server} has it without an assignment"


def _storages_reached(facts: ClusterFacts, partition: int) -> Iterator[str]:
    yield from _owner_problems(facts, partition)
    for server in _answering_owners(facts, partition):
        reached = _server_report(facts, server).storages
        for storage in facts.replicas.storages_of(partition):
            if not reached.get(storage, False):
                yield f"server {server} does not reach storage {storage}"


def _storages_agree(facts: ClusterFacts, partition: int) -> Iterator[str]:
    assigned = facts.replicas.storages_of(partition)
    if not assigned:
        yield "it is assigned to no storage"
    for storage in assigned:
        not_queried = StorageReport(problem=f"the admin port of storage {storage} is not known")
        report = facts.storages.get(storage, not_queried)
        if report.problem is not None:
            yield report.problem
        elif partition not in report.partitions:
            yield f"it is assigned to storage {storage}, which does not hold it"
    for storage, report in facts.storages.items():
        if storage not in assigned and partition in report.partitions:
            yield f"storage {storage} holds it without an assignment"


def _quorum(facts: ClusterFacts, partition: int) -> Iterator[str]:
    assigned = facts.replicas.storages_of(partition)
    if not assigned:
        yield "it has no replicas"
        return
    available = sum(
        facts.storages.get(storage, StorageReport()).partitions.get(partition, False)
        for storage in assigned
    )
    quorum = len(assigned) // 2 + 1
    if available < quorum:
        yield f"{available} of {len(assigned)} replicas are available, and {quorum} are needed"


def _replicas_recovered(facts: ClusterFacts, partition: int) -> Iterator[str]:
    metadata = facts.metadata.get(partition)
    if metadata is None:
        yield "no server has ever opened it"
        return
    for storage in facts.replicas.storages_of(partition):
        state = metadata.replicas.get(storage)
        if state is None or state.session_id < 0:  # A new replica has the session -1.
            yield f"the replica on {storage} has not recovered yet"
        elif not metadata.takes_part(storage):
            # The server writes the current session into the state of a replica before it is filled,
            # but the replica takes part only after that (spec/zookeeper.md section 6).
            if state.session_id == metadata.session_id:
                yield f"the replica on {storage} is being filled in session {metadata.session_id}"
            else:
                yield (
                    f"the replica on {storage} took part in session {state.session_id}, but not in "
                    f"the current one, {metadata.session_id}"
                )
        elif problem := _session_mismatch(facts, partition, storage, metadata.session_id):
            yield problem
    if not facts.replicas.storages_of(partition):
        yield "it has no replicas"


def _session_mismatch(
    facts: ClusterFacts, partition: int, storage: str, session_id: int
) -> str | None:
    """Return a problem if ``storage`` reports another session than ``session_id``, else None.

    The server notices such a difference only at its next write to the replica, so this check may
    find it earlier.
    """
    report = facts.storages.get(storage, StorageReport())
    if partition not in report.partitions:
        # The storage did not answer, or does not hold the partition: other checks report both.
        return None
    reported = report.sessions.get(partition)
    if reported == session_id:
        return None
    session = "no session" if reported is None or reported < 0 else f"session {reported}"
    return f"the replica on {storage} reports that it is in {session}, not in {session_id}"


def _server_healthy(facts: ClusterFacts, partition: int) -> Iterator[str]:
    yield from _owner_problems(facts, partition)
    for server in _answering_owners(facts, partition):
        if not _server_report(facts, server).health.get(partition, False):
            yield f"server {server} could not open a store session"


def _owner_problems(facts: ClusterFacts, partition: int) -> Iterator[str]:
    """Yield a problem if the partition has no server, or for each server that did not answer."""
    owners = facts.owners(partition)
    if not owners:
        yield "it is assigned to no server"
    for server in owners:
        if (problem := _server_report(facts, server).problem) is not None:
            yield problem


def _answering_owners(facts: ClusterFacts, partition: int) -> list[int]:
    """Return the partition's servers that answered: only their reports can be checked."""
    owners = facts.owners(partition)
    return [server for server in owners if _server_report(facts, server).problem is None]


_RULES: Mapping[Check, Callable[[ClusterFacts, int], Iterator[str]]] = {
    Check.ONE_SERVER: _one_server,
    Check.SERVER_AGREES: _server_agrees,
    Check.STORAGES_REACHED: _storages_reached,
    Check.STORAGES_AGREE: _storages_agree,
    Check.QUORUM: _quorum,
    Check.REPLICAS_RECOVERED: _replicas_recovered,
    Check.SERVER_HEALTHY: _server_healthy,
}


def _server_report(facts: ClusterFacts, server: int) -> ServerReport:
    """Return the report of a server; a server without one is not running."""
    return facts.servers.get(server, ServerReport(problem=f"server {server} is not running"))
