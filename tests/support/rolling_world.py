"""Extend the simulated world by pods with versions, so that rolling changes can be simulated.

Controllers, kubelets and servers act in separate small steps, in any order. A pod whose image is in
`BROKEN_IMAGES` never starts. A storage's pod is ready while its replicas take part in sessions.
ZooKeeper is managed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from typing_extensions import override

from tests.support.operator_world import NAMESPACE, World, Znodes
from waltz.admin.core.replicas import quorum
from waltz_operator.core import names
from waltz_operator.core.objects import Manifest, ObjectKey
from waltz_operator.core.pods_of_sets import REVISION_LABEL
from waltz_operator.core.steps import ReplacePod, Step

BROKEN_IMAGES = frozenset({"broken"})

_PORT = 6000
"""The default port of storages, which no simulated pool changes."""


class RollingWorld(World):
    """A world whose StatefulSets have pods; a pod is replaced only after it was deleted."""

    def __init__(self, cluster: dict[str, Any], pools: list[dict[str, Any]]) -> None:
        super().__init__(cluster, pools)
        self.replaced: list[str] = []
        """The pods that the operator has deleted, in this order."""

        self.evicted: list[str] = []
        """The pods that were evicted, in this order."""

    # ---- controllers, kubelets and servers

    @override
    def settle(self) -> None:
        self.process_sets()
        self.create_pods()
        self.start_pods()
        for key, live in self.objects.items():
            if key.kind == "Deployment":
                count = live["spec"]["replicas"]
                generation = live["metadata"].get("generation", 0)
                live["status"] = {
                    "readyReplicas": count,
                    "updatedReplicas": count,
                    "observedGeneration": generation,
                }
        self.run_servers()

    def process_sets(self) -> None:
        """Let the controller of StatefulSets compute the revision of each current template."""
        for live in self._sets():
            generation = live["metadata"].get("generation", 0)
            live["status"] = {"observedGeneration": generation, "updateRevision": _revision(live)}
        self._count_pods()

    def create_pods(self) -> None:
        """Let the controller create the pods that are missing, with the current version."""
        for live in self._sets():
            if "status" not in live:
                continue
            for ordinal in range(live["spec"]["replicas"]):
                name = f"{live['metadata']['name']}-{ordinal}"
                if ObjectKey("Pod", name) not in self.objects:
                    self._create_pod(name, live)
        self._count_pods()

    def start_pods(self) -> None:
        """Let the kubelets start all pods whose image is not broken."""
        for live in self.pods():
            (container,) = live["spec"]["containers"]
            if container["image"] in BROKEN_IMAGES:
                waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
                state = {"started": False, "state": {"waiting": waiting}}
            else:
                state = {"started": True, "state": {"running": {}}}
            live["status"]["containerStatuses"] = [{"image": container["image"], **state}]
        self._run_storages()
        self._count_pods()

    def run_servers(self) -> None:
        """Let servers open partitions, and begin sessions with storages that have come back."""
        self._run_storages()
        self._run_servers()
        self._count_pods()

    def evict_storage(self, name: str) -> bool:
        """Evict a storage's pod if the disruption budget allows it; return whether it did."""
        budget = self.objects.get(ObjectKey("PodDisruptionBudget", "log-storage"))
        pods = self.storage_pods()
        unready = sum(not self.is_ready(pod) for pod in pods.values())
        if budget is None or budget["spec"]["maxUnavailable"] - unready < 1:
            return False
        if pods.get(name) is None:
            return False
        self.evicted.append(name)
        self.stop_pod(name)
        return True

    def stop_pod(self, name: str) -> None:
        """Delete a pod and end its process."""
        del self.objects[ObjectKey("Pod", name)]
        self._run_storages()
        self._count_pods()

    # ---- what a test can ask

    def pods(self) -> Iterator[dict[str, Any]]:
        """Iterate over all pods."""
        return (
            live for key, live in sorted(self.objects.items(), key=_object_key) if key.kind == "Pod"
        )

    def storage_pods(self) -> dict[str, dict[str, Any] | None]:
        """Return the pods of all storages that should exist by name; None for a missing one."""
        return {
            storage.partition(".")[0]: self.objects.get(ObjectKey("Pod", storage.partition(".")[0]))
            for storage in self._storages()
        }

    def address(self, pod: str) -> str:
        """Return the address of the storage that runs in a pod."""
        set_name, _, ordinal = pod.rpartition("-")
        pool = set_name.removesuffix("-storage")
        return names.storage_address(pool, NAMESPACE, _PORT, int(ordinal))

    def outdated(self) -> list[str]:
        """Return the names of the pods that do not run the current version, or do not exist."""
        found = []
        for live in self._sets():
            for ordinal in range(live["spec"]["replicas"]):
                name = f"{live['metadata']['name']}-{ordinal}"
                pod = self.objects.get(ObjectKey("Pod", name))
                if pod is None or pod["metadata"]["labels"][REVISION_LABEL] != _revision(live):
                    found.append(name)
        return found

    def is_ready(self, pod: dict[str, Any] | None) -> bool:
        """Whether a pod runs; whether its replicas take part, too, if it is a storage."""
        if pod is None or not _is_started(pod):
            return False
        name = pod["metadata"]["name"]
        if names.POOL_LABEL not in pod["metadata"]["labels"]:
            return True
        return not self.absent_partitions(self.address(name))

    def absent_partitions(self, storage: str) -> list[int]:
        """Return the partitions whose current session a storage should be in, and is not in."""
        if not isinstance(self.znodes, Znodes):
            return []
        absent = []
        for partition, metadata in sorted(self.znodes.metadata.items()):
            if storage not in self.znodes.maps.assignments.storages_of(partition):
                continue
            state = metadata.replicas.get(storage)
            in_session = (
                self._takes_part(storage, partition)
                and state is not None
                and state.session_id == metadata.session_id
                and self.disks[storage][partition].session_id == metadata.session_id
            )
            if not in_session:
                absent.append(partition)
        return absent

    # ---- overridden parts

    @override
    def perform(self, step: Step) -> None:
        match step:
            case ReplacePod(pod, uid):
                assert self.objects[ObjectKey("Pod", pod)]["metadata"]["uid"] == uid
                self.replaced.append(pod)
                self.stop_pod(pod)
            case _:
                super().perform(step)

    @override
    def apply(self, manifest: Manifest) -> None:
        before = json.dumps(self.objects.get(manifest.key, {}).get("spec"), sort_keys=True)
        super().apply(manifest)
        live = self.objects[manifest.key]
        if json.dumps(live.get("spec"), sort_keys=True) != before:
            live["metadata"]["generation"] = live["metadata"].get("generation", 0) + 1

    @override
    def _zookeeper_serves(self) -> bool:
        members = [name for name, _ in self._zookeeper_members()]
        ready = [name for name, pod in self._zookeeper_members() if self.is_ready(pod)]
        serves = self.zookeeper_up and bool(members) and len(ready) >= quorum(len(members))
        if not serves:
            self.zookeeper_leader = None
        elif self.zookeeper_leader not in ready:
            self.zookeeper_leader = ready[0]
        return serves

    @override
    def _run_storages(self) -> None:
        for storage in self._storages():
            pod = self.objects.get(ObjectKey("Pod", storage.partition(".")[0]))
            if pod is not None and _is_started(pod):
                self.disks.setdefault(storage, {})
                self.down.discard(storage)
            else:
                self.down.add(storage)

    def _zookeeper_members(self) -> list[tuple[str, dict[str, Any] | None]]:
        live = self.objects.get(ObjectKey("StatefulSet", "log-zookeeper"))
        count = 0 if live is None else live["spec"]["replicas"]
        members = [f"log-zookeeper-{ordinal}" for ordinal in range(count)]
        return [(name, self.objects.get(ObjectKey("Pod", name))) for name in members]

    def _sets(self) -> Iterator[dict[str, Any]]:
        found = sorted(self.objects.items(), key=_object_key)
        return (live for key, live in found if key.kind == "StatefulSet")

    def _storages(self) -> list[str]:
        """Return the addresses of all storages that should run, without a model of the resources.

        The models are slow, and this method is called in every step of the simulation.
        """
        found = []
        for live in self._sets():
            name = live["metadata"]["name"]
            if names.POOL_LABEL in live["metadata"]["labels"]:
                count = live["spec"]["replicas"]
                found += [self.address(f"{name}-{ordinal}") for ordinal in range(count)]
        return found

    def _create_pod(self, name: str, live: dict[str, Any]) -> None:
        template = live["spec"]["template"]
        self._uids += 1
        labels = {**template["metadata"]["labels"], REVISION_LABEL: _revision(live)}
        (container,) = template["spec"]["containers"]
        owner = {"kind": "StatefulSet", "name": live["metadata"]["name"]}
        self.objects[ObjectKey("Pod", name)] = {
            "metadata": {
                "name": name,
                "uid": f"uid-{self._uids}",
                "labels": labels,
                "ownerReferences": [owner],
            },
            "spec": {"containers": [{"image": container["image"]}]},
            "status": {},
        }

    def _count_pods(self) -> None:
        """Write the readiness of pods into their conditions, and the counts into their sets."""
        for pod in self.pods():
            ready = "True" if self.is_ready(pod) else "False"
            pod["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        for live in self._sets():
            if "status" not in live:
                continue
            set_name, count = live["metadata"]["name"], live["spec"]["replicas"]
            keys = [ObjectKey("Pod", f"{set_name}-{ordinal}") for ordinal in range(count)]
            pods = [self.objects[key] for key in keys if key in self.objects]
            revision = live["status"]["updateRevision"]
            live["status"]["readyReplicas"] = sum(map(self.is_ready, pods))
            live["status"]["updatedReplicas"] = sum(
                pod["metadata"]["labels"][REVISION_LABEL] == revision for pod in pods
            )
        self._zookeeper_serves()


def _is_started(pod: dict[str, Any]) -> bool:
    return any(each["started"] for each in pod["status"].get("containerStatuses", ()))


def _revision(live: dict[str, Any]) -> str:
    """Return the revision of a set's current template."""
    text = json.dumps(live["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _object_key(item: tuple[ObjectKey, dict[str, Any]]) -> ObjectKey:
    return item[0]
