"""Read the desired state of a cluster: a WaltzCluster and its pools. Touches the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import TypeVar

from pydantic import ValidationError

from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import CLUSTER_LABEL
from waltz_operator.core.observed import LiveObject
from waltz_operator.core.resources import StoragePool, WaltzCluster
from waltz_operator.shell.kube_api import Kube

_Resource = TypeVar("_Resource", WaltzCluster, StoragePool)


class InvalidResource(Exception):
    """A WaltzCluster or StoragePool is invalid; the message names it and its invalid fields.

    The API server accepts such a resource only if its CRD has fewer rules than the model. A file
    given to ``waltz-operator plan`` is not checked by an API server, so it may have any invalid
    field.
    """


async def read_desired(kube: Kube, live: LiveObject, operator_namespace: str) -> DesiredCluster:
    """Return the desired state of the WaltzCluster ``live``.

    ``operator_namespace`` is the namespace in which the operator runs. Raises KubeError and
    InvalidResource.
    """
    cluster = decode(WaltzCluster, live)
    namespace = cluster.metadata.namespace
    pools = await asyncio.gather(
        *(kube.get("StoragePool", namespace, name) for name in cluster.spec.pools)
    )
    existing = tuple(decode(StoragePool, pool) for pool in pools if pool is not None)
    leaving = await _leaving_pools(kube, cluster)
    # The label of a pool names its owner, the cluster that has claimed it. A pool in this cluster's
    # spec may have another owner. If this owner no longer exists, the plan releases the pool, so
    # that this cluster can claim it.
    owners = {pool.metadata.labels.get(CLUSTER_LABEL, "") for pool in existing}
    vanished = await _vanished(kube, namespace, owners - {"", cluster.metadata.name})
    return DesiredCluster(cluster, existing, operator_namespace, vanished, leaving)


async def _leaving_pools(kube: Kube, cluster: WaltzCluster) -> tuple[StoragePool, ...]:
    """Return the pools that the cluster has claimed and that its spec does not name."""
    metadata = cluster.metadata
    claimed = await kube.find("StoragePool", metadata.namespace, {CLUSTER_LABEL: metadata.name})
    decoded = (decode(StoragePool, pool) for pool in claimed)
    leaving = (each for each in decoded if each.metadata.name not in cluster.spec.pools)
    return tuple(sorted(leaving, key=lambda each: each.metadata.name))


async def _vanished(kube: Kube, namespace: str, clusters: Set[str]) -> frozenset[str]:
    """Return the names of the ``clusters`` that do not exist."""
    names = sorted(clusters)
    clusters_or_none = await asyncio.gather(
        *(kube.get("WaltzCluster", namespace, name) for name in names)
    )
    return frozenset(
        name for name, live in zip(names, clusters_or_none, strict=True) if live is None
    )


def decode(model: type[_Resource], live: LiveObject) -> _Resource:
    """Decode a resource. Raises InvalidResource, which names the fields that are invalid."""
    try:
        return model.model_validate(live)
    except ValidationError as invalid:
        fields = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'resource'}: {each['msg']}"
            for each in invalid.errors()
        )
        raise InvalidResource(
            f"{model.__name__} {live['metadata']['name']} is invalid, nothing is changed: "
            f"{fields}; correct the resource"
        ) from invalid
