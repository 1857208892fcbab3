"""Observe everything that a plan depends on. Touches the API server, ZooKeeper and the network.

The observer changes nothing. `observe` reads every object from the API server instead of a watch's
cache, because a plan from outdated objects would contain steps that the next plan reverts.
`observe_metadata` takes objects that were read before. This is safe, because no step is performed
from its result: it only shows whether a cluster that needed no step must be reconciled again.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from waltz.admin import ObservationScope
from waltz.metadata import MalformedMetadata, MetadataStore, StoreError
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.formats import ClusterParams, decode_id
from waltz.metadata.outside import read_outside_addresses
from waltz.metadata.zookeeper_access import AccessDenied
from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import Component
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import (
    ClusterAbsent,
    ClusterIncomplete,
    ClusterMalformed,
    ClusterMetadata,
    ClusterPresent,
    LiveObject,
    ObservedCluster,
    ZooKeeperUnreachable,
)
from waltz_operator.core.planning.rolls import is_rolling
from waltz_operator.core.planning.workloads import needed_keys
from waltz_operator.core.resources import TlsMode
from waltz_operator.core.volume_growth import (
    UNCHECKED,
    VolumeGrowth,
    growths_to_ask_about,
    size_request,
    volume_growths,
)
from waltz_operator.shell.authority_observer import observe_authority, observe_authority_problem
from waltz_operator.shell.certificates import days_left
from waltz_operator.shell.environment import Environment
from waltz_operator.shell.kube_api import Kube, KubeError

log = logging.getLogger(__name__)

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
"""The kinds of objects that are listed by the labels of the cluster."""
_ZOOKEEPER_SECONDS = 10.0
"""The time limit of one observation of ZooKeeper, servers and storages."""
_CLUSTER_ZNODES = {"serverDescriptors", "ids", "store"}
"""The names of the znodes that the creation of a cluster makes directly below its root.

A cluster whose creation was interrupted has no other ones.
"""
_OPTIONAL_ZNODES = {"access", "transport", "outside"}
"""Znodes that may be added below the root: access rules, TLS of servers, outside addresses."""


async def observe(
    desired: DesiredCluster, kube: Kube, environment: Environment, now: datetime.datetime
) -> ObservedCluster:
    """Return the observed state. Raises KubeError; other failures are part of the result."""
    # A secret may have changed since the last observation: the certificates are read again.
    environment.forget_certificates(desired)
    objects = await _read_objects(desired, kube)
    growths = volume_growths(desired, _observation_of(objects))
    return ObservedCluster(
        objects={key: _redacted(key, live) for key, live in objects.items()},
        metadata=(
            _unready_zookeeper(desired, objects) or await _observe_cluster(desired, environment)
        ),
        certificate_days=_certificate_days(desired, objects, now),
        deleting_seconds=_deleting_seconds(desired, now),
        zookeeper_leader=await _zookeeper_leader(desired, objects, environment),
        lost_seconds=_lost_seconds(desired, now),
        growth_refusals=await _growth_refusals(desired, kube, growths),
        file_system_seconds=_file_system_seconds(growths, now),
        authority=await observe_authority(desired, objects, environment, now),
        authority_problem=observe_authority_problem(desired, objects),
    )


async def observe_metadata(
    desired: DesiredCluster, before: ObservedCluster, environment: Environment
) -> ObservedCluster:
    """Return ``before`` with the present state of ZooKeeper, servers and storages.

    Raises KubeError; other failures are part of the result.
    """
    unready = _unready_zookeeper(desired, before.objects)
    return replace(before, metadata=unready or await _observe_cluster(desired, environment))


async def _read_objects(desired: DesiredCluster, kube: Kube) -> dict[ObjectKey, LiveObject]:
    """Return the objects with the cluster's labels, and any others that have names it needs."""
    kinds = list(_KINDS)
    if desired.cluster.spec.tls.mode is TlsMode.CERT_MANAGER:
        kinds.append("Certificate")
    labels = {names.MANAGER_LABEL: names.MANAGER, names.CLUSTER_LABEL: desired.name}
    lists = await asyncio.gather(*(kube.find(kind, desired.namespace, labels) for kind in kinds))
    objects = {
        ObjectKey(kind, live["metadata"]["name"]): live
        for kind, listed in zip(kinds, lists, strict=True)
        for live in listed
    }
    # An object of another owner may have a name that the cluster needs. It lacks the labels of the
    # cluster, so it is read by its name.
    not_listed = sorted(needed_keys(desired) - objects.keys())
    answers = await asyncio.gather(
        *(kube.get(key.kind, desired.namespace, key.name) for key in not_listed)
    )
    for key, live in zip(not_listed, answers, strict=True):
        if live is not None:
            objects[key] = live
    return objects


