"""Define the operator's shell on a simulated world: an API server with faults, a real store.

The API server keeps resource versions and refuses outdated writes. It injects faults: it fails
before or after a write, returns an outdated list, or kills the operator during a call.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from tests.support.operator_world import World, Znodes
from waltz.admin import ComparisonResult, MayContinue, ObservationScope, ReplicaObservation
from waltz.admin import Step as ReplicaStep
from waltz.admin.core.steps import (
    ChangeAssignment,
    RegisterStorage,
    UnregisterStorage,
)
from waltz.admin.execution import perform_in_metadata
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import ServerDescriptor
from waltz.metadata.outside import read_outside_addresses
from waltz.metadata.store import MetadataStore, StoreConnectionLost
from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import Component
from waltz_operator.core.objects import Manifest, ObjectKey
from waltz_operator.core.resources import ObjectMeta, WaltzCluster
from waltz_operator.core.shape_change import ShapeChange
from waltz_operator.core.steps import Step
from waltz_operator.shell.environment import ReplicaAccess
from waltz_operator.shell.kube_api import Conflict, KubeError


class Killed(BaseException):
    """The operator was killed during a call."""


class Faults:
    """Decides which calls fail, and how.

    With ``dice``, calls fail at random. Without, only the call with the number ``kill_at`` fails:
    it kills the operator. ``calls`` counts the calls that have had their effect.
    """

    def __init__(self, dice: random.Random | None = None) -> None:
        self.dice = dice
        self.kill_at: int | None = None
        self.calls = 0

    def before(self) -> None:
        """Maybe fail before the call has an effect."""
        if self._happens(0.03):
            raise KubeError("the API server did not answer")

    def after(self) -> None:
        """Maybe fail after the call has had its effect."""
        self.calls += 1
        if self.calls == self.kill_at or self._happens(0.03):
            raise Killed
        if self._happens(0.03):
            raise KubeError("the API server's answer was lost")

    def is_list_outdated(self) -> bool:
        """Decide whether a list shows the objects before the last write."""
        return self._happens(0.1)

    def _happens(self, probability: float) -> bool:
        return self.dice is not None and self.dice.random() < probability


class FaultyKube:
    """A `waltz_operator.shell.kube_api.Kube` over a simulated world."""

    def __init__(self, world: World, faults: Faults) -> None:
        self._world = world
        self._faults = faults
        self._version = 0
        self._before: dict[ObjectKey, dict[str, Any]] = {}
        """The objects before the last write, which an outdated list shows."""

    async def get(self, kind: str, namespace: str, name: str) -> Any:
        """See Kube."""
        self._faults.before()
        return deepcopy(self._find(kind, name))

    async def find(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Any]:
        """See Kube."""
        self._faults.before()
        objects = self._before if self._faults.is_list_outdated() else self._world.objects
        if kind == "StoragePool":
            objects = {
                ObjectKey(kind, name): pool for name, pool in sorted(self._world.pools.items())
            }
        return [
            deepcopy(live)
            for key, live in objects.items()
            if key.kind == kind and labels.items() <= live["metadata"].get("labels", {}).items()
        ]

    async def create(self, body: Mapping[str, Any]) -> None:
        """See Kube."""
        self._faults.before()
        key = ObjectKey(body["kind"], body["metadata"]["name"])
        if key in self._world.objects:
            raise Conflict(f"{key} exists")
        self._write(key, body)
        self._faults.after()

    async def apply(self, body: Mapping[str, Any]) -> None:
        """See Kube."""
        self._faults.before()
        key = ObjectKey(body["kind"], body["metadata"]["name"])
        version = body["metadata"].get("resourceVersion")
        found = self._world.objects.get(key, {"metadata": {}})
        if version not in (None, "", found["metadata"].get("resourceVersion", "")):
            raise Conflict(f"{key} has changed")
        self._write(key, body)
        self._faults.after()

    async def patch(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any], *, part: str = ""
    ) -> None:
        """See Kube."""
        self._faults.before()
        found = self._find(kind, name)
        if found is None:
            raise KubeError(f"{kind} {name} not found")
        version = change.get("metadata", {}).get("resourceVersion")
        if version not in (None, "", found["metadata"].get("resourceVersion", "")):
            raise Conflict(f"{kind} {name} has changed")
        _merge_patch(found, change)
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        if found["metadata"].get("deletionTimestamp") and not found["metadata"]["finalizers"]:
            self._remove(kind, name)
        self._faults.after()

    async def patch_refusal(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any]
    ) -> str | None:
        """See Kube."""
        self._faults.before()
        assert kind == "PersistentVolumeClaim", "only claims are asked about"
        return self._world.growth_refusal(name, change["spec"]["resources"]["requests"]["storage"])

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str, *, orphan: bool = False
    ) -> None:
        """See Kube."""
        self._faults.before()
        key = ObjectKey(kind, name)
        found = self._world.objects.get(key)
        if found is not None and found["metadata"]["uid"] == uid:
            self._before = deepcopy(self._world.objects)
            if orphan:
                self._world.orphan(key)
            else:
                del self._world.objects[key]
        self._faults.after()

    def _find(self, kind: str, name: str) -> dict[str, Any] | None:
        match kind:
            case "WaltzCluster":
                cluster = self._world.cluster
                named = cluster is not None and cluster["metadata"]["name"] == name
                return cluster if named else None
            case "StoragePool":
                return self._world.pools.get(name)
            case _:
                return self._world.objects.get(ObjectKey(kind, name))

    def _remove(self, kind: str, name: str) -> None:
        if kind == "WaltzCluster":
            self._world.cluster = None
        else:
            del self._world.pools[name]

    def _write(self, key: ObjectKey, body: Mapping[str, Any]) -> None:
        self._before = deepcopy(self._world.objects)
        self._world.apply(Manifest(key, body))
        self._version += 1
        self._world.objects[key]["metadata"]["resourceVersion"] = str(self._version)


class StoredZnodes:
    """Keeps a world's metadata in a store that behaves like ZooKeeper."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.zookeeper = MemoryZooKeeper()
        self.session: MemoryStore = self.zookeeper.connect()
        self._cluster: Cluster | None = None

    async def settle(self, desired: DesiredCluster) -> None:
        """Let controllers, storages and servers work, and write their metadata into the store."""
        await self.load(desired)
        before = dict(self.world.znodes.metadata) if isinstance(self.world.znodes, Znodes) else {}
        self.world.settle()
        if isinstance(self.world.znodes, Znodes):
            cluster = Cluster(self.session, desired.root)
            for partition, new in self.world.znodes.metadata.items():
                if before.get(partition) != new:
                    version = (await cluster.partition_metadata(partition)).version
                    await cluster.write_partition_metadata(partition, new, version)
            await self._join(cluster)

    async def load(self, desired: DesiredCluster) -> None:
        """Copy the metadata from the store into the world."""
        cluster = Cluster(self.session, desired.root)
        try:
            params, store_params = await cluster.params(), await cluster.store_params()
            maps = await cluster.storage_maps()
        except NoCluster:
            self.world.znodes = None
            return
        znodes = Znodes(params.name, params.num_partitions, store_params.key, maps)
        for partition in range(params.num_partitions):
            path = cluster.paths.partition(partition)
            if await self.session.get(path) is not None:
                znodes.metadata[partition] = (await cluster.partition_metadata(partition)).value
        with contextlib.suppress(MalformedMetadata):
            outside = await read_outside_addresses(cluster)
            znodes.outside = None if outside is None else outside.value.addresses
        self.world.znodes = znodes

    async def _join(self, cluster: Cluster) -> None:
        """Add the running servers to the store; servers that leave are not removed."""
        known = {each.host for each in (await cluster.membership()).servers().values()}
        for host in sorted(self.world.servers - known):
            descriptor = ServerDescriptor(await cluster.next_server_id(), host, 6100)
            await self.session.create(
                cluster.paths.new_server_descriptor,
                descriptor.encode(),
                ephemeral=True,
                sequence=True,
            )


