"""Judge observed replicas: which are healthy, and which changes keep a quorum. Pure.

An order (`core.steps`) decides one step from one `ReplicaObservation`. After each step the cluster
is observed again.

A *store session* is the exclusive right of one server to write the replicas of a partition. It
begins with a recovery. The recovery decides up to which id the log is committed, and makes a quorum
of the replicas equal up to this id. The metadata of the partition in ZooKeeper name the replicas of
the last session. A new session needs two quorums (spec/behaviour.md section 6):

* a quorum of the assigned replicas, to open the session,
* a quorum of the replicas that the metadata name, to find every committed transaction.

Servers contact only assigned replicas. So a replica that is no longer assigned cannot help to form
the second quorum, although the metadata still name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from waltz.metadata.core.formats import PartitionMetadata
from waltz.metadata.core.storage_maps import StorageMaps
from waltz.protocol.damaged_ranges import DamagedRange

LAG_ALLOWED = 10_000
"""By default, an offline copy may lack this many transactions: servers copy the rest."""


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """The report of a storage on one replica.

    ``session_id`` is the newest store session that has set the low-water mark on the disk, -1 if
    there is none. ``low_water_mark`` is the last committed id of the partition when that session
    began. ``local_low_water_mark`` is the last id that the replica itself had at that time, but at
    most ``low_water_mark``: it is smaller if the replica lagged. ``max_transaction_id`` is the
    replica's last id now, committed or not. ``size_bytes`` is the size of its segment files. A
    field is None if the storage does not report it. ``readable`` and ``writable`` are the two
    switches: whether servers may read and write.
    """

    partition: int
    session_id: int
    low_water_mark: int
    local_low_water_mark: int
    max_transaction_id: int | None
    size_bytes: int | None
    readable: bool
    writable: bool

    @property
    def available(self) -> bool:
        """Whether servers may both read and write the replica."""
        return self.readable and self.writable


@dataclass(frozen=True, slots=True)
class StorageReplicas:
    """The replicas that one storage holds; ``problem`` is why it did not report them.

    ``damaged`` are the records that the storage found damaged, if the scope includes them.
    """

    held: Mapping[int, HeldPartition] = field(default_factory=dict)
    problem: str | None = None
    damaged: tuple[DamagedRange, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition: ``replicas`` are the storages to which ZooKeeper assigns the partition.

    ``server_problem`` is why no server serves the partition, None if a server does. ``unreached``
    are the storages to which the partition's server reports no connection.
    """

    partition: int
    replicas: frozenset[str]
    metadata: PartitionMetadata
    server_problem: str | None = None
    unreached: frozenset[str] = frozenset()

    @property
    def session_replicas(self) -> frozenset[str]:
        """The storages of the last session.

        Each committed transaction is on a quorum of them. So in any quorum of them, at least one
        storage has it.
        """
        return frozenset(self.metadata.replicas)

    def in_session(self, storage: str, held: HeldPartition) -> bool:
        """Whether the replica that ``storage`` reports takes part in the current session.

        The metadata alone do not show this: a disk that was emptied or restored meanwhile reports
        an older session.
        """
        return self.metadata.takes_part(storage) and held.session_id == self.metadata.session_id


@dataclass(frozen=True, slots=True)
class ObservationScope:
    """What an order needs to observe: ``partitions`` (None: all), and ``storages``."""

    partitions: tuple[int, ...] | None
    storages: frozenset[str] = frozenset()
    group: int | None = None
    """The storages of this group are queried, too; None: of no group."""
    query_peers: bool = True
    """Whether the partitions' servers are queried, too, and the storages of the partitions: those
    that ZooKeeper assigns, and those of the last session.

    If not, ``server_problem`` of each `PartitionView` must be ignored: it says that no server is
    assigned."""
    assigned: bool = False
    """Whether the storages that ZooKeeper assigns are queried even without ``query_peers``."""
    without: frozenset[str] = frozenset()
    """The storages that are never queried."""
    damage: bool = False
    """Whether the queried storages also report their damaged records."""


