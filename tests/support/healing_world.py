"""Extend the simulated world by claims and volumes, so that volumes can be lost and replaced.

A claim that is deleted stays until its pod is gone. A new claim has an empty volume. Replicas that
are switched off can be copied from their peers, in two parts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from typing_extensions import override

from tests.support.operator_world import Znodes, fresh_replica
from tests.support.rolling_world import RollingWorld
from waltz.admin.core.steps import CopyReplica, CreateReplicas, SwitchOff
from waltz.metadata.core.formats import UNRESOLVED, ReplicaState
from waltz_operator.core.names import REPLACE_VOLUME_ANNOTATION, REPLACEMENT_ANNOTATION
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ObservedCluster
from waltz_operator.core.resources import ObjectMeta
from waltz_operator.core.steps import (
    CompareReplica,
    DeleteObject,
    EmptyVolume,
    RecordReplacement,
    ReplacePod,
    Step,
)
from waltz_operator.core.volume_replacement import Replacement, record_annotations


class HealingWorld(RollingWorld):
    """A world whose storages have claims."""

    def __init__(self, cluster: dict[str, Any], pools: list[dict[str, Any]]) -> None:
        super().__init__(cluster, pools)
        self.lost_seconds: dict[str, float] = {}
        """For how long the volume of each pod has been lost."""
        self.emptied: list[str] = []
        """The pods whose volume was lost, in this order."""
        self.compared: list[tuple[str, int]] = []
        """The replicas that were compared: storage and partition."""
        self.long_logs = False
        """Whether a new replica lacks so much that it must be copied."""
        self.slow_shutdowns = False
        """Whether the pods that the operator deletes run until `end_pods`."""

    @override
    def observed(self) -> ObservedCluster:
        return replace(super().observed(), lost_seconds=dict(self.lost_seconds))

    def delete_claim(self, pod: str) -> None:
        """Delete the claim of a pod, as a user does."""
        claim = self.objects.get(_claim_key(pod))
        if claim is not None:
            claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._remove_unused_claims()

    def lose_volume(self, pod: str) -> None:
        """Empty the volume of a storage that goes on running with its claim."""
        self.disks[self.address(pod)] = {}
        self.emptied.append(pod)

    def request(self, pod: str) -> None:
        """Ask for the replacement of a pod's volume."""
        annotations = self.pools[_pool(pod)]["metadata"].setdefault("annotations", {})
        annotations[REPLACE_VOLUME_ANNOTATION] = pod

    def replacement(self, pool: str) -> Replacement | None:
        """Return the recorded replacement of a pool."""
        annotations = self.pools[pool]["metadata"].get("annotations", {})
        text = annotations.get(REPLACEMENT_ANNOTATION)
        return None if text is None else Replacement.from_json(text)

    def end_pods(self) -> None:
        """Let all pods that are being deleted end."""
        for pod in list(self.pods()):
            if pod["metadata"].get("deletionTimestamp"):
                self.stop_pod(pod["metadata"]["name"])

    @override
    def settle(self) -> None:
        self.end_pods()
        super().settle()

    @override
    def create_pods(self) -> None:
        self._remove_unused_claims()
        terminating = {
            key.name.removeprefix("data-")
            for key, live in self.objects.items()
            if key.kind == "PersistentVolumeClaim" and live["metadata"].get("deletionTimestamp")
        }
        existing = {key for key in self.objects if key.kind == "Pod"}
        super().create_pods()
        for pod in terminating:
            # The controller creates no pod while the claim of an earlier one exists.
            if ObjectKey("Pod", pod) not in existing:
                self.objects.pop(ObjectKey("Pod", pod), None)
        for pod in self.storage_pods():
            if ObjectKey("Pod", pod) in self.objects and _claim_key(pod) not in self.objects:
                self._create_claim(pod)

    @override
    def perform(self, step: Step) -> None:
        match step:
            case DeleteObject(ObjectKey("PersistentVolumeClaim", name), uid):
                claim = self.objects.get(ObjectKey("PersistentVolumeClaim", name))
                assert claim is not None
                assert claim["metadata"]["uid"] == uid
                self.delete_claim(name.removeprefix("data-"))
            case ReplacePod(pod, uid) if self.slow_shutdowns:
                metadata = self.objects[ObjectKey("Pod", pod)]["metadata"]
                assert metadata["uid"] == uid
                metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                self.replaced.append(pod)
            case RecordReplacement(pool, replacement, request):
                self._record(pool, replacement, request)
            case CompareReplica(pool, storage, at):
                self.compared.append((storage, at.partition))
                self._record(pool, replace(at, partition=at.partition + 1, next_id=0))
            case SwitchOff(storage, partitions):
                for partition in partitions:
                    self._update(storage, partition, readable=False, writable=False)
            case EmptyVolume(_, storage, partitions, _):
                for partition in partitions:
                    del self.disks[storage][partition]
            case CreateReplicas(storage, partitions) if self.long_logs:
                for partition in partitions:
                    new = replace(fresh_replica(partition), readable=False, writable=False)
                    self.disks[storage].setdefault(partition, new)
            case CopyReplica(source, destination, partition):
                last_id = self.disks[source][partition].local_low_water_mark
                held = self.disks[destination][partition]
                assert not held.readable
                assert not held.writable
                begun = (held.max_transaction_id or 0) > 0
                copied = last_id if begun else last_id // 2
                self._update(
                    destination, partition, max_transaction_id=copied, low_water_mark=copied
                )
            case _:
                super().perform(step)

    def lengthen_logs(self, last_id: int) -> None:
        """Let all replicas have transactions up to ``last_id``, which new ones must copy."""
        self.long_logs = True
        for storage, held in self.disks.items():
            for partition in held:
                self._update(
                    storage,
                    partition,
                    max_transaction_id=last_id,
                    low_water_mark=last_id,
                    local_low_water_mark=last_id,
                )

    @override
    def _open(self, znodes: Znodes, partition: int) -> None:
        ends = {
            storage: held[partition].max_transaction_id
            for storage, held in self.disks.items()
            if partition in held
        }
        self._end_session_without_replicas(znodes, partition)
        super()._open(znodes, partition)
        if not self.long_logs:
            return
        # Servers bring the replicas of a session to the same end.
        end = max((end or 0 for end in ends.values()), default=0)
        for storage in znodes.maps.assignments.storages_of(partition):
            if self._takes_part(storage, partition):
                self._update(storage, partition, max_transaction_id=end, local_low_water_mark=end)

    def _end_session_without_replicas(self, znodes: Znodes, partition: int) -> None:
        """Let the server notice the replicas whose disk was emptied: they left the session."""
        metadata = znodes.metadata.get(partition)
        if metadata is None:
            return
        held = {s: self.disks.get(s, {}).get(partition) for s in metadata.replicas}
        emptied = {
            storage
            for storage, state in metadata.replicas.items()
            if (replica := held[storage]) is not None
            and replica.session_id < state.session_id == metadata.session_id
        }
        if not emptied:
            return
        session = metadata.session_id + 1
        states = dict(metadata.replicas)
        for storage in states.keys() - emptied:
            if self._takes_part(storage, partition):
                states[storage] = ReplicaState(session, UNRESOLVED)
                self._update(storage, partition, session_id=session)
        znodes.metadata[partition] = replace(metadata, session_id=session, replicas=states)

    def _update(self, storage: str, partition: int, **changes: Any) -> None:
        self.disks[storage][partition] = replace(self.disks[storage][partition], **changes)

    def _record(
        self, pool: str, replacement: Replacement | None, request: str | None = None
    ) -> None:
        metadata = ObjectMeta.model_validate(self.pools[pool]["metadata"])
        annotations = self.pools[pool]["metadata"].setdefault("annotations", {})
        for name, text in record_annotations(metadata, replacement, request).items():
            if text is None:
                annotations.pop(name, None)
            else:
                annotations[name] = text

    def _create_claim(self, pod: str) -> None:
        self._uids += 1
        labels = self.objects[ObjectKey("Pod", pod)]["metadata"]["labels"]
        self.objects[_claim_key(pod)] = {
            "metadata": {"name": f"data-{pod}", "uid": f"uid-{self._uids}", "labels": labels},
            "status": {"phase": "Bound"},
        }

    def _remove_unused_claims(self) -> None:
        """Remove the deleted claims whose pod is gone, with their volumes."""
        for key, live in list(self.objects.items()):
            if key.kind != "PersistentVolumeClaim" or not live["metadata"].get("deletionTimestamp"):
                continue
            pod = key.name.removeprefix("data-")
            if ObjectKey("Pod", pod) not in self.objects:
                del self.objects[key]
                self.lose_volume(pod)


def _claim_key(pod: str) -> ObjectKey:
    return ObjectKey("PersistentVolumeClaim", f"data-{pod}")


def _pool(pod: str) -> str:
    return pod.partition("-storage-")[0]
