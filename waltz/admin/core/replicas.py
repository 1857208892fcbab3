"""What is known of partitions' replicas, which of them are healthy, and what a quorum allows. Pure.

Every operation on replicas looks at an `Observed`, decides one step by it, and looks again. A
quorum is counted twice, because a new store session needs both (spec/behaviour.md section 6): one
of the replicas that are assigned, to open, and one of those that the partition's metadata names, to
know what was committed. A replica that is no longer assigned is not asked, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from waltz.metadata.core.formats import PartitionMetadata

LAG_ALLOWED = 10_000
"""How many transactions a replica may usually be behind and count as level."""


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """What a storage says of one of its partitions; None is what it does not tell."""

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
        """Whether servers may read and write it."""
        return self.readable and self.writable


@dataclass(frozen=True, slots=True)
class StorageView:
    """The partitions that one storage holds; ``problem`` is why it did not say."""

    held: Mapping[int, HeldPartition] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition: ``replicas`` are the storages that ZooKeeper assigns it to.

    ``server_problem`` is why its server does not serve it, None if it does; ``unreached`` are
    storages that this server says it has no connection to.
    """

    partition: int
    replicas: frozenset[str]
    metadata: PartitionMetadata
    server_problem: str | None = None
    unreached: frozenset[str] = frozenset()

    @property
    def last(self) -> frozenset[str]:
        """The replicas whose quorum knows what was committed."""
        return frozenset(self.metadata.replicas)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a plan looks at: these partitions (None: all), their storages, and others beside."""

    partitions: tuple[int, ...] | None
    storages: frozenset[str] = frozenset()
    group: int | None = None
    """All storages of this group, too."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What was found: the storages' groups, the partitions asked for, and their storages.

    A replica that is no more than ``lag_allowed`` transactions behind counts as level with the
    others: the servers copy those in a moment.
    """

    groups: Mapping[str, int]
    partitions: Mapping[int, PartitionView]
    storages: Mapping[str, StorageView]
    lag_allowed: int = LAG_ALLOWED

    def held(self, storage: str, partition: int) -> HeldPartition | None:
        """Return what ``storage`` says of ``partition``, None if it does not hold it, or say."""
        return self.storages.get(storage, _UNKNOWN).held.get(partition)

    def storage_problem(self, storage: str) -> str | None:
        """Return why ``storage`` said nothing, None if it did."""
        return self.storages.get(storage, _UNKNOWN).problem


_UNKNOWN = StorageView(problem="it is not in the cluster")


def quorum(count: int) -> int:
    """Return how many of ``count`` replicas are a quorum."""
    return count // 2 + 1


def opens(reached: frozenset[str], assigned: frozenset[str], last: frozenset[str]) -> bool:
    """Whether a store session opens when only these storages are reached."""
    known = not last or len(reached & assigned & last) >= quorum(len(last))
    return known and len(reached & assigned) >= quorum(len(assigned))


def absence(observed: Observed, view: PartitionView, storage: str) -> str | None:
    """Return why ``storage`` cannot take part in a session of a partition, None if it can."""
    if problem := observed.storage_problem(storage):
        return f"storage {storage} does not answer: {problem}"
    held = observed.held(storage, view.partition)
    if held is None:
        return f"storage {storage} does not hold partition {view.partition}"
    if not held.available:
        return f"partition {view.partition} is switched off at storage {storage}"
    if storage in view.unreached:
        return f"storage {storage} is not reached by the server of partition {view.partition}"
    return None


def ailment(observed: Observed, view: PartitionView, storage: str) -> str | None:
    """Return why a partition's replica on ``storage`` is not healthy, None if it is.

    A healthy one takes part in the current session and is level with the others.
    """
    if problem := absence(observed, view, storage):
        return problem
    metadata, held = view.metadata, observed.held(storage, view.partition)
    assert held is not None
    if not metadata.takes_part(storage) or held.session_id != metadata.session_id:
        return (
            f"the replica of partition {view.partition} on storage {storage} takes no part in "
            f"session {metadata.session_id}"
        )
    end, furthest = held.max_transaction_id, _furthest(observed, view)
    if end is not None and furthest - end > observed.lag_allowed:
        return (
            f"the replica of partition {view.partition} on storage {storage} ends at {end}, "
            f"others at {furthest}"
        )
    return None


def first_ailment(observed: Observed, view: PartitionView, storages: Iterable[str]) -> str | None:
    """Return what is wrong with the partition or with one of its replicas on ``storages``."""
    if view.server_problem is not None:
        return view.server_problem
    problems = (ailment(observed, view, storage) for storage in sorted(storages))
    return next((problem for problem in problems if problem is not None), None)


def objection(observed: Observed, view: PartitionView, wanted: frozenset[str]) -> str | None:
    """Return why a partition's replicas may not become those on ``wanted`` now.

    They may if every replica that stays is healthy, and those alone are the quorums that the next
    session needs: a new one is not counted before servers have filled it.
    """
    staying = view.replicas & wanted
    if problem := first_ailment(observed, view, staying):
        return problem
    if view.last != view.replicas:
        return f"the last change of the replicas of partition {view.partition} is not through yet"
    if not opens(staying, wanted, view.last):
        return shortage(view, wanted)
    return None


def shortage(view: PartitionView, wanted: frozenset[str]) -> str | None:
    """Return why not even healthy replicas would allow the change to ``wanted``, if so."""
    staying = view.replicas & wanted
    if opens(staying, wanted, view.replicas):
        return None
    return (
        f"of the replicas of partition {view.partition} only {len(staying)} would stay "
        f"({', '.join(sorted(staying)) or 'none'}): no quorum of the {len(view.replicas)} that "
        f"it has and of the {len(wanted)} that it would have"
    )


def _furthest(observed: Observed, view: PartitionView) -> int:
    held = (observed.held(storage, view.partition) for storage in view.replicas)
    ends = (each.max_transaction_id for each in held if each is not None)
    return max((end for end in ends if end is not None), default=-1)