def _unready_zookeeper(
    desired: DesiredCluster, objects: Mapping[ObjectKey, LiveObject]
) -> ZooKeeperUnreachable | None:
    """Return ZooKeeperUnreachable if ZooKeeper is managed and has no ready member, otherwise None.

    The observer then does not try to connect, because each attempt would last until its timeout and
    delay the reconcile.
    """
    if desired.cluster.spec.zookeeper.managed is None:
        return None
    live = objects.get(ObjectKey("StatefulSet", names.zookeeper_set(desired.name)), {})
    if (live.get("status") or {}).get("readyReplicas", 0) > 0:
        return None
    return ZooKeeperUnreachable("none of its members is ready")


async def _observe_cluster(desired: DesiredCluster, environment: Environment) -> ClusterMetadata:
    """Return the present state of ZooKeeper, servers and storages.

    The result is ZooKeeperUnreachable after an error or timeout. Raises KubeError.
    """
    try:
        async with asyncio.timeout(_ZOOKEEPER_SECONDS):
            store = await environment.metadata_store(desired)
            return await read_metadata(store, desired, environment)
    except (StoreError, TimeoutError) as problem:
        return ZooKeeperUnreachable(str(problem) or f"no answer within {_ZOOKEEPER_SECONDS:g} s")


async def read_metadata(
    store: MetadataStore, desired: DesiredCluster, environment: Environment
) -> ClusterMetadata:
    """Return the metadata at the cluster's root, and the state of its replicas.

    Raises StoreError, KubeError.
    """
    root = desired.root
    node = await store.get(root)
    if node is None:
        return ClusterAbsent()
    cluster = Cluster(store, root)
    try:
        params, store_params = await cluster.params(), await cluster.store_params()
        maps, membership = await cluster.storage_maps(), await cluster.membership()
        access = await environment.replica_access(desired, cluster)
        # All partitions (None), at all registered storages.
        replicas = await access.observe(ObservationScope(None, frozenset(maps.groups.groups)))
    except NoCluster:
        return await _read_incomplete(store, cluster, node.data)
    except MalformedMetadata as malformed:
        return ClusterMalformed(str(malformed))
    known = _CLUSTER_ZNODES | _OPTIONAL_ZNODES
    outside, outside_problem = await _read_outside(cluster)
    return ClusterPresent(
        params.name,
        params.num_partitions,
        store_params.key,
        maps,
        replicas,
        servers=frozenset(each.address for each in membership.servers().values()),
        foreign_znodes=bool({*(await store.children(root)).names} - known),
        outside=outside,
        outside_problem=outside_problem,
    )


async def _read_outside(cluster: Cluster) -> tuple[Mapping[str, str] | None, str]:
    """Return the outside addresses, and why they cannot be read (empty if they can).

    The addresses are None if there are none, or if they cannot be read. No part of a cluster
    depends on them, so neither malformed addresses nor a missing permission stops the operator.
    Raises StoreError.
    """
    try:
        stored = await read_outside_addresses(cluster)
    except (MalformedMetadata, AccessDenied) as refused:
        return None, str(refused)
    return (None if stored is None else stored.value.addresses), ""


async def _read_incomplete(
    store: MetadataStore, cluster: Cluster, data: bytes | None
) -> ClusterIncomplete | ClusterMalformed:
    """Return what exists of a cluster's metadata; ``data`` are the data of its root znode."""
    paths = cluster.paths
    node = await store.get(paths.store)
    try:
        # The root znode has the cluster's name, the znode `paths.store` its key.
        name = None if data is None else ClusterParams.decode(data).name
        has_key = node is not None and node.data is not None
        key = (await cluster.store_params()).key if has_key else None
        return ClusterIncomplete(name, key, await _was_complete(store, cluster))
    except MalformedMetadata as malformed:
        return ClusterMalformed(str(malformed))


async def _was_complete(store: MetadataStore, cluster: Cluster) -> bool:
    """Whether the metadata of an incomplete cluster were complete before.

    The processes of a complete cluster make further znodes below its root, assign ids, and write
    metadata of partitions. The creation of a cluster does none of this.
    """
    paths = cluster.paths
    if {*(await store.children(paths.root)).names} - _CLUSTER_ZNODES:
        return True
    for counter in (paths.client_id, paths.server_id):
        node = await store.get(counter)
        if node is not None and node.data is not None and decode_id(node.data) > 0:
            return True
    if await store.get(paths.partitions) is not None:
        return bool((await store.children(paths.partitions)).names)
    return False


