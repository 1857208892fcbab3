"""The observed state of one cluster: in Kubernetes, in ZooKeeper and of its processes. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from waltz.admin.core.replicas import ReplicaObservation
from waltz.metadata.core.storage_maps import StorageMaps
from waltz_operator.core.authority import ObservedAuthority
from waltz_operator.core.names import COMPONENT_LABEL, Component
from waltz_operator.core.objects import ObjectKey

LiveObject = Mapping[str, Any]
"""An object as the API server returns it."""

SIMULATED_SERVER = "a new server"
"""The address of the servers that only a preview has started (`core.preview`)."""


@dataclass(frozen=True, slots=True)
class ZooKeeperUnreachable:
    """ZooKeeper did not answer, or was not queried."""

    reason: str


@dataclass(frozen=True, slots=True)
class ClusterAbsent:
    """The cluster's root znode does not exist."""


@dataclass(frozen=True, slots=True)
class ClusterIncomplete:
    """The root znode exists, but parts of the cluster's metadata do not.

    ``name`` and ``key`` are None if they do not exist. ``used`` is true if there is metadata that
    the creation of a cluster does not write. Then the cluster was complete before, and parts of its
    metadata were lost. If ``used`` is false, the creation of the cluster was interrupted.
    """

    name: str | None
    key: uuid.UUID | None
    used: bool


@dataclass(frozen=True, slots=True)
class ClusterMalformed:
    """A znode of the cluster's metadata cannot be decoded."""

    reason: str


@dataclass(frozen=True, slots=True)
class ClusterPresent:
    """The metadata at the root is complete, and is that of this or of another cluster: see ``key``.

    ``replicas`` covers all partitions and all registered storages. ``servers`` are the addresses of
    the servers that have joined. ``foreign_znodes`` is true if there are znodes below the root that
    do not belong to the cluster. ``outside`` has the addresses for clients outside of the
    Kubernetes cluster, each by the address that the process has registered. It is None if the
    cluster has no such addresses or if they cannot be read. ``outside_problem`` says why they
    cannot be read, otherwise it is empty.
    """

    name: str
    num_partitions: int
    key: uuid.UUID
    maps: StorageMaps
    replicas: ReplicaObservation
    servers: frozenset[str] = frozenset()
    foreign_znodes: bool = False
    outside: Mapping[str, str] | None = None
    outside_problem: str = ""


ClusterMetadata = (
    ZooKeeperUnreachable | ClusterAbsent | ClusterIncomplete | ClusterMalformed | ClusterPresent
)
"""The state of the cluster's root in ZooKeeper."""


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """Everything that a plan depends on, apart from the desired state.

    ``objects`` are all objects with the cluster's labels, and all objects with a name that the
    cluster uses, whatever their labels. The data of a secret are replaced by empty texts.
    ``certificate_days`` is the remaining validity in days of the certificate that the operator
    issued for the processes: None if it issued none, 0 if the certificate cannot be decoded.
    ``deleting_seconds`` is the time since the deletion was requested, 0 without a deletion.
    ``zookeeper_leader`` is the pod of a managed ZooKeeper that leads the ensemble. It is observed
    only while pods of ZooKeeper are outdated (`planning.rolls`, which replaces the leader last). It
    is None if it is unknown or not observed.
    ``lost_seconds`` has the pods whose volume is lost, each with the seconds since the status of
    its pool first reported the loss.
    ``growth_refusals`` has the volume claims that the API server would refuse to enlarge to the
    size of their pool, each with the reason (`core.volume_growth.UNCHECKED` if its dry run failed).
    ``file_system_seconds`` has the claims whose file system waits for its resize, each with the
    seconds since it began to wait.
    ``authority`` is the certificate authority of the operator, None if the cluster has none or if
    it cannot be decoded. ``authority_problem`` says what of its secret cannot be decoded.
    """

    objects: Mapping[ObjectKey, LiveObject]
    metadata: ClusterMetadata
    certificate_days: float | None = None
    deleting_seconds: float = 0.0
    zookeeper_leader: str | None = None
    lost_seconds: Mapping[str, float] = field(default_factory=dict)
    growth_refusals: Mapping[str, str] = field(default_factory=dict)
    file_system_seconds: Mapping[str, float] = field(default_factory=dict)
    authority: ObservedAuthority | None = None
    authority_problem: str = ""

    def of_kind(self, kind: str, component: Component | None = None) -> Iterator[LiveObject]:
        """Yield the objects of a kind, sorted by name; with ``component``, only its objects."""
        for key, live in sorted(self.objects.items(), key=lambda item: item[0]):
            labels = live["metadata"].get("labels") or {}
            if key.kind == kind and (component is None or labels.get(COMPONENT_LABEL) == component):
                yield live