@dataclass(frozen=True, slots=True)
class ReplicaObservation:
    """The storage maps (`StorageMaps`), the partitions of a scope, and its storages' reports.

    With `ObservationScope.query_peers`, the storages are queried twice (`ReplicaObserver.observe`
    says why): ``commit_bounds`` follow from the first reports, ``storages`` has the second ones. A
    replica is *level* if its last id in the second report is at least the bound of its partition.
    For example, if the replicas first report the last ids 90, 100 and 100, the bound is 100.
    """

    maps: StorageMaps
    num_partitions: int
    partitions: Mapping[int, PartitionView]
    storages: Mapping[str, StorageReplicas]
    lag_allowed: int = LAG_ALLOWED
    """How many transactions an offline copy may lack."""
    commit_bounds: Mapping[int, int] = field(default_factory=dict)
    """For each partition, an id at or above every transaction committed before the first reports
    (see the function `commit_bounds`).

    A partition has no bound if no quorum of the session's replicas reported. Then a replica is
    level if it reaches the highest id that a replica of the session reports in ``storages``. Under
    load this condition is stricter than a bound: the log has grown since the first query."""

    @property
    def groups(self) -> Mapping[str, int]:
        """The group of each storage."""
        return self.maps.groups.groups

    def assigned(self, storage: str) -> frozenset[int]:
        """Return the partitions that ZooKeeper assigns to ``storage``."""
        return frozenset(self.maps.assignments.partitions.get(storage, ()))

    def unknown_storage(self, storage: str) -> str | None:
        """Return an error that lists the known storages; None if ``storage`` is in the cluster."""
        ports = self.maps.connections.admin_ports
        if storage in ports:
            return None
        known = ", ".join(sorted(ports)) or "none"
        return f"Storage {storage} is not in the cluster; its storages are: {known}."

    def held(self, storage: str, partition: int) -> HeldPartition | None:
        """Return the replica of ``partition`` that ``storage`` reports, None if it reports none."""
        return self.storages.get(storage, _UNKNOWN).held.get(partition)

    def damaged(self, storage: str, partition: int) -> tuple[DamagedRange, ...]:
        """Return the records of ``partition`` that ``storage`` found damaged, ascending."""
        reported = self.storages.get(storage, _UNKNOWN).damaged
        return tuple(each for each in reported if each.partition == partition)

    def storage_problem(self, storage: str) -> str | None:
        """Return why ``storage`` reported nothing, None if it reported its replicas."""
        return self.storages.get(storage, _UNKNOWN).problem


_UNKNOWN = StorageReplicas(problem="it is not in the cluster")


def quorum(count: int) -> int:
    """Return how many of ``count`` replicas are a quorum."""
    return count // 2 + 1


def session_opens(
    reached: frozenset[str], assigned: frozenset[str], last_session: frozenset[str]
) -> bool:
    """Return whether a store session opens when only the ``reached`` storages answer.

    ``assigned`` are the storages that ZooKeeper assigns the partition to. ``last_session`` are
    those of the last session, none if no session has begun. Without a quorum of ``last_session``, a
    committed transaction could be missing from every replica that answers, and would be lost.
    """
    of_last_session = reached & assigned & last_session
    knows_committed = not last_session or len(of_last_session) >= quorum(len(last_session))
    return knows_committed and len(reached & assigned) >= quorum(len(assigned))


def absence_reason(
    observation: ReplicaObservation, view: PartitionView, storage: str
) -> str | None:
    """Return why ``storage`` cannot take part in a session of a partition, None if it can."""
    if problem := observation.storage_problem(storage):
        return f"storage {storage} does not answer: {problem}"
    held = observation.held(storage, view.partition)
    if held is None:
        return f"storage {storage} does not hold partition {view.partition}"
    if not held.available:
        return f"partition {view.partition} is switched off at storage {storage}"
    if storage in view.unreached:
        return f"storage {storage} is not reached by the server of partition {view.partition}"
    return None


