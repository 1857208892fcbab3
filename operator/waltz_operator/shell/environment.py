"""Connect to a cluster's own processes: its ZooKeeper, its storages and servers.

A ZooKeeper is *managed* if the operator runs it, or *external* if the spec names its address.
`Environment` is the interface that the reconciler uses, `NetworkEnvironment` the implementation.
It touches the network. It also writes certificates and credentials to files, because the ssl module
loads certificates only from files.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from waltz.admin import (
    ComparisonResult,
    MayContinue,
    ObservationScope,
    OrderExecutor,
    ReplicaObservation,
    Step,
    compare_replicas,
)
from waltz.metadata import MetadataStore, StoreError, ZooKeeperAccess
from waltz.metadata.cluster import Cluster
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.zookeeper_access import OPEN_ACCESS
from waltz.net import DialFailed, TlsConfig, TlsConfigError
from waltz.protocol import ADMIN, CLIENT_SERVER
from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import Component
from waltz_operator.core.objects.pods import tls_secret_name
from waltz_operator.core.objects.zookeeper_access import CREDENTIALS_KEY, tls_parts
from waltz_operator.core.resources.zookeeper import (
    ExternalZooKeeper,
    ZooKeeperAuthentication,
    ZooKeeperTls,
)
from waltz_operator.shell.kube_api import Kube, KubeError
from waltz_operator.shell.presented_certificate import presented_serial
from waltz_operator.shell.zookeeper_leader import find_leader

_CONNECT_SECONDS = 5.0
"""The time limit of a connection to ZooKeeper."""

_ANSWER_SECONDS = 3.0
"""The time after which a storage or a server without an answer counts as failed."""

_RANGE_SECONDS = 15.0
"""The time after which a storage that has not computed a checksum leaves a comparison.

It is half the time limit of a step (`executor`), so that the step can continue without this
storage."""

_SESSION_MS = 10_000
"""The timeout of the operator's ZooKeeper sessions."""


@dataclass(frozen=True, slots=True)
class _ZooKeeperTarget:
    """What a session with a cluster's ZooKeeper needs: the address, the TLS, the identity."""

    connect_string: str
    tls: ZooKeeperTls | None
    authentication: ZooKeeperAuthentication | None


@dataclass(frozen=True, slots=True)
class _OpenSession:
    """The session with a cluster's ZooKeeper, and the target that it was opened with."""

    target: _ZooKeeperTarget
    store: KazooStore


class SecretUnusable(StoreError):
    """A secret for the connection to ZooKeeper cannot be used. The text says what to correct."""


class ReplicaAccess(Protocol):
    """Observes and changes one cluster's replicas; `_NetworkAccess` implements it."""

    async def observe(self, scope: ObservationScope) -> ReplicaObservation:
        """Return the state of the replicas in ``scope``. Raises NoCluster, MalformedMetadata."""

    async def perform(self, step: Step, may_continue: MayContinue = lambda: True) -> None:
        """Perform one change of storages or replicas.

        Before each part of a copy, ``may_continue`` is called: the copy ends early when it returns
        False. Raises errors of connections, storages and metadata, and TimeoutError.
        """

    async def compare(
        self, partition: int, first_id: int, may_continue: MayContinue
    ) -> ComparisonResult:
        """Compare the replicas of a partition from ``first_id`` on.

        The comparison ends early when ``may_continue`` returns False. But if any peer can be
        compared, at least one range is compared: otherwise repeated comparisons might never
        advance. Raises UnknownPartition, and the errors of `observe`.
        """


class Environment(Protocol):
    """Opens connections to a cluster's processes."""

    async def metadata_store(self, desired: DesiredCluster) -> MetadataStore:
        """Return a session with the cluster's ZooKeeper. Raises StoreError."""

    async def replica_access(self, desired: DesiredCluster, cluster: Cluster) -> ReplicaAccess:
        """Return access to the cluster's replicas. Raises KubeError."""

    async def zookeeper_leader(self, desired: DesiredCluster) -> str | None:
        """Return the pod that leads a managed ZooKeeper, None if it is unknown."""

    async def presented_serial(
        self, desired: DesiredCluster, component: Component, host: str, port: int
    ) -> int | None:
        """Return the serial number of the certificate that a process presents at a port.

        ``port`` is a server's port for clients, or a storage's port for administration. The result
        is None if the connection or its TLS handshake fails. Raises KubeError.
        """

    def forget_certificates(self, desired: DesiredCluster) -> None:
        """Forget the cluster's certificates, so that the next connection reads them again.

        The observer calls this method before each observation, because a secret may have changed.
        """

    async def disconnect(self, namespace: str, name: str) -> None:
        """Close the connections to a cluster, and remove its files. The cluster need not exist."""


