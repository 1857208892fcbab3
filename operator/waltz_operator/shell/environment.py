"""What the operator needs of a cluster's own processes: its ZooKeeper, its storages and servers.

`Surroundings` is the interface; `RealSurroundings` touches the network, and writes the certificates
that it shows to files, because only those can be used.
"""

from __future__ import annotations

import base64
import contextlib
from pathlib import Path
from typing import Protocol

from waltz.admin import ObservationScope, OrderExecutor, ReplicaObservation, Step
from waltz.metadata import KazooStore, MetadataStore
from waltz.metadata.cluster import Cluster
from waltz.net import TlsConfig
from waltz_operator.core import names
from waltz_operator.core.desired import Desired
from waltz_operator.core.objects.pods import tls_secret_name
from waltz_operator.shell.kube_api import Kube

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 3.0
_SESSION_MS = 10_000


class ReplicaPort(Protocol):
    """The library's operations on one cluster's replicas."""

    async def observe(self, scope: ObservationScope) -> ReplicaObservation:
        """See waltz.admin.OrderExecutor."""

    async def perform(self, step: Step) -> None:
        """See waltz.admin.OrderExecutor."""


class Surroundings(Protocol):
    """How a cluster's processes are reached."""

    async def store(self, desired: Desired) -> MetadataStore:
        """Return a session with the cluster's ZooKeeper. Raises StoreError."""

    async def replicas(self, desired: Desired, cluster: Cluster) -> ReplicaPort:
        """Return access to the replicas. Raises KubeError."""

    async def forget(self, desired: Desired) -> None:
        """Close what is open for a cluster."""


class RealSurroundings:
    """Keeps one ZooKeeper session a cluster, and its certificates below ``folder``."""

    def __init__(self, kube: Kube, folder: Path) -> None:
        self._kube = kube
        self._folder = folder
        self._stores: dict[tuple[str, str], tuple[str, KazooStore]] = {}

    async def store(self, desired: Desired) -> MetadataStore:
        """See Surroundings."""
        which, address = (desired.namespace, desired.name), desired.zookeeper
        known = self._stores.get(which)
        if known is not None and known[0] == address and known[1].health.unhealthy_since is None:
            return known[1]
        # Connecting anew finds members at the addresses that they have by now.
        await self.forget(desired)
        store = await KazooStore.connect(address, _SESSION_MS, connect_timeout_s=_CONNECT_SECONDS)
        self._stores[which] = (address, store)
        return store

    async def replicas(self, desired: Desired, cluster: Cluster) -> ReplicaPort:
        """See Surroundings."""
        tls = await self._tls(desired)
        return OrderExecutor(cluster, tls, answer_seconds=_ANSWER_SECONDS)

    async def forget(self, desired: Desired) -> None:
        """See Surroundings."""
        known = self._stores.pop((desired.namespace, desired.name), None)
        if known is not None:
            await known[1].close()

    async def close(self) -> None:
        """Close everything."""
        for _, store in self._stores.values():
            await store.close()
        self._stores.clear()

    async def _tls(self, desired: Desired) -> TlsConfig:
        name = tls_secret_name(desired.cluster)
        secret = None if name is None else await self._kube.get("Secret", desired.namespace, name)
        if secret is None:
            return TlsConfig(enabled=False)
        folder = self._folder / desired.namespace / desired.name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        files = {}
        for part in ("ca.crt", "tls.crt", "tls.key"):
            files[part] = folder / part
            _write_if_changed(files[part], base64.b64decode(secret["data"].get(part, "")))
        return TlsConfig(
            certificate=files["tls.crt"],
            key=files["tls.key"],
            ca=files["ca.crt"],
            server_name=names.tls_name(desired.name, desired.namespace),
        )


def _write_if_changed(file: Path, content: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        if file.read_bytes() == content:
            return
    file.touch(mode=0o600)
    file.write_bytes(content)
