"""Finds out everything that a plan looks at. Touches the API server, ZooKeeper and the network.

Nothing is changed by it. The API server is asked for what it has now, not for what a watch has
told: a plan that is made of old news would be undone by the next one.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
from collections.abc import Mapping
from typing import Any

from waltz.admin import ObservationScope
from waltz.metadata import MalformedMetadata, MetadataStore, StoreError
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.formats import ClusterParams, decode_id
from waltz_operator.core import names
from waltz_operator.core.desired import Desired
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import (
    Absent,
    Live,
    Metadata,
    Observed,
    Present,
    Strange,
    Unfinished,
    Unreachable,
)
from waltz_operator.core.planning.workloads import needed_keys
from waltz_operator.core.resources import TlsMode
from waltz_operator.shell.certificates import days_left
from waltz_operator.shell.environment import Surroundings
from waltz_operator.shell.kube_api import Kube

_KINDS = (
    "ConfigMap",
    "Deployment",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "Secret",
    "Service",
    "ServiceAccount",
    "StatefulSet",
)
_ZOOKEEPER_SECONDS = 10.0
_CREATED = {"serverDescriptors", "ids", "store"}
"""What the creation of a cluster makes below its root."""


async def observe(
    desired: Desired, kube: Kube, surroundings: Surroundings, now: datetime.datetime
) -> Observed:
    """Ask everybody. Raises KubeError; whoever else does not answer is in the result."""
    objects = await _objects(desired, kube)
    return Observed(
        objects={key: _without_secrets(key, live) for key, live in objects.items()},
        metadata=_not_ready(desired, objects) or await _metadata(desired, surroundings),
        certificate_days=_certificate_days(desired, objects),
        deleting_seconds=_deleting_seconds(desired, now),
    )


async def _objects(desired: Desired, kube: Kube) -> dict[ObjectKey, Live]:
    """Return the objects with the cluster's labels, and those whose names it needs."""
    kinds = list(_KINDS)
    if desired.cluster.spec.tls.mode is TlsMode.CERT_MANAGER:
        kinds.append("Certificate")
    labels = {names.MANAGER_LABEL: names.MANAGER, names.CLUSTER_LABEL: desired.name}
    lists = await asyncio.gather(*(kube.find(kind, desired.namespace, labels) for kind in kinds))
    found = {
        ObjectKey(kind, live["metadata"]["name"]): live
        for kind, listed in zip(kinds, lists, strict=True)
        for live in listed
    }
    missing = sorted(needed_keys(desired) - found.keys())
    others = await asyncio.gather(
        *(kube.get(key.kind, desired.namespace, key.name) for key in missing)
    )
    named = zip(missing, others, strict=True)
    return found | {key: live for key, live in named if live is not None}


def _not_ready(desired: Desired, objects: Mapping[ObjectKey, Live]) -> Unreachable | None:
    """Return what is known without dialing a managed ZooKeeper of which no member is ready."""
    if desired.cluster.spec.zookeeper.managed is None:
        return None
    live = objects.get(ObjectKey("StatefulSet", names.zookeeper_set(desired.name)), {})
    if (live.get("status") or {}).get("readyReplicas", 0) > 0:
        return None
    return Unreachable("none of its members is ready")


async def _metadata(desired: Desired, surroundings: Surroundings) -> Metadata:
    try:
        async with asyncio.timeout(_ZOOKEEPER_SECONDS):
            store = await surroundings.store(desired)
            return await read_metadata(store, desired, surroundings)
    except (StoreError, TimeoutError) as problem:
        return Unreachable(str(problem) or f"no answer within {_ZOOKEEPER_SECONDS:g} s")


async def read_metadata(
    store: MetadataStore, desired: Desired, surroundings: Surroundings
) -> Metadata:
    """Return what is at the cluster's root. Raises StoreError."""
    root = desired.root
    node = await store.get(root)
    if node is None:
        return Absent()
    cluster = Cluster(store, root)
    try:
        params, store_params = await cluster.params(), await cluster.store_params()
        maps, view = await cluster.storage_maps(), await cluster.membership()
        port = await surroundings.replicas(desired, cluster)
        replicas = await port.observe(ObservationScope(None, frozenset(maps.groups.groups)))
    except NoCluster:
        return await _unfinished(store, cluster, node.data)
    except MalformedMetadata as malformed:
        return Strange(str(malformed))
    servers = frozenset(f"{each.host}:{each.port}" for each in view.servers().values())
    count = params.num_partitions
    others = bool({*(await store.children(root)).names} - _CREATED)
    return Present(params.name, count, store_params.key, maps, replicas, servers, others)


async def _unfinished(
    store: MetadataStore, cluster: Cluster, data: bytes | None
) -> Unfinished | Strange:
    paths = cluster.paths
    node = await store.get(paths.store)
    try:
        name = None if data is None else ClusterParams.decode(data).name
        has_key = node is not None and node.data is not None
        key = (await cluster.store_params()).key if has_key else None
    except MalformedMetadata as malformed:
        return Strange(str(malformed))
    return Unfinished(name, key, await _is_used(store, cluster))


async def _is_used(store: MetadataStore, cluster: Cluster) -> bool:
    """Whether there is more than the creation of a cluster makes."""
    paths = cluster.paths
    if {*(await store.children(paths.root)).names} - _CREATED:
        return True
    for counter in (paths.client_id, paths.server_id):
        node = await store.get(counter)
        if node is not None and node.data is not None and decode_id(node.data) > 0:
            return True
    if await store.get(paths.partitions) is not None:
        return bool((await store.children(paths.partitions)).names)
    return False


def _without_secrets(key: ObjectKey, live: Live) -> Live:
    """Return an object with nothing that must not be told; of a secret, the names of its data."""
    if key.kind != "Secret":
        return live
    bare: dict[str, Any] = dict(live)
    bare["data"] = dict.fromkeys(live.get("data") or (), "")
    return bare


def _certificate_days(desired: Desired, objects: Mapping[ObjectKey, Live]) -> float | None:
    """Return how long the certificate that the operator made is good; None if it made none."""
    secret = objects.get(ObjectKey("Secret", names.tls_secret(desired.name)))
    if desired.cluster.spec.tls.mode is not TlsMode.OPERATOR or secret is None:
        return None
    try:
        return days_left(base64.b64decode((secret.get("data") or {})["tls.crt"]))
    except (KeyError, ValueError):
        return 0.0


def _deleting_seconds(desired: Desired, now: datetime.datetime) -> float:
    deleted = desired.cluster.metadata.deletion_timestamp
    if deleted is None:
        return 0.0
    return (now - datetime.datetime.fromisoformat(deleted)).total_seconds()
