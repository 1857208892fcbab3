"""What ZooKeeper has of a simulated cluster, known to the checks at the moment of each write."""

from __future__ import annotations

from tests.sim.guarantees import Guarantee, Violation
from tests.sim.run_environment import RunEnvironment
from waltz.metadata.core.formats import (
    NEW_PARTITION,
    UNRESOLVED,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaAssignments,
)
from waltz.metadata.core.paths import Paths


class PartitionView:
    """What ZooKeeper has of one partition: its metadata, its server, its assigned replicas."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.name = f"metadata{partition}"
        """The name of this view in the history."""
        self.metadata: PartitionMetadata = NEW_PARTITION
        """The metadata that the servers of the partition write."""
        self.owner_id = 0
        """The id of the server that owns the partition, 0 before the first assignment."""
        self.generation = -1
        """The generation in which that server owns the partition."""
        self.assigned: tuple[str, ...] = ()
        """The storages to which the partition is assigned."""
        self.formerly_assigned: list[tuple[str, ...]] = []
        """Replicas that were assigned a short time ago: a server may be about to read them."""


class ClusterView:
    """The views of all partitions. Every executed write of a simulated process is noted."""

    def __init__(self, root: str, partitions: int, environment: RunEnvironment) -> None:
        self.partitions = [PartitionView(partition) for partition in range(partitions)]
        self._paths = paths = Paths(root)
        self._partition_paths = {paths.partition(view.partition): view for view in self.partitions}
        self._history = environment.history
        self._failure = environment.failure
        self.follows_assignment = False
        """Whether each write of the assignment changes `PartitionView.assigned`. Otherwise the
        first write does, and the faults set it when they decide about a change."""

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
            self._failure.stop_run(violation)
            raise

    def _note(self, path: str, data: bytes) -> None:
        view = self._partition_paths.get(path)
        if view is not None:
            self._check_and_note_metadata(view, PartitionMetadata.decode(data, view.partition))
        elif path == self._paths.server_descriptors:
            self._note_owners(PartitionAssignment.decode(data))
        elif path == self._paths.assignment:
            assignments = ReplicaAssignments.decode(data)
            for each in self.partitions:
                if self.follows_assignment or not each.assigned:
                    each.assigned = tuple(assignments.storages_of(each.partition))

    def _check_and_note_metadata(self, view: PartitionView, written: PartitionMetadata) -> None:
        before = view.metadata
        if written.generation < before.generation:
            raise Violation(
                Guarantee.FENCED,
                f"{view.name}: generation {written.generation} is written after "
                f"{before.generation}",
            )
        if written.session_id < before.session_id:
            raise Violation(
                Guarantee.FENCED,
                f"{view.name}: session {written.session_id} is written after {before.session_id}",
            )
        view.metadata = written
        self._history.note(view.name, f"written: {_brief(written)}")

    def _note_owners(self, assignment: PartitionAssignment) -> None:
        for server_id, owned in assignment.servers.items():
            for partition, generation in owned:
                view = self.partitions[partition]
                if (view.owner_id, view.generation) != (server_id, generation):
                    view.owner_id, view.generation = server_id, generation
                    self._history.note(
                        view.name, f"server {server_id} owns it in generation {generation}"
                    )


def _brief(metadata: PartitionMetadata) -> str:
    states = ", ".join(
        f"{name} in {state.session_id}"
        + ("" if state.closing_mark == UNRESOLVED else f" closed at {state.closing_mark}")
        for name, state in metadata.replicas.items()
    )
    return f"generation {metadata.generation}, session {metadata.session_id}: {states}"
