"""Simulate a cluster for plans of replicas: storages, one server, the metadata.

The server performs a whole recovery at once: it opens a session if possible, truncates, copies and
sets marks. It asserts that the replicas that vote still have all committed transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from waltz.admin.core.replicas import (
    HeldPartition,
    PartitionView,
    ReplicaObservation,
    StorageReplicas,
    quorum,
)
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    CreateReplicas,
    DropReplicas,
    Step,
    SwitchOff,
    SwitchOn,
)
from waltz.metadata.core.formats import (
    UNRESOLVED,
    ConnectionMetadata,
    GroupDescriptor,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaState,
)
from waltz.metadata.core.storage_maps import StorageMaps, change_replicas


@dataclass
class Model:
    """A cluster with the storages ``groups`` and the partitions ``assigned``, which are opened."""

    groups: dict[str, int]
    """The group of each storage."""
    assigned: dict[int, frozenset[str]]
    """The storages to which ZooKeeper assigns each partition."""
    down: set[str] = field(default_factory=set)
    """The storages that do not run."""
    metadata: dict[int, PartitionMetadata] = field(default_factory=dict)
    disks: dict[str, dict[int, HeldPartition]] = field(default_factory=dict)
    """The replicas on the disk of each storage, by partition."""
    committed: dict[int, int] = field(default_factory=dict)
    """The last committed id of each partition."""

    def __post_init__(self) -> None:
        self.disks = {storage: {} for storage in self.groups}
        for partition, replicas in self.assigned.items():
            self.committed[partition] = -1
            self.metadata[partition] = PartitionMetadata(1, -1, {})
            for storage in replicas:
                self._hold(storage, partition)
        self.serve()

    # ---- observed and changed by plans

    def observed(self) -> ReplicaObservation:
        """Return what an order would observe."""
        return ReplicaObservation(
            self._maps(),
            len(self.assigned),
            {p: PartitionView(p, r, self.metadata[p]) for p, r in self.assigned.items()},
            {
                s: StorageReplicas(problem="it is down")
                if s in self.down
                else StorageReplicas(dict(held))
                for s, held in self.disks.items()
            },
        )

    def perform(self, step: Step) -> None:
        """Perform one step. Raises Down."""
        match step:
            case CreateReplicas(storage, partitions):
                for partition in partitions:
                    self._hold(storage, partition)
            case SwitchOn(storage, partitions):
                for partition in partitions:
                    self._switch(storage, partition, on=True)
            case SwitchOff(storage, partitions):
                for partition in partitions:
                    self._switch(storage, partition, on=False)
            case CopyReplica(source, destination, partition, _):
                self._copy(source, destination, partition)
            case DropReplicas(storage, partitions):
                for partition in partitions:
                    assert storage not in self.assigned[partition]
                    del self._disk(storage)[partition]
            case ChangeAssignment():
                self._reassign(step)

    def _switch(self, storage: str, partition: int, *, on: bool) -> None:
        self._disk(storage)  # Raises Down.
        self.update(storage, partition, readable=on, writable=on)

    def _hold(self, storage: str, partition: int) -> None:
        """Create an empty replica, unless the storage has one."""
        held = HeldPartition(partition, -1, -1, -1, -1, None, True, True)
        self._disk(storage).setdefault(partition, held)

    def _copy(self, source: str, destination: str, partition: int) -> None:
        """Cut the destination to its low-water mark, then copy up to the start of a session."""
        mark = self._disk(source)[partition].local_low_water_mark
        to = self._disk(destination)[partition]
        assert not to.readable
        assert not to.writable
        end_after_cut = min(self._end(to), to.low_water_mark)
        end = max(end_after_cut, mark)
        low = max(to.low_water_mark, end)
        self.update(
            destination,
            partition,
            max_transaction_id=end,
            local_low_water_mark=end,
            low_water_mark=low,
        )

    def _reassign(self, step: ChangeAssignment) -> None:
        after = change_replicas(self._maps(), step.changes).assignments
        self.assigned = {p: frozenset(after.storages_of(p)) for p in self.assigned}

    def _maps(self) -> StorageMaps:
        assignments = {s: tuple(p for p, r in self.assigned.items() if s in r) for s in self.groups}
        return StorageMaps(
            GroupDescriptor(self.groups), ConnectionMetadata({}), ReplicaAssignments(assignments)
        )

    # ---- the server

    def serve(self) -> None:
        """Let the server begin sessions with all replicas that are present, where it can."""
        for partition in self.assigned:
            if self.is_open(partition) and self._needs_session(partition):
                self._begin_session(partition)

    def append(self, count: int) -> None:
        """Commit ``count`` transactions to every partition that is open."""
        self.serve()
        for partition, replicas in self.assigned.items():
            if self.is_open(partition):
                self.committed[partition] += count
                for storage in self._present(partition) & replicas:
                    self.update(storage, partition, max_transaction_id=self.committed[partition])

    def is_open(self, partition: int) -> bool:
        """Whether the server can open it: a quorum of the assigned, and one of the last session."""
        metadata, replicas = self.metadata[partition], self.assigned[partition]
        here = self._present(partition) & replicas
        if len(here) < quorum(len(replicas)):
            return False
        return not metadata.replicas or len(self._voters(partition)) >= quorum(
            len(metadata.replicas)
        )

    def update(self, storage: str, partition: int, **changes: int | bool) -> None:
        """Change what is on a disk."""
        disk = self.disks[storage]
        disk[partition] = replace(disk[partition], **changes)  # type: ignore[arg-type]

    def wipe(self, storage: str) -> None:
        """Replace a disk by an empty one on which the partitions are created again."""
        held = tuple(self.disks[storage])
        self.disks[storage] = {}
        for partition in held:
            self._hold(storage, partition)

    def _present(self, partition: int) -> frozenset[str]:
        """Return the storages that run and have a switched-on replica, assigned or not."""
        return frozenset(
            storage
            for storage, disk in self.disks.items()
            if storage not in self.down and partition in disk and disk[partition].available
        )

    def _voters(self, partition: int) -> frozenset[str]:
        """Return the assigned replicas that are present and whose disks are as the metadata say."""
        here = self._present(partition) & self.assigned[partition]
        states = self.metadata[partition].replicas
        return frozenset(
            s
            for s in here
            if s in states and self.disks[s][partition].session_id >= states[s].session_id
        )

    def _needs_session(self, partition: int) -> bool:
        """Whether the assignment has changed, or a present replica is not in the session."""
        metadata = self.metadata[partition]
        current = {s for s, state in metadata.replicas.items() if _is_in(state, metadata)}
        here = self._present(partition) & self.assigned[partition]
        return (
            metadata.replicas.keys() != self.assigned[partition]
            or not here <= current
            or any(self.disks[s][partition].session_id != metadata.session_id for s in here)
        )

    def _begin_session(self, partition: int) -> None:
        """Begin a session with the assigned replicas that are present; complete its recovery."""
        last, replicas = self.metadata[partition], self.assigned[partition]
        mark = self.committed[partition]
        if last.replicas:
            voters = [
                s for s in self._voters(partition) if last.replicas[s].closing_mark == UNRESOLVED
            ]
            ends = [self._end(self.disks[s][partition]) for s in voters]
            assert max(ends, default=-1) >= mark, (
                f"partition {partition} loses committed transactions"
            )
        session = last.session_id + 1
        states = {}
        for storage in replicas:
            if storage in self._present(partition):
                states[storage] = ReplicaState(session, UNRESOLVED)
                marks = {"low_water_mark": mark, "local_low_water_mark": mark}
                self.update(
                    storage, partition, session_id=session, max_transaction_id=mark, **marks
                )
            else:
                state = last.replicas.get(storage, ReplicaState(-1, mark))
                resolved = mark if state.closing_mark == UNRESOLVED else state.closing_mark
                states[storage] = ReplicaState(state.session_id, resolved)
        self.metadata[partition] = PartitionMetadata(1, session, states)

    def _disk(self, storage: str) -> dict[int, HeldPartition]:
        """Return the replicas of a storage that runs. Raises Down."""
        if storage in self.down:
            raise Down(storage)
        return self.disks[storage]

    @staticmethod
    def _end(held: HeldPartition) -> int:
        assert held.max_transaction_id is not None
        return held.max_transaction_id


class Down(Exception):
    """The storage of a step is down."""


def _is_in(state: ReplicaState, metadata: PartitionMetadata) -> bool:
    """Whether a replica takes part in the session of ``metadata``."""
    return state.session_id == metadata.session_id and state.closing_mark == UNRESOLVED