async def _zookeeper_leader(
    desired: DesiredCluster, objects: Mapping[ObjectKey, LiveObject], environment: Environment
) -> str | None:
    """Return the pod that leads a managed ZooKeeper.

    The result is None if no pod of ZooKeeper has to be replaced, or if the leader is unknown. The
    leader matters only during a replacement, so it is not asked for at other times.
    """
    if not is_rolling(desired, _observation_of(objects), Component.ZOOKEEPER):
        return None
    return await environment.zookeeper_leader(desired)


def _observation_of(objects: Mapping[ObjectKey, LiveObject]) -> ObservedCluster:
    """Return an observation with ``objects`` only, for functions that use nothing else of it."""
    return ObservedCluster(objects, ZooKeeperUnreachable("not needed"))


def _redacted(key: ObjectKey, live: LiveObject) -> LiveObject:
    """Return an object; if it is a secret, only the names of its parts, without their contents."""
    if key.kind != "Secret":
        return live
    redacted: dict[str, Any] = dict(live)
    redacted["data"] = dict.fromkeys(live.get("data") or (), "")
    return redacted


def _certificate_days(
    desired: DesiredCluster, objects: Mapping[ObjectKey, LiveObject], now: datetime.datetime
) -> float | None:
    """Return the remaining days of the processes' certificate, None if the operator issued none.

    A certificate that cannot be decoded has 0 days.
    """
    secret = objects.get(ObjectKey("Secret", names.tls_secret(desired.name)))
    if desired.cluster.spec.tls.mode is not TlsMode.OPERATOR or secret is None:
        return None
    try:
        return days_left(base64.b64decode((secret.get("data") or {})["tls.crt"]), now)
    except (KeyError, ValueError):
        return 0.0


def _deleting_seconds(desired: DesiredCluster, now: datetime.datetime) -> float:
    """Return the seconds since the deletion was requested, 0 without a deletion."""
    deleted = desired.cluster.metadata.deletion_timestamp
    if deleted is None:
        return 0.0
    return (now - datetime.datetime.fromisoformat(deleted)).total_seconds()


async def _growth_refusals(
    desired: DesiredCluster, kube: Kube, growths: tuple[VolumeGrowth, ...]
) -> dict[str, str]:
    """Return the volume claims that the API server would not enlarge, each with the reason.

    A dry run of each change shows its refusal before the plan is made. The dry run also checks
    quotas and the StorageClass, which an operator of one namespace may not read. A dry run that
    fails delays only the growth: it may fail for long, for example while a webhook for volume
    claims does not answer, and the cluster must be repaired meanwhile.
    """

    async def refusal(growth: VolumeGrowth) -> str | None:
        claim, change = growth.claim, size_request(growth.wanted)
        try:
            return await kube.patch_refusal(
                "PersistentVolumeClaim", desired.namespace, claim, change
            )
        except KubeError as problem:
            # The reason for the status has no text of the error, because a text that differs each
            # time would be written each time.
            log.warning(
                "cluster %s/%s: failed to check the growth of volume %s to %s, retrying: %s",
                desired.namespace,
                desired.name,
                claim,
                growth.wanted,
                problem,
            )
            return UNCHECKED

    doubtful = growths_to_ask_about(growths)
    answers = await asyncio.gather(*map(refusal, doubtful))
    return {
        each.claim: reason
        for each, reason in zip(doubtful, answers, strict=True)
        if reason is not None
    }


def _file_system_seconds(
    growths: tuple[VolumeGrowth, ...], now: datetime.datetime
) -> dict[str, float]:
    """Return for how many seconds each volume claim has waited for the resize of its file system.

    Claims that do not wait are absent.
    """
    return {
        growth.claim: (now - datetime.datetime.fromisoformat(growth.pending_since)).total_seconds()
        for growth in growths
        if growth.pending_since is not None
    }


def _lost_seconds(desired: DesiredCluster, now: datetime.datetime) -> dict[str, float]:
    """Return how many seconds ago a pool's status first reported a lost volume, for each pod."""
    return {
        lost.pod: (now - datetime.datetime.fromisoformat(lost.since)).total_seconds()
        for pool in desired.own_pools
        for lost in pool.status.lost_volumes
    }