class _NetworkAccess(OrderExecutor):
    """A `ReplicaAccess` over the network.

    Its arguments are those of OrderExecutor, which implements `observe` and `perform`.
    """

    async def compare(
        self, partition: int, first_id: int, may_continue: MayContinue
    ) -> ComparisonResult:
        """See ReplicaAccess."""
        return await compare_replicas(
            self.cluster,
            self.tls,
            partition,
            first_id=first_id,
            observation_seconds=_ANSWER_SECONDS,
            range_seconds=_RANGE_SECONDS,
            may_continue=may_continue,
            network=self._network,
        )


def _cluster_key(desired: DesiredCluster) -> tuple[str, str]:
    """Return the namespace and the name of a cluster."""
    return desired.namespace, desired.name


class NetworkEnvironment:
    """Keeps one ZooKeeper session per cluster, and the cluster's certificates below ``folder``.

    Implements `Environment`. ``on_progress`` is called with the namespace and the name of a cluster
    while a long step of this cluster makes progress.
    """

    def __init__(
        self,
        kube: Kube,
        folder: Path,
        on_progress: Callable[[str, str], None] = lambda _namespace, _name: None,
    ) -> None:
        self._kube = kube
        self._on_progress = on_progress
        self._folder = folder
        self._sessions: dict[tuple[str, str], _OpenSession] = {}
        """The sessions by `_cluster_key`."""
        self._tls_configs: dict[tuple[str, str], TlsConfig] = {}
        """The TLS settings for connections to the cluster's processes, by `_cluster_key`."""

    async def metadata_store(self, desired: DesiredCluster) -> MetadataStore:
        """See Environment."""
        key = _cluster_key(desired)
        external = desired.cluster.spec.zookeeper.external
        target = _ZooKeeperTarget(
            desired.zookeeper,
            None if external is None else external.tls,
            None if external is None else external.authentication,
        )
        session = self._sessions.get(key)
        if session and session.target == target and session.store.health.unhealthy_since is None:
            return session.store
        # There is no session, or it has another target, or ZooKeeper does not answer it. A new
        # session reads the secrets again. It also resolves the names of ZooKeeper's members again,
        # because restarted pods have new addresses.
        await self._close_session(*key)
        access = await self._read_zookeeper_access(desired, external)
        try:
            store = await KazooStore.connect(
                desired.zookeeper, _SESSION_MS, access, connect_timeout_s=_CONNECT_SECONDS
            )
        except TlsConfigError as unusable:
            raise SecretUnusable(
                "the certificates in the secret of zookeeper.external.tls cannot be used: "
                f"{unusable.__cause__ or unusable}; correct the secret"
            ) from unusable
        self._sessions[key] = _OpenSession(target, store)
        return store

    async def replica_access(self, desired: DesiredCluster, cluster: Cluster) -> ReplicaAccess:
        """See Environment."""
        key = _cluster_key(desired)
        return _NetworkAccess(
            cluster,
            await self._tls_config(desired),
            answer_seconds=_ANSWER_SECONDS,
            on_compared=lambda _at, _last: self._on_progress(*key),
            # Storages copy records from each other: no record passes through the operator.
            relay=False,
        )

    async def presented_serial(
        self, desired: DesiredCluster, component: Component, host: str, port: int
    ) -> int | None:
        """See Environment."""
        spec = CLIENT_SERVER if component is Component.SERVER else ADMIN
        tls = await self._tls_config(desired)
        return await presented_serial(host, port, spec, tls, _ANSWER_SECONDS)

    async def zookeeper_leader(self, desired: DesiredCluster) -> str | None:
        """See Environment."""
        addresses = (member.rpartition(":") for member in desired.zookeeper.split(","))
        leader = await find_leader([(host, int(port)) for host, _, port in addresses])
        # The host name of a member begins with the name of its pod.
        return None if leader is None else leader.partition(".")[0]

    def forget_certificates(self, desired: DesiredCluster) -> None:
        """See Environment."""
        self._tls_configs.pop(_cluster_key(desired), None)

    async def disconnect(self, namespace: str, name: str) -> None:
        """See Environment."""
        await self._close_session(namespace, name)
        shutil.rmtree(self._folder / namespace / name, ignore_errors=True)

    async def _close_session(self, namespace: str, name: str) -> None:
        """Close the session of a cluster, and forget its certificates."""
        key = namespace, name
        self._tls_configs.pop(key, None)
        session = self._sessions.pop(key, None)
        if session is not None:
            await session.store.close()

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.store.close()
        self._sessions.clear()

    async def _tls_config(self, desired: DesiredCluster) -> TlsConfig:
        """Return the TLS settings for connections to the cluster's processes. Raises KubeError.

        The cluster's secret is read by the first call, and again by the first call after
        `forget_certificates` or `_close_session`.
        """
        key = _cluster_key(desired)
        tls = self._tls_configs.get(key)
        if tls is None:
            tls = self._tls_configs[key] = await self._read_tls_config(desired)
        return tls

    async def _read_tls_config(self, desired: DesiredCluster) -> TlsConfig:
        """Read the cluster's secret and write its parts to files; return settings with these files.

        Raises KubeError.
        """
        name = tls_secret_name(desired.cluster)
        secret = None if name is None else await self._kube.get("Secret", desired.namespace, name)
        if secret is None:
            # The cluster does not use TLS, or its secret does not exist. In the second case each
            # connection fails: without the secret no pod starts, and a process that still runs
            # refuses plaintext.
            return TlsConfig(enabled=False)
        files = {}
        for part in ("ca.crt", "tls.crt", "tls.key"):
            content = base64.b64decode((secret.get("data") or {}).get(part, ""))
            files[part] = self._write_file(desired, part, content)
        return _SecretTls(
            secret=secret["metadata"]["name"],
            certificate=files["tls.crt"],
            key=files["tls.key"],
            ca=files["ca.crt"],
            server_name=names.tls_name(desired.name, desired.namespace),
        )

    async def _read_zookeeper_access(
        self, desired: DesiredCluster, external: ExternalZooKeeper | None
    ) -> ZooKeeperAccess:
        """Return how the operator connects to the cluster's ZooKeeper. Raises SecretUnusable."""
        if external is None or external.tls is None:
            # Without TLS there is no authentication: the CRD forbids it.
            return OPEN_ACCESS
        tls, authentication = external.tls, external.authentication
        files = await self._write_secret(desired, tls.secret_name, tls_parts(tls))
        config = TlsConfig(
            certificate=files.get("tls.crt"),
            key=files.get("tls.key"),
            ca=files["ca.crt"],
            server_name=tls.server_name or None,
        )
        if authentication is None:
            return ZooKeeperAccess(config)
        if authentication.certificate:
            return ZooKeeperAccess(config, by_certificate=True)
        credentials = await self._write_secret(
            desired, authentication.secret_name, (CREDENTIALS_KEY,)
        )
        return ZooKeeperAccess(config, credentials[CREDENTIALS_KEY])

    async def _write_secret(
        self, desired: DesiredCluster, name: str, parts: tuple[str, ...]
    ) -> dict[str, Path]:
        """Write the ``parts`` of a secret to files; return the files. Raises SecretUnusable."""
        try:
            secret = await self._kube.get("Secret", desired.namespace, name)
        except KubeError as problem:
            raise SecretUnusable(f"cannot read the secret {name}: {problem}") from problem
        data = (secret or {}).get("data") or {}
        missing = [part for part in parts if part not in data]
        if secret is None or missing:
            what = "does not exist" if secret is None else f"lacks {', '.join(missing)}"
            raise SecretUnusable(
                f"the secret {name}, which spec.zookeeper.external names, {what}: create it with "
                f"{', '.join(parts)}"
            )
        return {
            part: self._write_file(desired, f"zookeeper-{part}", base64.b64decode(data[part]))
            for part in parts
        }

    def _write_file(self, desired: DesiredCluster, name: str, content: bytes) -> Path:
        """Write a file of the cluster, unless it has this content already; return its path."""
        folder = self._folder / desired.namespace / desired.name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_if_changed(folder / name, content)
        return folder / name


@dataclass(frozen=True, slots=True)
class _SecretTls(TlsConfig):
    """The TLS settings from a secret.

    While the content of the secret cannot be used, each dial fails, as if the peer did not answer.
    """

    secret: str = ""

    @override
    def dialing_context(self) -> ssl.SSLContext | None:
        """See TlsConfig. Raises DialFailed instead of TlsConfigError."""
        # `super()` would fail: it refers to the class before the decorator, and for slots
        # `dataclass` makes a new class.
        try:
            return TlsConfig.dialing_context(self)
        except TlsConfigError as unusable:
            raise DialFailed(
                f"the certificates of the secret {self.secret} cannot be used: "
                f"{unusable.__cause__ or unusable}; correct the secret"
            ) from unusable


def _write_if_changed(file: Path, content: bytes) -> None:
    """Write ``content`` to a file that only this process's user may read.

    A new file gets these rights before its content, so that no other user can ever read the
    content.
    """
    with contextlib.suppress(FileNotFoundError):
        if file.read_bytes() == content:
            return
    file.touch(mode=0o600)
    file.write_bytes(content)
