"""A real cluster in one process that an operator adopts, and a Kubernetes that runs its pods.

The storages and servers of `InProcessCluster` are the foreign ones. `PodRunner` starts a real
storage for each pod of a StatefulSet, and a real server for each pod of the Deployment.
"""

from __future__ import annotations

import uuid
from typing import Any

from tests.support.operator_faults import Faults, FaultyKube
from tests.support.operator_world import NAMESPACE, World, cluster_resource, pool_resource
from waltz.admin import ComparisonResult, MayContinue, OrderExecutor
from waltz.metadata import MetadataStore
from waltz.metadata.cluster import Cluster
from waltz.net import PLAINTEXT
from waltz.testing import InProcessCluster
from waltz.testing.nodes import (
    ADMIN_PORT,
    ROOT,
    SERVER_PORT,
    SESSION_MS,
    STORAGE_PORT,
    InProcessServer,
    InProcessStorage,
)
from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import Component
from waltz_operator.core.objects import ObjectKey
from waltz_operator.shell.environment import ReplicaAccess

_ANSWER_SECONDS = 3.0


def adopting_world(cluster: InProcessCluster, key: uuid.UUID, pools: str) -> World:
    """Return a Kubernetes with a WaltzCluster that adopts ``cluster``."""
    resource = cluster_resource(
        partitions=cluster.num_partitions,
        pools=list(pools),
        zookeeper={"external": {"connectString": "zookeeper:2181"}, "root": ROOT},
        clusterKey=str(key),
        adopt={"clusterName": cluster.name},
        tls={"mode": "None"},
        networkPolicies=False,
        servers={"replicas": 1, "port": SERVER_PORT},
    )
    ports = {"port": STORAGE_PORT, "adminPort": ADMIN_PORT}
    return World(resource, [pool_resource(name, **ports) for name in pools])


class PodRunner:
    """Runs the pods that the objects of ``world`` specify."""

    def __init__(self, cluster: InProcessCluster, world: World) -> None:
        self.storages: dict[str, InProcessStorage] = {}
        """The storages of the pools, by the names of their pods; they keep their disks."""
        self.servers: dict[str, InProcessServer] = {}
        self._cluster = cluster
        self._world = world

    async def run(self) -> None:
        """Start and end pods, and set the statuses of their workloads."""
        for key, live in list(self._world.objects.items()):
            if key.kind in ("StatefulSet", "Deployment"):
                count = live["spec"]["replicas"]
                live["status"] = {"readyReplicas": count, "updatedReplicas": count}
        for pool in self._world.pools:
            name = names.storage_set(pool)
            is_wanted = ObjectKey("StatefulSet", name) in self._world.objects
            await self._run_storage(f"{name}-0", f"{name}-0.{name}.{NAMESPACE}.svc", is_wanted)
        if ObjectKey("Deployment", "log-server") in self._world.objects and not self.servers:
            await self._start_server()

    async def stop(self) -> None:
        """Stop all pods."""
        for server in self.servers.values():
            await server.stop()
        for storage in self.storages.values():
            await storage.stop()

    async def _run_storage(self, pod: str, host: str, is_wanted: bool) -> None:
        if is_wanted and pod not in self.storages:
            storage = InProcessStorage(len(self._cluster.storages), self._cluster._shared)
            storage.host, storage.address = host, f"{host}:{STORAGE_PORT}"
            self.storages[pod] = storage
            self._cluster.storages.append(storage)
        node = self.storages.get(pod)
        if node is not None and is_wanted and node.node is None:
            await node.start()
        if node is not None and not is_wanted:
            await node.stop()

    async def _start_server(self) -> None:
        address = "10.0.0.1"
        server = InProcessServer(len(self._cluster.servers), self._cluster._shared)
        server.host = address
        await server.start()
        self.servers["log-server-0"] = server
        self._cluster.servers.append(server)
        self._world.objects[ObjectKey("Pod", "log-server-0")] = {
            "metadata": {
                "name": "log-server-0",
                "uid": "log-server-0",
                "labels": names.labels("log", Component.SERVER),
                "ownerReferences": [{"kind": "ReplicaSet", "name": "log-server"}],
            },
            "status": {"podIP": address},
        }


class _InProcessReplicas(OrderExecutor):
    """A `ReplicaAccess` over the network of the cluster in this process."""

    async def compare(
        self, partition: int, first_id: int, may_continue: MayContinue
    ) -> ComparisonResult:
        """See ReplicaAccess."""
        raise AssertionError("no volume is replaced")


class InProcessEnvironment:
    """Connects an operator with the processes of ``cluster``; see `Environment`."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self._cluster = cluster
        self._store: MetadataStore | None = None

    async def metadata_store(self, desired: DesiredCluster) -> MetadataStore:
        """See Environment."""
        if self._store is None:
            self._store = await self._cluster._shared.open_store(SESSION_MS)
        return self._store

    async def replica_access(self, desired: DesiredCluster, cluster: Cluster) -> ReplicaAccess:
        """See Environment."""
        # As `NetworkEnvironment`: records never pass through the operator.
        return _InProcessReplicas(
            cluster,
            PLAINTEXT,
            answer_seconds=_ANSWER_SECONDS,
            # A short log is copied, too.
            lag_allowed=0,
            relay=False,
            network=self._cluster.network.host("operator"),
        )

    async def zookeeper_leader(self, desired: DesiredCluster) -> str | None:
        """See Environment."""
        return None

    async def presented_serial(
        self, desired: DesiredCluster, component: Component, host: str, port: int
    ) -> int | None:
        """See Environment."""
        return None

    def forget_certificates(self, desired: DesiredCluster) -> None:
        """See Environment."""

    async def disconnect(self, namespace: str, name: str) -> None:
        """Close the session."""
        if self._store is not None:
            await self._store.close()
            self._store = None


def kube_of(world: World) -> Any:
    """Return the API server of ``world``, without faults."""
    return FaultyKube(world, Faults())
