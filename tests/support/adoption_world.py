"""Simulate a cluster that ran before the operator: its storages, its servers and its znodes.

`AdoptionWorld.perform` fails if a step changes a foreign storage in another way than a retirement
does, if a foreign copy is given up before three pools have one, or if a pool gets a copy while
foreign servers run.
"""

from __future__ import annotations

import uuid
from typing import Any

from typing_extensions import override

from tests.support.operator_world import (
    Znodes,
    cluster_resource,
    fresh_replica,
    pool_resource,
)
from tests.support.shape_world import ShapeWorld
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    CreateReplicas,
    DropReplicas,
    SwitchOff,
    SwitchOn,
)
from waltz.metadata.core import storage_maps
from waltz.metadata.core.storage_maps import ReplicaChange, StorageMaps
from waltz_operator.core import names
from waltz_operator.core.names import Component
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.steps import Step

KEY = uuid.UUID("01234567-89ab-4def-8123-456789abcdef")
NAME = "orders"
OLD_SERVER = "10.9.0.1:6100"
MIN_COPIES = 3


def foreign_storage(group: int, number: int = 0) -> str:
    """Return the address of a storage that runs elsewhere."""
    return f"old-{group}-{number}:5000"


def adopting_resource(partitions: int, pools: list[str], **spec: Any) -> dict[str, Any]:
    """Return a WaltzCluster that adopts the cluster `NAME`."""
    adopting = {
        "partitions": partitions,
        "pools": pools,
        "zookeeper": {"external": {"connectString": "zk:2181"}},
        "clusterKey": str(KEY),
        "adopt": {"clusterName": NAME},
        "tls": {"mode": "None"},
        "networkPolicies": False,
    }
    return cluster_resource(**adopting | spec)


class AdoptionWorld(ShapeWorld):
    """A running cluster with foreign storages, one group for each number in ``groups``.

    The number says how many storages the group has: (1, 1, 1) is three groups of one storage.
    ``pools`` are the pools of the spec; ``others`` are StoragePools that exist beside them.
    """

    def __init__(
        self,
        groups: tuple[int, ...] = (1, 1, 1),
        partitions: int = 3,
        pools: str = "abc",
        others: str = "",
        **spec: Any,
    ) -> None:
        resource = adopting_resource(partitions, list(pools), **spec)
        super().__init__(resource, [pool_resource(name) for name in pools + others])
        self.old_servers = frozenset({OLD_SERVER})
        """The servers of the cluster that run elsewhere, until a test stops them."""
        self.znodes = Znodes(NAME, partitions, KEY, _maps(groups, partitions))
        for storage, held in self.znodes.maps.assignments.partitions.items():
            self.disks[storage] = {partition: fresh_replica(partition) for partition in held}
        self.foreign = frozenset(self.disks)
        """The foreign storages, also those that are not registered any more."""
        self.settle()

    @property
    def maps(self) -> StorageMaps:
        """The storage maps."""
        assert isinstance(self.znodes, Znodes)
        return self.znodes.maps

    def specify(self, **spec: Any) -> None:
        """Change fields of the spec of the cluster."""
        assert self.cluster is not None
        self.cluster["spec"] |= spec
        self.cluster["metadata"]["generation"] += 1

    def retire(self, foreign_groups: str = "Retire") -> None:
        """Ask for the retirement of the foreign groups, or with ``Keep`` withdraw it."""
        self.specify(adopt={"clusterName": NAME, "foreignGroups": foreign_groups})

    def copies_on(self, foreign: bool) -> list[int]:
        """Return how many copies of each partition are on foreign storages, or in pools."""
        views = (self.view(partition) for partition in range(self._num_partitions))
        return [sum((s in self.foreign) is foreign for s in view.replicas) for view in views]

    @override
    def perform(self, step: Step) -> None:
        """Perform a step and check it. Raises StepRefused."""
        match step:
            case CreateReplicas() | SwitchOn() | SwitchOff():
                assert step.storage not in self.foreign, f"a foreign storage is changed: {step}"
            case CopyReplica():
                assert step.destination not in self.foreign, f"a foreign copy is cut: {step}"
            case DropReplicas() if step.storage in self.foreign:
                assert not step.delete_files, "a foreign storage keeps its files"
            case ChangeAssignment(changes, _):
                for change in changes:
                    self._check_adoption(change)
            case _:
                pass
        super().perform(step)

    def _check_adoption(self, change: ReplicaChange) -> None:
        present = frozenset(self.maps.assignments.storages_of(change.partition))
        if present != change.expected:
            return  # The compare-and-set fails.
        new, lost = change.wanted - change.expected, change.expected - change.wanted
        if not self.acts_late:
            # Foreign servers perhaps cannot reach the storages of pools.
            gets_copy_too_early = new - self.foreign and self.old_servers
            assert not gets_copy_too_early, "a pool gets a copy while foreign servers run"
        if lost & self.foreign:
            assert len(change.wanted - self.foreign) >= MIN_COPIES, "too few copies in pools remain"

    @property
    def _num_partitions(self) -> int:
        assert isinstance(self.znodes, Znodes)
        return self.znodes.num_partitions

    @override
    def _run_servers(self) -> None:
        """Run the servers of the spec as pods with addresses, beside the foreign servers.

        The operator recognizes its own servers by the addresses of their pods; the base class runs
        servers without pods. The WaltzCluster is named ``log``: `NAME` is its name in ZooKeeper.
        """
        found = self.objects.get(ObjectKey("Deployment", "log-server"))
        count = 0 if found is None else found["spec"]["replicas"]
        pods = {ObjectKey("Pod", f"log-server-{i}"): f"10.0.0.{i}" for i in range(count)}
        for key in [each for each in self.objects if each.name.startswith("log-server-")]:
            if key.kind == "Pod" and key not in pods:
                del self.objects[key]
        for key, address in pods.items():
            labels = names.labels("log", Component.SERVER)
            owner = {"kind": "ReplicaSet", "name": "log-server"}
            self.objects[key] = {
                "metadata": {
                    "name": key.name,
                    "labels": labels,
                    "uid": key.name,
                    "ownerReferences": [owner],
                },
                "status": {"podIP": address},
            }
        self.servers = frozenset(f"{each}:6100" for each in pods.values()) | self.old_servers
        if self.servers and isinstance(self.znodes, Znodes):
            for partition in range(self.znodes.num_partitions):
                if self.opens(partition):
                    self._open(self.znodes, partition)


def _maps(groups: tuple[int, ...], partitions: int) -> StorageMaps:
    """Return the storage maps of the foreign cluster."""
    maps = StorageMaps.empty()
    for group, count in enumerate(groups):
        for number in range(count):
            maps = storage_maps.add_storage_node(maps, foreign_storage(group, number), group, 5001)
        maps = storage_maps.auto_assign(maps, group, partitions)
    return maps
