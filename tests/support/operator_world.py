"""Simulate Kubernetes, ZooKeeper and one cluster's processes, as far as plans depend on them.

All state is plain values. `perform` performs a step of a plan, `settle` does what controllers,
storages and servers do on their own. Between the two, tests inject damage.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from waltz.admin import HeldPartition
from waltz.admin.core.replicas import (
    LAG_ALLOWED,
    PartitionView,
    ReplicaObservation,
    StorageReplicas,
    session_opens,
)
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    CreateReplicas,
    DropReplicas,
    RegisterStorage,
    SwitchOff,
    SwitchOn,
    UnregisterStorage,
)
from waltz.metadata.core import storage_maps
from waltz.metadata.core.formats import (
    NEW_PARTITION,
    UNRESOLVED,
    PartitionMetadata,
    ReplicaState,
)
from waltz.metadata.core.storage_maps import StorageMaps
from waltz_operator.core import names
from waltz_operator.core.authority import Holder
from waltz_operator.core.desired import DesiredCluster, addresses_of, ordinal_of
from waltz_operator.core.names import CLUSTER_LABEL, FINALIZER, Component
from waltz_operator.core.objects import Manifest, ObjectKey
from waltz_operator.core.observed import (
    ClusterAbsent,
    ClusterIncomplete,
    ClusterMalformed,
    ClusterPresent,
    ObservedCluster,
    ZooKeeperUnreachable,
)
from waltz_operator.core.resources import StoragePool, WaltzCluster
from waltz_operator.core.steps import (
    AddFinalizer,
    ApplyObject,
    ClaimPool,
    CreateMetadata,
    DeleteMetadata,
    DeleteObject,
    IssueCertificates,
    ReleasePool,
    RemoveFinalizer,
    Step,
)

NAMESPACE = "logs"
UID = "11111111-2222-3333-4444-555555555555"


def cluster_resource(**spec: Any) -> dict[str, Any]:
    """Return a WaltzCluster as the API server stores it."""
    spec = {"partitions": 4, "pools": ["a", "b", "c"], "zookeeper": {"managed": {}}} | spec
    metadata = {"name": "log", "namespace": NAMESPACE, "uid": UID, "generation": 1}
    return {"metadata": metadata, "spec": spec}


def pool_resource(name: str, **spec: Any) -> dict[str, Any]:
    """Return a StoragePool as the API server stores it."""
    spec = {"storages": 1, "volumes": {"data": {"size": "1Gi"}}} | spec
    uid = str(uuid.uuid5(uuid.UUID(UID), name))
    return {"metadata": {"name": name, "namespace": NAMESPACE, "uid": uid}, "spec": spec}


@dataclass
class Znodes:
    """The metadata of one cluster in ZooKeeper."""

    name: str
    num_partitions: int
    key: uuid.UUID
    maps: StorageMaps = field(default_factory=StorageMaps.empty)
    metadata: dict[int, PartitionMetadata] = field(default_factory=dict)
    outside: Mapping[str, str] | None = None
    outside_problem: str = ""


class World:
    """The whole state. Tests read and damage the attributes."""

    def __init__(self, cluster: dict[str, Any], pools: list[dict[str, Any]]) -> None:
        self.cluster: dict[str, Any] | None = deepcopy(cluster)
        self.pools = {each["metadata"]["name"]: deepcopy(each) for each in pools}
        self.objects: dict[ObjectKey, dict[str, Any]] = {}
        """The objects of the cluster in Kubernetes, without its resources."""
        self.znodes: Znodes | ClusterIncomplete | ClusterMalformed | None = None
        """What is at the cluster's root in ZooKeeper; None if the root does not exist."""
        self.zookeeper_up = True
        self.disks: dict[str, dict[int, HeldPartition]] = {}
        """The replicas of each storage that has ever run, by its address and by partition."""
        self.down: set[str] = set()
        """The storages that do not run now."""
        self.servers: frozenset[str] = frozenset()
        """The servers that have joined."""
        self.deleting_seconds = 0.0
        self.lag_allowed = LAG_ALLOWED
        self.zookeeper_leader: str | None = None
        self._uids = 0
        """How many uids of objects were given out."""

    # ---- observations of the operator

    def desired(self) -> DesiredCluster:
        """Return the desired state."""
        assert self.cluster is not None
        cluster = WaltzCluster.model_validate(self.cluster)
        wanted = [self.pools[name] for name in cluster.spec.pools if name in self.pools]
        leaving = [
            pool
            for name, pool in sorted(self.pools.items())
            if name not in cluster.spec.pools
            and pool["metadata"].get("labels", {}).get(CLUSTER_LABEL) == "log"
        ]
        return DesiredCluster(
            cluster,
            tuple(StoragePool.model_validate(each) for each in wanted),
            leaving_pools=tuple(StoragePool.model_validate(each) for each in leaving),
        )

    def observed(self) -> ObservedCluster:
        """Return the observed state."""
        return ObservedCluster(
            dict(self.objects),
            self._metadata(),
            None,
            deleting_seconds=self.deleting_seconds,
            zookeeper_leader=self.zookeeper_leader,
        )

    def _metadata(
        self,
    ) -> (
        ZooKeeperUnreachable | ClusterAbsent | ClusterIncomplete | ClusterMalformed | ClusterPresent
    ):
        if not self._zookeeper_serves():
            return ZooKeeperUnreachable("connection refused")
        match self.znodes:
            case None:
                return ClusterAbsent()
            case Znodes(name, count, key, maps) as found:
                return ClusterPresent(
                    name,
                    count,
                    key,
                    maps,
                    self.replicas(),
                    self.servers,
                    outside=found.outside,
                    outside_problem=found.outside_problem,
                )
            case other:
                return other

    def _zookeeper_serves(self) -> bool:
        assert self.cluster is not None
        if "managed" not in self.cluster["spec"]["zookeeper"]:
            return self.zookeeper_up
        found = self.objects.get(ObjectKey("StatefulSet", "log-zookeeper"))
        return self.zookeeper_up and found is not None and "status" in found

    def replicas(self) -> ReplicaObservation:
        """Return what waltz.admin would observe."""
        assert isinstance(self.znodes, Znodes)
        maps = self.znodes.maps
        known = {*maps.groups.groups, *maps.connections.admin_ports, *maps.assignments.partitions}
        return ReplicaObservation(
            maps,
            self.znodes.num_partitions,
            {p: self.view(p) for p in range(self.znodes.num_partitions)},
            {
                storage: StorageReplicas(dict(self.disks[storage]))
                if self.is_reachable(storage)
                else StorageReplicas(problem="connection refused")
                for storage in known
            },
            lag_allowed=self.lag_allowed,
        )

    def view(self, partition: int) -> PartitionView:
        """Return the view of one partition."""
        assert isinstance(self.znodes, Znodes)
        metadata = self.znodes.metadata.get(partition, NEW_PARTITION)
        replicas = frozenset(self.znodes.maps.assignments.storages_of(partition))
        served = self.servers and self.opens(partition)
        problem = None if served else "no server has it open"
        return PartitionView(partition, replicas, metadata, problem)

    def is_reachable(self, storage: str) -> bool:
        """Whether a storage answers."""
        return storage in self.disks and storage not in self.down

    def opens(self, partition: int) -> bool:
        """Whether servers could open a partition with the reachable, switched-on replicas.

        A disk that was emptied has an older session than the metadata, and does not support a vote.
        Replicas that were not in the last session have no vote anyway.
        """
        assert isinstance(self.znodes, Znodes)
        metadata = self.znodes.metadata.get(partition, NEW_PARTITION)
        assigned = frozenset(self.znodes.maps.assignments.storages_of(partition))
        up = frozenset(s for s in assigned if self._takes_part(s, partition))
        up_to_date = frozenset(
            s
            for s in metadata.replicas
            if s in up and self.disks[s][partition].session_id >= metadata.replicas[s].session_id
        )
        last = frozenset(metadata.replicas)
        opens_now = bool(assigned) and session_opens(up, assigned, frozenset())
        knows_committed = not last or session_opens(up_to_date | (up - last), assigned, last)
        return opens_now and knows_committed

    def _takes_part(self, storage: str, partition: int) -> bool:
        """Whether a storage answers, and its replica of a partition is switched on."""
        held = self.disks[storage].get(partition) if self.is_reachable(storage) else None
        return held is not None and held.available

    # ---- what happens without the operator

    def settle(self) -> None:
        """Let controllers, storages and servers work."""
        for key, live in list(self.objects.items()):
            if key.kind in ("StatefulSet", "Deployment"):
                count = live["spec"]["replicas"]
                live["status"] = {"readyReplicas": count, "updatedReplicas": count}
        self._run_storages()
        self._run_servers()

    def _run_storages(self) -> None:
        if not isinstance(self.znodes, Znodes):
            return
        for pool in self.desired().own_pools:
            found = self.objects.get(
                ObjectKey("StatefulSet", names.storage_set(pool.metadata.name))
            )
            count = 0 if found is None else found["spec"]["replicas"]
            known = {s for s in self.disks if ordinal_of(pool, s) is not None}
            wanted = addresses_of(
                pool.model_copy(update={"spec": pool.spec.model_copy(update={"storages": count})})
            )
            for storage in wanted:
                self.disks.setdefault(storage, {})
            self.down -= {s for s in known if s in wanted}
            self.down |= known - {*wanted}

    def _run_servers(self) -> None:
        found = self.objects.get(ObjectKey("Deployment", "log-server"))
        count = 0 if found is None else found["spec"]["replicas"]
        self.servers = frozenset(f"server-{i}" for i in range(count))
        if self.servers and isinstance(self.znodes, Znodes):
            for partition in range(self.znodes.num_partitions):
                if self.opens(partition):
                    self._open(self.znodes, partition)

    def _open(self, znodes: Znodes, partition: int) -> None:
        """Begin a new store session, if an available replica is not in the current one."""
        old = znodes.metadata.get(partition, NEW_PARTITION)
        assigned = znodes.maps.assignments.storages_of(partition)
        available = [s for s in assigned if self._takes_part(s, partition)]
        in_session = {
            s: state for s, state in old.replicas.items() if state.session_id == old.session_id
        }
        if {*available} == {*in_session} and {*assigned} == {*old.replicas}:
            return
        session = old.session_id + 1
        absent = ReplicaState(-1, -1)
        states = {s: old.replicas.get(s, absent) for s in assigned}
        states |= {s: ReplicaState(session, UNRESOLVED) for s in available}
        znodes.metadata[partition] = PartitionMetadata(1, session, states)
        for storage in available:
            held = self.disks[storage][partition]
            # Each session appends one transaction, which has the id of the session.
            self.disks[storage][partition] = replace(
                held,
                session_id=session,
                low_water_mark=session - 1,
                local_low_water_mark=session - 1,
                max_transaction_id=session,
            )

    # ---- changes by the operator

    def perform(self, step: Step) -> None:
        """Perform one step."""
        # Only the release of a pool may follow the removal of the finalizer.
        assert self.cluster is not None or isinstance(step, ReleasePool)
        match step:
            case AddFinalizer():
                assert self.cluster is not None
                self.cluster["metadata"]["finalizers"] = [FINALIZER]
            case RemoveFinalizer():
                self.cluster = None
            case ClaimPool(pool, _):
                metadata = self.pools[pool]["metadata"]
                metadata["labels"] = {CLUSTER_LABEL: "log"}
                metadata["finalizers"] = [FINALIZER]
            case ReleasePool(pool):
                metadata = self.pools[pool]["metadata"]
                metadata["labels"], metadata["finalizers"] = {}, []
            case ApplyObject(manifest, _):
                self.apply(manifest)
            case DeleteObject(key, uid):
                assert self.objects[key]["metadata"].get("uid", "") == uid
                del self.objects[key]
            case IssueCertificates():
                self._issue(step.holder)
            case CreateMetadata(name, count, key):
                assert self.znodes is None
                self.znodes = Znodes(name, count, key)
            case DeleteMetadata():
                self.znodes = None
            case _:
                self._perform_on_replicas(step)

    def apply(self, manifest: Manifest) -> None:
        """Apply a manifest as the server does: fields of other owners stay."""
        live = self.objects.get(manifest.key)
        if live is None:
            self._uids += 1
            live = self.objects[manifest.key] = {"metadata": {"uid": f"uid-{self._uids}"}}
        _merge(live, manifest.body)

    def orphan(self, key: ObjectKey) -> None:
        """Delete a workload; its pods stay without an owner."""
        del self.objects[key]
        for other, live in self.objects.items():
            if other.kind == "Pod" and other.name.startswith(f"{key.name}-"):
                live["metadata"]["ownerReferences"] = []

    def growth_refusal(self, claim: str, size: str) -> str | None:
        """Return why the API server would refuse that a claim requests ``size``."""
        return None

    def _issue(self, holder: Holder) -> None:
        labels = names.labels("log", Component.CLUSTER)
        issued = "log-tls" if holder is Holder.PROCESSES else "log-tls-client"
        for name in ("log-authority", issued):
            self.objects[ObjectKey("Secret", name)] = {
                "metadata": {"name": name, "labels": labels, "uid": name},
                "data": {"ca.crt": "", "tls.crt": "", "tls.key": ""},
            }

    def _perform_on_replicas(self, step: Step) -> None:
        """Perform a step of `waltz.admin`: in the storage maps, or at a storage."""
        znodes = self.znodes
        assert isinstance(znodes, Znodes)
        match step:
            case RegisterStorage(storage, group, admin_port):
                znodes.maps = storage_maps.add_storage_node(znodes.maps, storage, group, admin_port)
            case UnregisterStorage(storage):
                znodes.maps = storage_maps.remove_storage_node(znodes.maps, storage)
            case ChangeAssignment(changes, _):
                znodes.maps = storage_maps.change_replicas(znodes.maps, changes)
            case CopyReplica(source, destination, partition):
                self._copy(source, destination, partition)
            case CreateReplicas() | SwitchOn() | SwitchOff() | DropReplicas():
                assert self.is_reachable(step.storage)
                self._perform_at_storage(step)

    def _perform_at_storage(
        self, step: CreateReplicas | SwitchOn | SwitchOff | DropReplicas
    ) -> None:
        held = self.disks[step.storage]
        for partition in step.partitions:
            match step:
                case CreateReplicas():
                    held.setdefault(partition, fresh_replica(partition))
                case SwitchOn():
                    held[partition] = replace(held[partition], readable=True, writable=True)
                case SwitchOff():
                    held[partition] = replace(held[partition], readable=False, writable=False)
                case DropReplicas():
                    held.pop(partition, None)

    def _copy(self, source: str, destination: str, partition: int) -> None:
        held, filled = self.disks[destination][partition], self.disks[source][partition]
        assert not held.available, "only a replica that is switched off is filled"
        end = max(held.low_water_mark, filled.local_low_water_mark)
        self.disks[destination][partition] = replace(
            held, low_water_mark=end, local_low_water_mark=end, max_transaction_id=end
        )

    def quorum_states(self) -> Iterator[tuple[int, bool]]:
        """Yield each partition that may have transactions, and whether servers can open it."""
        if isinstance(self.znodes, Znodes):
            for partition, metadata in self.znodes.metadata.items():
                if metadata.replicas:
                    yield partition, self.opens(partition)


def fresh_replica(partition: int) -> HeldPartition:
    """Return what a storage reports of a newly created replica."""
    return HeldPartition(partition, -1, -1, -1, -1, 0, True, True)


def _merge(live: dict[str, Any], wanted: Mapping[str, Any]) -> None:
    for key, each in wanted.items():
        if isinstance(each, Mapping) and isinstance(live.get(key), dict):
            _merge(live[key], each)
        else:
            live[key] = deepcopy(each)
