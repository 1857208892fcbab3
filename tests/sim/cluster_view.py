"""What ZooKeeper has of a simulated cluster, known to the checks at the moment of each write."""

from __future__ import annotations

from tests.sim.alarm import Alarm
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from waltz.metadata.core.formats import (
    NEW_PARTITION,
    UNRESOLVED,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaAssignments,
)
from waltz.metadata.core.paths import Paths


class PartitionView:
    """The metadata of one partition: its replicas, its server and the server's generation."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.name = f"metadata{partition}"
        self.value: PartitionMetadata = NEW_PARTITION
        self.owner_id = 0
        self.generation = -1
        self.replicas: tuple[str, ...] = ()
        self.former_replicas: list[tuple[str, ...]] = []
        """Replicas that were assigned a short time ago: a server may be about to read them."""


class ClusterView:
    """The metadata of all partitions. Every executed write of a simulated process is noted."""

    def __init__(self, root: str, partitions: int, history: History, alarm: Alarm) -> None:
        self.partitions = [PartitionView(partition) for partition in range(partitions)]
        self._paths = paths = Paths(root)
        self._partition_paths = {paths.partition(view.partition): view for view in self.partitions}
        self._history = history
        self._alarm = alarm
        self.follows_assignment = False
        """Whether each write of the assignment changes the replicas of the partitions. Otherwise
        the first write does, and the faults set the replicas when they decide about a change."""

    def is_metadata(self, path: str) -> bool:
        """Whether ``path`` is the metadata of a partition."""
        return path in self._partition_paths

    def note_write(self, path: str, data: bytes | None) -> None:
        """Note that ``data`` were written to ``path``; raises Violation."""
        if data is None:
            return
        try:
            self._note(path, data)
        except Violation as violation:
            # The process that has written might take the exception for a failed write.
            self._alarm.ring(violation)
            raise

    def _note(self, path: str, data: bytes) -> None:
        view = self._partition_paths.get(path)
        if view is not None:
            self._note_metadata(view, PartitionMetadata.decode(data, view.partition))
        elif path == self._paths.server_descriptors:
            self._note_owners(PartitionAssignment.decode(data))
        elif path == self._paths.assignment:
            assignments = ReplicaAssignments.decode(data)
            for each in self.partitions:
                if self.follows_assignment or not each.replicas:
                    each.replicas = tuple(assignments.storages_of(each.partition))

    def _note_metadata(self, view: PartitionView, value: PartitionMetadata) -> None:
        if value.generation < view.value.generation:
            raise Violation(
                Guarantee.FENCED,
                f"{view.name}: generation {value.generation} is written after "
                f"{view.value.generation}",
            )
        if value.session_id < view.value.session_id:
            raise Violation(
                Guarantee.FENCED,
                f"{view.name}: session {value.session_id} is written after {view.value.session_id}",
            )
        view.value = value
        self._history.note(view.name, f"written: {_brief(value)}")

    def _note_owners(self, assignment: PartitionAssignment) -> None:
        for server_id, owned in assignment.servers.items():
            for partition, generation in owned:
                view = self.partitions[partition]
                if (view.owner_id, view.generation) != (server_id, generation):
                    view.owner_id, view.generation = server_id, generation
                    self._history.note(
                        view.name, f"server {server_id} owns it in generation {generation}"
                    )


def _brief(value: PartitionMetadata) -> str:
    states = ", ".join(
        f"{name} in {state.session_id}"
        + ("" if state.closing_mark == UNRESOLVED else f" closed at {state.closing_mark}")
        for name, state in value.replicas.items()
    )
    return f"generation {value.generation}, session {value.session_id}: {states}"
