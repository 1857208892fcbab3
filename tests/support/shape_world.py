"""Extend the simulated world by the contents of replicas, so that changes of shape can be checked.

The *shape* of a cluster is its storages, and which of them have replicas of which partitions. Every
step is checked: `ShapeWorld.perform` fails if the step endangers a copy that is still needed, and
raises StepRefused if ZooKeeper, a storage or a proof would refuse the step.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from tests.support.operator_world import World, Znodes
from waltz.admin.core.replicas import unhealthy_reason
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    CreateReplicas,
    DropReplicas,
    SwitchOff,
    SwitchOn,
    UnregisterStorage,
)
from waltz.metadata.core.storage_maps import ChangeRefused, ReplicaChange
from waltz_operator.core.names import POOL_LABEL
from waltz_operator.core.objects import Manifest, ObjectKey
from waltz_operator.core.steps import ApplyObject, DeleteObject, Step


class StepRefused(Exception):
    """A step was refused and has changed nothing."""


class ShapeWorld(World):
    """A world that knows which replicas have wrong contents.

    A copy that servers or an operator make is always right. Tests add to ``corrupt``.
    """

    def __init__(self, cluster: dict[str, Any], pools: list[dict[str, Any]]) -> None:
        super().__init__(cluster, pools)
        self.lag_allowed = 0
        self.corrupt: set[tuple[str, int]] = set()
        """The replicas whose contents differ from the log, by storage and partition."""

        self.acts_late = False
        """Whether the steps come from a plan whose observation is outdated."""

        self.given_up = 0
        """How many replicas were unassigned."""

        self.copied = 0
        """How many replicas were filled by a copy."""

    @override
    def perform(self, step: Step) -> None:
        """Perform a step and check it. Raises StepRefused."""
        match step:
            case ChangeAssignment():
                self._check_change(step)
            case CopyReplica(source, destination, partition):
                self._check_copy(source, destination, partition)
                self.copied += 1
            case DropReplicas(storage, partitions):
                self._check_drop(storage, partitions)
                self.corrupt -= {(storage, partition) for partition in partitions}
            case CreateReplicas() | SwitchOn() | SwitchOff() if not self._is_possible(step):
                raise StepRefused(f"{step} is not possible")
            case UnregisterStorage(storage) if not self.acts_late:
                # An outdated plan may unregister a storage that is in use again. As long as no
                # partitions are assigned to it, this does no harm: the operator registers it again.
                # Once partitions are assigned, ZooKeeper refuses the step.
                assert not self.disks.get(storage), f"{storage} is unregistered with replicas"
            case ApplyObject(manifest, _):
                self._check_number_of_pods(manifest)
            case DeleteObject(key, uid) if not self._exists(key, uid):
                return
            case DeleteObject(key, _) if key.kind == "StatefulSet":
                self._check_removed_pods(key.name, 0)
            case _:
                pass
        try:
            super().perform(step)
        except ChangeRefused as refused:
            raise StepRefused(str(refused)) from refused

    def _is_possible(self, step: CreateReplicas | SwitchOn | SwitchOff) -> bool:
        if not self.is_reachable(step.storage):
            return False
        held = self.disks[step.storage]
        return isinstance(step, CreateReplicas) or all(each in held for each in step.partitions)

    def _exists(self, key: ObjectKey, uid: str) -> bool:
        live = self.objects.get(key)
        return live is not None and live["metadata"].get("uid", "") == uid

    def _check_change(self, step: ChangeAssignment) -> None:
        proven = {each.partition: each.storages for each in step.proofs}
        for partition, storages in proven.items():
            for storage in sorted(storages):
                held = self.disks.get(storage, {}).get(partition)
                if not self.is_reachable(storage) or held is None:
                    raise StepRefused(f"partition {partition} on {storage} cannot be compared")
            wrong = {each for each in storages if (each, partition) in self.corrupt}
            # A comparison finds only differences: copies that are all wrong in the same way pass.
            if wrong and wrong != storages:
                raise StepRefused(f"partition {partition} differs on {', '.join(sorted(wrong))}")
        assert isinstance(self.znodes, Znodes)
        for change in step.changes:
            if frozenset(self.znodes.maps.assignments.storages_of(change.partition)) == (
                change.expected
            ):
                self._check_replicas(change, proven.get(change.partition, frozenset()))

    def _check_replicas(self, change: ReplicaChange, proven: frozenset[str]) -> None:
        """Check a change whose compare-and-set succeeds."""
        view = self.view(change.partition)
        if change.expected - change.wanted:
            assert proven == change.wanted, "a copy is given up without a proof of the others"
            self.given_up += len(change.expected - change.wanted)
        new = change.wanted - change.expected - view.session_replicas
        # When an outdated plan was made, a replica that it assigns may have been in the session. It
        # no longer is, so votes ignore it, and no proof is needed.
        if view.session_replicas and new and not self.acts_late:
            assert proven == change.wanted, f"the copies on {sorted(new)} are not proven"
            for storage in new:
                assert change.partition in self.disks[storage], (
                    "a replica is assigned that does not exist"
                )

    def _check_copy(self, source: str, destination: str, partition: int) -> None:
        for storage in (source, destination):
            if not self.is_reachable(storage) or partition not in self.disks[storage]:
                raise StepRefused(f"{storage} has no replica of partition {partition}")
        if self.disks[destination][partition].available:
            raise StepRefused(f"partition {partition} is switched on at {destination}")
        view = self.view(partition)
        if destination not in view.replicas:
            # What a copy cuts off must not be needed by a vote. This cannot be checked for an
            # assigned replica: the metadata name it even if its disk was lost, and then it must be
            # filled. The order `ReplicaRecovery` checks that votes ignore it.
            assert destination not in view.session_replicas, "a replica of the session is cut"

    def _check_drop(self, storage: str, partitions: tuple[int, ...]) -> None:
        assert isinstance(self.znodes, Znodes)
        assigned = self.znodes.maps.assignments.partitions.get(storage, ())
        if not self.is_reachable(storage) or {*assigned} & {*partitions}:
            raise StepRefused(f"{storage} keeps partitions that ZooKeeper assigns to it")
        for partition in partitions:
            view = self.view(partition)
            assert storage not in view.session_replicas, "a replica of the last session is dropped"
            assert self.opens(partition), "a replica is dropped while its partition is closed"

    def _check_number_of_pods(self, manifest: Manifest) -> None:
        if manifest.key.kind == "StatefulSet":
            labels = manifest.body["metadata"]["labels"]
            if POOL_LABEL in labels:
                self._check_removed_pods(manifest.key.name, manifest.body["spec"]["replicas"])

    def _check_removed_pods(self, set_name: str, count: int) -> None:
        """Check that the pods of a StatefulSet from ordinal ``count`` on hold nothing."""
        for storage, held in self.disks.items():
            pod = storage.partition(".")[0]
            name, _, ordinal = pod.rpartition("-")
            if name == set_name and int(ordinal) >= count:
                assert not held, f"the pod {pod} is removed and holds {sorted(held)}"

    def unhealthy(self) -> list[str]:
        """Return the reasons why replicas are unhealthy."""
        observed = self.replicas()
        return [
            reason
            for view in observed.partitions.values()
            for storage in sorted(view.replicas)
            if (reason := unhealthy_reason(observed, view, storage)) is not None
        ]
