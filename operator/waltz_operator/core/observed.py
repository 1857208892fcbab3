"""What was found of one cluster: in Kubernetes, in ZooKeeper, at its processes. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from waltz.admin.core.replicas import ReplicaObservation
from waltz.metadata.core.storage_maps import StorageMaps
from waltz_operator.core.names import COMPONENT_LABEL, Component
from waltz_operator.core.objects import ObjectKey

Live = Mapping[str, Any]
"""An object as the API server has it; of secrets, the names of the data only."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """ZooKeeper did not answer."""

    reason: str


@dataclass(frozen=True, slots=True)
class Absent:
    """There is nothing at the cluster's root."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Somebody's creation of a cluster was broken off; ``used`` if there is more than that makes.

    ``name`` and ``key`` are None if they were not set yet.
    """

    name: str | None
    key: uuid.UUID | None
    used: bool


@dataclass(frozen=True, slots=True)
class Strange:
    """What is at the root cannot be understood."""

    reason: str


@dataclass(frozen=True, slots=True)
class Present:
    """A whole cluster. ``replicas`` are all partitions, and all storages that are known.

    ``servers`` are the addresses of the servers that have joined. ``others_below`` if somebody has
    znodes below the root that are not the cluster's.
    """

    name: str
    num_partitions: int
    key: uuid.UUID
    maps: StorageMaps
    replicas: ReplicaObservation
    servers: frozenset[str] = frozenset()
    others_below: bool = False


Metadata = Unreachable | Absent | Unfinished | Strange | Present


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that a plan looks at.

    ``objects`` are those with the cluster's labels, and whatever has a name that the cluster needs.
    ``certificate_days`` is how long the certificates that the operator made are still good.
    ``deleting_seconds`` is how long ago the WaltzCluster was deleted.
    """

    objects: Mapping[ObjectKey, Live]
    metadata: Metadata
    certificate_days: float | None = None
    deleting_seconds: float = 0.0

    def of_kind(self, kind: str, component: Component | None = None) -> Iterator[Live]:
        """Iterate over the objects of a kind, or those of one component."""
        for key, live in sorted(self.objects.items(), key=lambda item: item[0]):
            labels = live["metadata"].get("labels") or {}
            if key.kind == kind and component in (None, labels.get(COMPONENT_LABEL)):
                yield live
