"""Let only the leader write: refuse every write after the deadline of the Lease has passed.

The process of a leader ends at the deadline. But a process that was paused, or whose event loop is
busy, still runs after the deadline, while another operator may be active already. So these wrappers
check the deadline before each write to the API server and to ZooKeeper, and before each step at a
storage. A step at a storage is checked before its connection is opened, so it is sent a little
after its check. A copy of a replica takes long, so it is checked again before each of its parts.
Reads need no check. A write that passes the check may still arrive after the deadline: the module
`executor` says why that does no harm. Touches what the wrapped objects touch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from waltz.admin import (
    ComparisonResult,
    MayContinue,
    ObservationScope,
    ReplicaObservation,
    Step,
)
from waltz.metadata import MetadataStore
from waltz.metadata.cluster import Cluster
from waltz.metadata.store import ANY_VERSION, Children, Node, OnChange, SessionHealth
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import Component
from waltz_operator.core.observed import LiveObject
from waltz_operator.shell.environment import Environment, ReplicaAccess
from waltz_operator.shell.kube_api import Kube, KubeError

MayWrite = Callable[[], bool]
"""A function that returns whether this operator certainly holds the Lease.

In production it is `LeaderElection.may_write`.
"""


class LeaseExpired(KubeError):
    """This operator may have lost the Lease; the write was not sent."""


def _check(may_write: MayWrite) -> None:
    """Raise LeaseExpired if this operator may have lost the Lease."""
    if not may_write():
        raise LeaseExpired(
            "the write was not sent, because the Lease was not renewed in time and another "
            "operator may be active"
        )


class LeaderKube:
    """A `Kube` that refuses writes while ``may_write`` is false. Writes raise LeaseExpired."""

    def __init__(self, kube: Kube, may_write: MayWrite) -> None:
        self._kube = kube
        self._may_write = may_write

    async def get(self, kind: str, namespace: str, name: str) -> LiveObject | None:
        """See Kube."""
        return await self._kube.get(kind, namespace, name)

    async def find(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[LiveObject]:
        """See Kube."""
        return await self._kube.find(kind, namespace, labels)

    async def create(self, body: Mapping[str, Any]) -> None:
        """See Kube."""
        _check(self._may_write)
        await self._kube.create(body)

    async def apply(self, body: Mapping[str, Any]) -> None:
        """See Kube."""
        _check(self._may_write)
        await self._kube.apply(body)

    async def patch(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any], *, part: str = ""
    ) -> None:
        """See Kube."""
        _check(self._may_write)
        await self._kube.patch(kind, namespace, name, change, part=part)

    async def patch_refusal(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any]
    ) -> str | None:
        """See Kube. This needs no check, because the API server changes nothing."""
        return await self._kube.patch_refusal(kind, namespace, name, change)

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str, *, orphan: bool = False
    ) -> None:
        """See Kube."""
        _check(self._may_write)
        await self._kube.delete(kind, namespace, name, uid, orphan=orphan)


class LeaderEnvironment:
    """An `Environment` whose connections refuse writes while ``may_write`` is false.

    Refused writes raise LeaseExpired.
    """

    def __init__(self, environment: Environment, may_write: MayWrite) -> None:
        self._environment = environment
        self._may_write = may_write

    async def metadata_store(self, desired: DesiredCluster) -> MetadataStore:
        """See Environment."""
        return _LeaderStore(await self._environment.metadata_store(desired), self._may_write)

    async def replica_access(self, desired: DesiredCluster, cluster: Cluster) -> ReplicaAccess:
        """See Environment."""
        access = await self._environment.replica_access(desired, cluster)
        return _LeaderAccess(access, self._may_write)

    async def zookeeper_leader(self, desired: DesiredCluster) -> str | None:
        """See Environment."""
        return await self._environment.zookeeper_leader(desired)

    async def presented_serial(
        self, desired: DesiredCluster, component: Component, host: str, port: int
    ) -> int | None:
        """See Environment."""
        return await self._environment.presented_serial(desired, component, host, port)

    def forget_certificates(self, desired: DesiredCluster) -> None:
        """See Environment."""
        self._environment.forget_certificates(desired)

    async def disconnect(self, namespace: str, name: str) -> None:
        """See Environment."""
        await self._environment.disconnect(namespace, name)


class _LeaderStore:
    """A `MetadataStore` that refuses writes while ``may_write`` is false."""

    def __init__(self, store: MetadataStore, may_write: MayWrite) -> None:
        self._store = store
        self._may_write = may_write

    @property
    def health(self) -> SessionHealth:
        """See MetadataStore."""
        return self._store.health

    async def get(self, path: str, on_change: OnChange | None = None) -> Node | None:
        """See MetadataStore."""
        return await self._store.get(path, on_change)

    async def children(self, path: str, on_change: OnChange | None = None) -> Children:
        """See MetadataStore."""
        return await self._store.children(path, on_change)

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        anyone_may_write: bool = False,
    ) -> str:
        """See MetadataStore."""
        _check(self._may_write)
        return await self._store.create(
            path,
            data,
            ephemeral=ephemeral,
            sequence=sequence,
            anyone_may_write=anyone_may_write,
        )

    async def set(self, path: str, data: bytes, version: int) -> int:
        """See MetadataStore."""
        _check(self._may_write)
        return await self._store.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See MetadataStore."""
        _check(self._may_write)
        await self._store.delete(path, version)

    async def close(self) -> None:
        """See MetadataStore."""
        await self._store.close()


class _LeaderAccess:
    """A `ReplicaAccess` that refuses steps while ``may_write`` is false."""

    def __init__(self, access: ReplicaAccess, may_write: MayWrite) -> None:
        self._access = access
        self._may_write = may_write

    async def observe(self, scope: ObservationScope) -> ReplicaObservation:
        """See ReplicaAccess."""
        return await self._access.observe(scope)

    async def perform(self, step: Step, may_continue: MayContinue = lambda: True) -> None:
        """See ReplicaAccess. A copy also ends early if this operator may have lost the Lease."""
        _check(self._may_write)
        await self._access.perform(step, lambda: self._may_write() and may_continue())

    async def compare(
        self, partition: int, first_id: int, may_continue: MayContinue
    ) -> ComparisonResult:
        """See ReplicaAccess."""
        return await self._access.compare(partition, first_id, may_continue)
