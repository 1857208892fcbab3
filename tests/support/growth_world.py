"""Extend the simulated world by claims with sizes, so that volumes can grow.

As in Kubernetes, a StatefulSet never changes its claim templates, a claim never shrinks, and a
volume grows in small steps: Resizing, FileSystemResizePending, capacity. A driver that is not
``online`` resizes a file system only when its pod starts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from typing_extensions import override

from tests.support.rolling_world import RollingWorld
from waltz_operator.core.names import POOL_LABEL
from waltz_operator.core.objects import Manifest, ObjectKey
from waltz_operator.core.objects.manifest import amount
from waltz_operator.core.observed import ObservedCluster
from waltz_operator.core.steps import DeleteObject, GrowVolume, OrphanPods, Step
from waltz_operator.core.volume_growth import growths_to_ask_about, is_smaller, volume_growths

REFUSAL = "only dynamically provisioned pvc can be resized"


class GrowthWorld(RollingWorld):
    """A world whose storages have claims that can grow."""

    def __init__(self, cluster: dict[str, Any], pools: list[dict[str, Any]]) -> None:
        super().__init__(cluster, pools)
        self.expandable = True
        """Whether the StorageClass allows its volumes to grow."""

        self.online = True
        """Whether the driver resizes the file systems of volumes in use."""

        self.seconds = 0
        """The present time."""

        self.orphaned: list[str] = []
        """The StatefulSets that were deleted without their pods, in this order."""

    def claims(self) -> dict[str, dict[str, Any]]:
        """Return the claims by name."""
        return {
            key.name: live
            for key, live in sorted(self.objects.items(), key=lambda item: item[0])
            if key.kind == "PersistentVolumeClaim"
        }

    def capacities(self) -> set[str]:
        """Return the capacities of all volumes."""
        return {claim["status"]["capacity"]["storage"] for claim in self.claims().values()}

    def template_sizes(self) -> set[str]:
        """Return the sizes in the claim templates of all StatefulSets of storages."""
        return {
            template["spec"]["resources"]["requests"]["storage"]
            for live in self._sets()
            if POOL_LABEL in live["metadata"]["labels"]
            for template in live["spec"]["volumeClaimTemplates"]
        }

    def pod_uids(self) -> dict[str, str]:
        """Return the uid of every pod."""
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods()}

    def specify_size(self, pool: str, size: str) -> None:
        """Change the size of a pool's volumes for partitions, as a user does."""
        self.pools[pool]["spec"]["volumes"]["data"]["size"] = size

    @override
    def observed(self) -> ObservedCluster:
        seen = super().observed()
        growths = volume_growths(self.desired(), seen)
        return replace(
            seen,
            growth_refusals={
                growth.claim: refusal
                for growth in growths_to_ask_about(growths)
                if (refusal := self.growth_refusal(growth.claim, growth.wanted)) is not None
            },
            file_system_seconds={
                growth.claim: float(self.seconds - _seconds(growth.pending_since))
                for growth in growths
                if growth.pending_since is not None
            },
        )

    @override
    def growth_refusal(self, claim: str, size: str) -> str | None:
        live = self.objects[ObjectKey("PersistentVolumeClaim", claim)]
        if is_smaller(size, _request(live)):
            return "field can not be less than previous value"
        return None if self.expandable else REFUSAL

    # ---- what happens without the operator

    @override
    def settle(self) -> None:
        super().settle()
        for _ in range(3):
            self.resize_volumes()

    @override
    def create_pods(self) -> None:
        super().create_pods()
        for live in self._sets():
            if POOL_LABEL not in live["metadata"]["labels"]:
                continue
            for ordinal in range(live["spec"]["replicas"]):
                pod = f"{live['metadata']['name']}-{ordinal}"
                if ObjectKey("Pod", pod) in self.objects:
                    self._create_claims(live, pod)

    def resize_volumes(self) -> None:
        """Let Kubernetes take the next step of every growth."""
        self.seconds += 1
        for claim in self.claims().values():
            status, request = claim["status"], _request(claim)
            if not is_smaller(status["capacity"]["storage"], request):
                continue
            conditions = [each["type"] for each in status["conditions"]]
            if "FileSystemResizePending" in conditions:
                if self.online or self._has_started_since(claim):
                    status["capacity"] = {"storage": request}
                    status["conditions"] = []
            elif "Resizing" in conditions:
                status["conditions"] = [self._condition("FileSystemResizePending")]
            else:
                status["conditions"] = [self._condition("Resizing")]
            self._touch(claim)

    # ---- overridden parts

    @override
    def perform(self, step: Step) -> None:
        match step:
            case GrowVolume(claim, version, size):
                live = self.objects[ObjectKey("PersistentVolumeClaim", claim)]
                assert live["metadata"]["resourceVersion"] == version
                assert self.growth_refusal(claim, size) is None, "the API server refuses the step"
                live["spec"]["resources"]["requests"]["storage"] = size
                self._touch(live)
            case OrphanPods(workload, uid):
                key = ObjectKey("StatefulSet", workload)
                assert self.objects[key]["metadata"]["uid"] == uid
                self.check_no_pod_needs(workload)
                self.orphan(key)
            case DeleteObject(ObjectKey("StatefulSet", name), _):
                super().perform(step)
                owned = [pod["metadata"]["name"] for pod in self.pods()]
                for pod in owned:
                    if pod.rpartition("-")[0] == name:
                        self.stop_pod(pod)
            case _:
                super().perform(step)

    def check_no_pod_needs(self, workload: str) -> None:
        """Check that all pods of a StatefulSet run its current version."""
        outdated = [name for name in self.outdated() if name.startswith(f"{workload}-")]
        assert not outdated, f"{workload} is deleted while {outdated} are outdated or missing"

    @override
    def orphan(self, key: ObjectKey) -> None:
        self.orphaned.append(key.name)
        super().orphan(key)

    @override
    def apply(self, manifest: Manifest) -> None:
        templates = self.objects.get(manifest.key, {}).get("spec", {}).get("volumeClaimTemplates")
        super().apply(manifest)
        if templates is not None:
            new = self.objects[manifest.key]["spec"]["volumeClaimTemplates"]
            assert [_size(each) for each in new] == [_size(each) for each in templates]
        if manifest.key.kind == "StatefulSet":
            # The new set adopts the pods that an earlier one left behind.
            for pod in self.pods():
                if pod["metadata"]["name"].startswith(f"{manifest.key.name}-"):
                    pod["metadata"]["ownerReferences"] = [{"name": manifest.key.name}]

    @override
    def _create_pod(self, name: str, live: dict[str, Any]) -> None:
        super()._create_pod(name, live)
        metadata = self.objects[ObjectKey("Pod", name)]["metadata"]
        metadata["creationTimestamp"] = _time(self.seconds)

    def _create_claims(self, live: dict[str, Any], pod: str) -> None:
        for template in live["spec"]["volumeClaimTemplates"]:
            key = ObjectKey("PersistentVolumeClaim", f"{template['metadata']['name']}-{pod}")
            if key in self.objects:
                continue
            size = template["spec"]["resources"]["requests"]["storage"]
            self.objects[key] = {
                "metadata": {"name": key.name, "labels": dict(template["metadata"]["labels"])},
                "spec": {"resources": {"requests": {"storage": size}}},
                "status": {"phase": "Bound", "capacity": {"storage": size}, "conditions": []},
            }
            self._touch(self.objects[key])

    def _touch(self, live: dict[str, Any]) -> None:
        """Give an object a new version, and a uid if it has none."""
        self._uids += 1
        live["metadata"]["resourceVersion"] = str(self._uids)
        live["metadata"].setdefault("uid", f"uid-{self._uids}")

    def _condition(self, kind: str) -> dict[str, str]:
        return {"type": kind, "status": "True", "lastTransitionTime": _time(self.seconds)}

    def _has_started_since(self, claim: dict[str, Any]) -> bool:
        pod = self.objects.get(ObjectKey("Pod", claim["metadata"]["name"].partition("-")[2]))
        (pending,) = claim["status"]["conditions"]
        return pod is not None and pod["metadata"]["creationTimestamp"] > str(
            pending["lastTransitionTime"]
        )


def _request(claim: dict[str, Any]) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])


def _size(template: dict[str, Any]) -> object:
    return amount(template["spec"]["resources"]["requests"]["storage"])


def _time(seconds: int) -> str:
    return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def _seconds(time: str) -> int:
    hours, minutes, seconds = time[11:19].split(":")
    return 3600 * int(hours) + 60 * int(minutes) + int(seconds)
