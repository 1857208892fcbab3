"""Order: remove the replicas of some partitions from a storage. Pure.

1. The assignment in ZooKeeper changes, while the remaining replicas are healthy and a quorum.
2. Every partition recovers in a store session without the storage.
3. The storage drops its replicas.

If the order changes only the storage (`AssignmentSide.STORAGE`), servers still count the dropped
replicas in quorums. So the other storages must hold a quorum of healthy replicas. `core.replicas`
explains sessions and quorums, and which replicas are healthy.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.assignment import AssignmentSide
from waltz.admin.core.replica_removal import next_step_after_removal
from waltz.admin.core.replicas import (
    ObservationScope,
    PartitionView,
    ReplicaObservation,
    change_obstacle,
    first_unhealthy_reason,
    quorum_shortage,
    session_opens,
    unhealthy_reason,
)
from waltz.admin.core.steps import (
    ChangeAssignment,
    Done,
    DropReplicas,
    Next,
    Order,
    Refuse,
    Wait,
    partitions_text,
)
from waltz.metadata.core.storage_maps import ChangeRefused, ReplicaChange, unassign_partitions
from waltz.protocol.notation import format_partitions

Views = tuple[PartitionView, ...]
"""The partitions of an order, as they were observed."""


@dataclass(frozen=True, slots=True)
class Unassignment(Order):
    """Remove the replicas of ``partitions`` from ``storage``, on the side ``only`` (None: both).

    ``force`` ignores the state of the other replicas: transactions may be lost.
    """

    storage: str
    partitions: tuple[int, ...]
    delete_files: bool = False
    only: AssignmentSide | None = None
    force: bool = False

    @property
    def scope(self) -> ObservationScope:
        """The scope: the partitions, the storage and, without ``force``, the other replicas.

        With ``force``, the storage is left out, too, if only ZooKeeper changes: the storage may be
        lost, and a query would wait for its answer in vain.
        """
        storages = frozenset({self.storage})
        if self.force and self.only is AssignmentSide.ZOOKEEPER:
            storages = frozenset()
        return ObservationScope(self.partitions, storages, query_peers=not self.force)

    def refusal(self, observation: ReplicaObservation) -> str | None:
        """Return why the order must not begin, None if it may begin.

        If ZooKeeper changes, the storage's group must keep a replica of every partition. Partitions
        that an interrupted attempt has unassigned already are not checked, because
        `unassign_partitions` refuses them. If only the storage changes, the partitions must exist,
        also with ``force``.
        """
        if self.only is AssignmentSide.STORAGE:
            return self._missing_partition(observation)
        # An order with `only` has a single step, so no attempt was interrupted after a change.
        unassigned = frozenset[int]() if self.only else self._already_unassigned(observation)
        still_assigned = tuple(p for p in self.partitions if p not in unassigned)
        if unassigned and not still_assigned:
            return None  # Nothing is left to check: `unassign_partitions` refuses an empty list.
        try:
            unassign_partitions(observation.maps, self.storage, still_assigned)
        except ChangeRefused as problem:
            return str(problem)
        return None

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""
        if (problem := self._missing_partition(observation)) is not None:
            return Refuse(problem)
        views = tuple(observation.partitions[partition] for partition in self.partitions)
        if self.only is AssignmentSide.STORAGE:
            return self._forced_drop() if self.force else self._drop(observation, views)
        change = self._change(observation, views)
        if change is not None or self.only is AssignmentSide.ZOOKEEPER:
            return change or Done()
        if self.force:
            return self._wait_for_sessions_without_storage(views) or self._forced_drop()
        step = next_step_after_removal(observation, views, frozenset({self.storage}))
        return step or self._drop(observation, views)

    def _missing_partition(self, observation: ReplicaObservation) -> str | None:
        """Return an error that names a partition that does not exist, None if all exist."""
        missing = sorted(set(self.partitions) - observation.partitions.keys())
        return f"partition {missing[0]} does not exist" if missing else None

    def _already_unassigned(self, observation: ReplicaObservation) -> frozenset[int]:
        """Return the partitions that are unassigned, but whose removal is not complete.

        It is not complete while the storage is in the last session or holds a replica.
        """
        views = (observation.partitions.get(partition) for partition in self.partitions)
        return frozenset(
            view.partition
            for view in views
            if view is not None
            and self.storage not in view.replicas
            and (
                self.storage in view.session_replicas
                or observation.held(self.storage, view.partition) is not None
            )
        )

    def _change(
        self, observation: ReplicaObservation, views: Views
    ) -> ChangeAssignment | Wait | Refuse | None:
        """Return the change in ZooKeeper, or why it must not be made; None if it is not needed.

        It is not needed if all partitions are unassigned from the storage already.
        """
        leaving = frozenset({self.storage})
        affected = [view for view in views if self.storage in view.replicas]
        if not self.force:
            for view in affected:
                if problem := quorum_shortage(view, view.replicas - leaving):
                    return Refuse(problem)
            for view in affected:
                if problem := change_obstacle(observation, view, view.replicas - leaving):
                    return Wait(problem)
        changes = (ReplicaChange(v.partition, v.replicas, v.replicas - leaving) for v in affected)
        return ChangeAssignment(tuple(changes)) if affected else None

    def _wait_for_sessions_without_storage(self, views: Views) -> Wait | None:
        """Return a `Wait` while the storage is in the last session of a partition, else None.

        The server of this session may still write to the replica.
        """
        in_use = [view.partition for view in views if self.storage in view.session_replicas]
        if not in_use:
            return None
        return Wait(
            f"{partitions_text(in_use)}: no session without storage {self.storage} has begun, so "
            "the storage keeps replicas that ZooKeeper no longer assigns to it. When servers are "
            f"running, drop these replicas with: {self._drop_command()}"
        )

    def _drop_command(self) -> str:
        """Return the command by which the user drops the replicas at the storage later."""
        # Not `waltz storage sync`: it drops only replicas that the storage lists (`_forced_drop`).
        files = " --delete-files" if self.delete_files else ""
        partitions = format_partitions(self.partitions)
        return f"waltz storage unassign {self.storage} {partitions} --only storage --force{files}"

    def _forced_drop(self) -> DropReplicas:
        """Return the step by which the storage drops all replicas; the order ends after it.

        The step includes replicas that the storage does not list, as after damage of their entries
        in the control file. No observation would show that these are dropped.
        """
        return DropReplicas(self.storage, self.partitions, self.delete_files, final=True)

    def _drop(self, observation: ReplicaObservation, views: Views) -> Next:
        """Return the step by which the storage drops the replicas that it lists.

        Return `Wait` or `Refuse` if it must keep one of them, `Done` if it lists none.
        """
        if problem := observation.storage_problem(self.storage):
            return Wait(f"storage {self.storage} does not answer: {problem}")
        held = [v for v in views if observation.held(self.storage, v.partition) is not None]
        for view in held:
            if obstacle := _drop_obstacle(observation, view, self.storage):
                return obstacle
        if not held:
            return Done()
        return DropReplicas(self.storage, tuple(v.partition for v in held), self.delete_files)


def _drop_obstacle(
    observation: ReplicaObservation, view: PartitionView, storage: str
) -> Refuse | Wait | None:
    """Return why ``storage`` must keep its replica of a partition, None if it may drop the replica.

    A replica that counts in quorums may be dropped only while the other storages have a healthy
    quorum. Otherwise committed transactions would be lost.
    """
    if storage not in view.replicas | view.session_replicas:
        return None  # It counts in no quorum.
    others = view.replicas - {storage}
    if not session_opens(others, view.replicas, view.session_replicas):
        return Refuse(
            f"without the replica on storage {storage}, partition {view.partition} would have no "
            f"quorum of its {len(view.replicas | view.session_replicas)} replicas"
        )
    healthy = frozenset(
        other for other in others if unhealthy_reason(observation, view, other) is None
    )
    opens_with_healthy = session_opens(healthy, view.replicas, view.session_replicas)
    if view.server_problem is None and opens_with_healthy:
        return None
    reason = first_unhealthy_reason(observation, view, others)
    assert reason is not None, "with all others healthy, a session opens without the replica"
    return Wait(reason)