def unhealthy_reason(
    observation: ReplicaObservation, view: PartitionView, storage: str
) -> str | None:
    """Return why a partition's replica on ``storage`` is not healthy, None if it is healthy.

    A healthy replica takes part in the current session and is level (`ReplicaObservation`). If a
    replica that lags counted as healthy, a change could drop another replica that has the
    transactions that this one lacks. A replica whose storage does not report its last id counts as
    level.
    """
    if problem := absence_reason(observation, view, storage):
        return problem
    held = observation.held(storage, view.partition)
    assert held is not None
    if not view.in_session(storage, held):
        return (
            f"the replica of partition {view.partition} on storage {storage} takes no part in "
            f"session {view.metadata.session_id}"
        )
    end = held.max_transaction_id
    needed = observation.commit_bounds.get(view.partition)
    if needed is None:
        needed = max(_session_ends(view, observation.storages), default=-1)
    if end is not None and end < needed:
        return (
            f"the replica of partition {view.partition} on storage {storage} ends at {end}, "
            f"others at {needed}"
        )
    return None


def first_unhealthy_reason(
    observation: ReplicaObservation, view: PartitionView, storages: Iterable[str]
) -> str | None:
    """Return why the partition, or a replica on ``storages``, is not healthy.

    None means that the partition and these replicas are healthy.
    """
    if view.server_problem is not None:
        return view.server_problem
    problems = (unhealthy_reason(observation, view, storage) for storage in sorted(storages))
    return next((problem for problem in problems if problem is not None), None)


def change_obstacle(
    observation: ReplicaObservation, view: PartitionView, wanted: frozenset[str]
) -> str | None:
    """Return why a partition's replicas must not be changed to ``wanted`` now, None if they may.

    The last change must be complete, and every replica that stays must be healthy
    (`unsettled_reason`). The staying replicas alone must form both quorums that the next session
    needs. New replicas do not count for these quorums, because servers have not filled them yet. If
    they counted, one more failure would leave the partition without a quorum
    (``tests/unit/admin/test_operations_plans.py`` checks every change with one failure).
    """
    staying = view.replicas & wanted
    if problem := unsettled_reason(observation, view, staying):
        return problem
    # The last change is complete, so the replicas of the last session are `view.replicas`.
    return quorum_shortage(view, wanted)


def unsettled_reason(
    observation: ReplicaObservation, view: PartitionView, staying: frozenset[str]
) -> str | None:
    """Return why the replicas of a partition must not change now, None if they may.

    The ``staying`` replicas must be healthy, and the last change must be complete: the metadata
    must name the assigned replicas. Until then the next session needs a quorum of the replicas
    before the last change, and a further change could remove some of them.
    """
    if problem := first_unhealthy_reason(observation, view, staying):
        return problem
    if view.session_replicas != view.replicas:
        return f"the last change of the replicas of partition {view.partition} is not complete yet"
    return None


def quorum_shortage(view: PartitionView, wanted: frozenset[str]) -> str | None:
    """Return why no quorum would stay after the change to ``wanted``, None if a quorum would stay.

    All replicas count as healthy here.
    """
    staying = view.replicas & wanted
    if session_opens(staying, wanted, view.replicas):
        return None
    return (
        f"of the replicas of partition {view.partition} only {len(staying)} would stay "
        f"({', '.join(sorted(staying)) or 'none'}), but a quorum of the "
        f"{len(view.replicas)} replicas before the change and of the {len(wanted)} replicas after "
        "it must stay"
    )


def commit_bounds(
    views: Iterable[PartitionView], storages: Mapping[str, StorageReplicas]
) -> dict[int, int]:
    """Return for each partition an id at or above every transaction committed before the reports.

    Every committed transaction is on a quorum of the session's replicas. So if a quorum reports,
    the highest reported id is such an id. A partition without such a quorum is left out.
    """
    bounds = {}
    for view in views:
        ends = _session_ends(view, storages)
        if view.session_replicas and len(ends) >= quorum(len(view.session_replicas)):
            bounds[view.partition] = max(ends)
    return bounds


def _session_ends(view: PartitionView, storages: Mapping[str, StorageReplicas]) -> list[int]:
    """Return the last ids of the replicas in the current session, as far as they are reported.

    Other replicas may end with transactions that were never committed.
    """
    ends = []
    for storage in view.session_replicas:
        held = storages.get(storage, _UNKNOWN).held.get(view.partition)
        if (
            held is not None
            and held.max_transaction_id is not None
            and view.in_session(storage, held)
        ):
            ends.append(held.max_transaction_id)
    return ends