class FakeEnvironment:
    """Connections to a cluster's simulated processes."""

    def __init__(self, znodes: StoredZnodes, faults: Faults) -> None:
        self.disconnected: list[tuple[str, str]] = []
        """The clusters whose connections were closed: namespace and name."""
        self._znodes = znodes
        self._faults = faults

    async def metadata_store(self, desired: DesiredCluster) -> MetadataStore:
        """See Environment."""
        if not self._znodes.world._zookeeper_serves():
            raise StoreConnectionLost("connection refused")
        return self._znodes.session

    async def replica_access(self, desired: DesiredCluster, cluster: Cluster) -> ReplicaAccess:
        """See Environment."""
        return _SimulatedReplicas(self._znodes, cluster, desired, self._faults)

    async def zookeeper_leader(self, desired: DesiredCluster) -> str | None:
        """See Environment."""
        return self._znodes.world.zookeeper_leader

    async def presented_serial(
        self, desired: DesiredCluster, component: Component, host: str, port: int
    ) -> int | None:
        """See Environment."""
        return None

    def forget_certificates(self, desired: DesiredCluster) -> None:
        """See Environment."""

    async def disconnect(self, namespace: str, name: str) -> None:
        """See Environment."""
        self.disconnected.append((namespace, name))


class _SimulatedReplicas:
    """A `ReplicaAccess` to the simulated storages."""

    def __init__(
        self, znodes: StoredZnodes, cluster: Cluster, desired: DesiredCluster, faults: Faults
    ) -> None:
        self._znodes = znodes
        self._cluster = cluster
        self._desired = desired
        self._faults = faults

    async def observe(self, scope: ObservationScope) -> ReplicaObservation:
        """See ReplicaAccess."""
        await self._znodes.load(self._desired)
        return self._znodes.world.replicas()

    async def perform(self, step: ReplicaStep, may_continue: MayContinue = lambda: True) -> None:
        """See ReplicaAccess."""
        self._faults.before()
        match step:
            case ChangeAssignment() | RegisterStorage() | UnregisterStorage():
                await perform_in_metadata(self._cluster, step)
            case _:
                self._znodes.world.perform(step)
        self._faults.after()

    async def compare(
        self, partition: int, first_id: int, may_continue: MayContinue
    ) -> ComparisonResult:
        """See ReplicaAccess."""
        raise AssertionError("no volume is replaced")


class RecordedEvents:
    """An event recorder that keeps the events in memory."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.failures: list[str] = []

    def record_steps(
        self, cluster: WaltzCluster, steps: Sequence[Step], change: ShapeChange | None = None
    ) -> None:
        """See EventRecorder."""
        self.done.extend(map(str, steps))

    def record_failed_step(self, cluster: WaltzCluster, message: str) -> None:
        """See EventRecorder."""
        self.failures.append(message)

    def record_failed_reconcile(self, cluster: ObjectMeta, reason: str, message: str) -> None:
        """See EventRecorder."""
        self.failures.append(f"{reason}: {message}")


def delete_by_user(world: World) -> None:
    """Mark the cluster and its pools as deleted, as kubectl delete does."""
    assert world.cluster is not None
    for found in (world.cluster, *world.pools.values()):
        found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def _merge_patch(found: dict[str, Any], change: Mapping[str, Any]) -> None:
    for key, each in change.items():
        if each is None:
            found.pop(key, None)
        elif isinstance(each, Mapping):
            _merge_patch(found.setdefault(key, {}), each)
        else:
            found[key] = deepcopy(each)
