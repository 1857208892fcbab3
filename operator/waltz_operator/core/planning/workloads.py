"""Plan the Kubernetes objects of a cluster: create, repair and delete them. Pure.

`core.objects` makes the manifests of the objects, `core.pod_templates` decides which pod template a
workload has. `outside` plans the Services for access from outside, and `shape_objects` the removal
of objects that a change of the shape leaves behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster, ordinal_of
from waltz_operator.core.disruption import count_storages_that_may_be_away
from waltz_operator.core.names import Component
from waltz_operator.core.objects import (
    Manifest,
    ObjectKey,
    PodPorts,
    budgets,
    certificate_requests,
    is_ours,
    matches,
    network_policies,
    server_deployment,
    server_objects,
    storage_objects,
    storage_set,
    zookeeper_objects,
    zookeeper_set,
    zookeeper_switch,
)
from waltz_operator.core.objects.pods import tls_secret_name
from waltz_operator.core.objects.zookeeper import SWITCH_KEY
from waltz_operator.core.observed import ClusterPresent, ObservedCluster, ZooKeeperUnreachable
from waltz_operator.core.planning.certificates import (
    foreign_object,
    plan_clients_tls,
    plan_processes_tls,
)
from waltz_operator.core.planning.outside_addresses import (
    outside_names,
    server_pods,
    wanted_services,
)
from waltz_operator.core.planning.rolls import is_rolling
from waltz_operator.core.planning.shape_objects import plan_released_objects, retired_pools
from waltz_operator.core.planning.volume_sizes import template_sizes
from waltz_operator.core.pod_ports import port_of_pod
from waltz_operator.core.pod_templates import RenderedWorkload, manifest_to_apply
from waltz_operator.core.resources import StoragePool, TlsMode
from waltz_operator.core.steps import (
    EMPTY_PLAN,
    ApplyObject,
    ClusterPlan,
    DeleteObject,
    problem,
    wait,
)
from waltz_operator.core.volume_replacement import is_replacing, pool_pods

_PRUNED_KINDS = ("Certificate", "NetworkPolicy", "PodDisruptionBudget")
"""The kinds of objects that are deleted when the spec no longer wants them.

Objects of other kinds hold data or identities (volumes, secrets, workloads and their Services).
They are deleted only by the removal of a pool (`shape_objects`, `adoption_guard`) or of a storage
(`shape_objects`), the replacement of a volume (`healing`), the growth of volumes, which creates the
StatefulSet again (`volume_sizes`), and the deletion of the cluster. The Services for access from
outside are left to `outside`.
"""


@dataclass(frozen=True, slots=True)
class StartPermissions:
    """Which workloads may be created. A workload that exists is repaired without a permission.

    ``storages``: whether StatefulSets of storages may be created. ``servers``: whether the
    Deployment of the servers may be created. ``registered`` are the storages that are registered in
    ZooKeeper, None if they are unknown. No StatefulSet is scaled below them (`_num_pods`).
    """

    storages: bool
    servers: bool
    registered: frozenset[str] | None


def plan_workloads(
    desired: DesiredCluster, observed: ObservedCluster, permissions: StartPermissions
) -> ClusterPlan:
    """Return the steps that create or repair objects, and the reasons why others have to wait."""
    processes_tls = plan_processes_tls(desired, observed)
    # A process without its certificates would restart in a loop. So it starts after they exist.
    is_tls_ready = processes_tls == EMPTY_PLAN
    wanted_objects = tuple(_unconditional_objects(desired, observed))
    result = plan_objects(desired, observed, wanted_objects) + processes_tls
    result += plan_clients_tls(desired, observed, processes_tls)
    result += _await_budgets(observed, wanted_objects)
    for manifest in wanted_objects:
        if manifest.key.kind == "StatefulSet":
            # It is that of ZooKeeper. The cluster is not Healthy while a member is missing.
            result += _await_pods(observed, manifest)
    result += _prune(desired, observed, {manifest.key for manifest in wanted_objects})
    result += plan_released_objects(desired, observed)
    for pool in _pools(desired, observed):
        live = observed.objects.get(ObjectKey("StatefulSet", names.storage_set(_name(pool))))
        # Pods may run without their StatefulSet, if an operator was stopped while it enlarged their
        # volumes (`volume_sizes`). Without a set, none of them would start again. So a set that has
        # pods is created without a permission.
        has_set_or_pods = live is not None or _num_replicas_of_pods(pool, observed) > 0
        if has_set_or_pods or (permissions.storages and is_tls_ready):
            num_pods = _num_pods(pool, observed, permissions.registered)
            rendered = storage_set(desired.cluster, pool, num_pods, template_sizes(live))
            wanted = manifest_to_apply(RenderedWorkload(desired.cluster, rendered, pool), live)
            result += plan_objects(desired, observed, (wanted,)) + _await_pods(observed, wanted)
    rendered = server_deployment(desired.cluster)
    live = observed.objects.get(rendered.key)
    servers = manifest_to_apply(RenderedWorkload(desired.cluster, rendered), live)
    if servers.key in observed.objects or (permissions.servers and is_tls_ready):
        result += plan_objects(desired, observed, (servers,)) + _await_pods(observed, servers)
    elif permissions.storages and not permissions.servers:
        # If storages must not start either, the plan for the metadata says why.
        result += wait(_servers_wait(desired))
    return result


def needed_keys(desired: DesiredCluster) -> frozenset[ObjectKey]:
    """Return the keys of all objects that the cluster needs, whatever its observed state is.

    These objects are observed by name, not only by their labels. So an object of another owner with
    such a name is found, and never changed.
    """
    pools = desired.own_pools
    # The observed state may add objects, such as the Service of a storage that leaves. These exist
    # already and have the labels of the cluster, so they are observed by their labels.
    unknown = ObservedCluster({}, ZooKeeperUnreachable("not observed"))
    keys = {manifest.key for manifest in _unconditional_objects(desired, unknown)}
    keys |= {manifest.key for manifest in wanted_services(desired, unknown)}
    keys |= {ObjectKey("StatefulSet", names.storage_set(_name(pool))) for pool in pools}
    # Kubernetes lets a pod use any claim of the right name, also one that a user has created.
    keys |= {key for pool_pod in pool_pods(desired, unknown) for key in pool_pod.claim_keys}
    keys.add(ObjectKey("Deployment", names.servers(desired.name)))
    secret = tls_secret_name(desired.cluster)
    if secret is not None:
        keys.add(ObjectKey("Secret", secret))
        keys.add(ObjectKey("Secret", names.authority_secret(desired.name)))
    if desired.cluster.spec.tls.mode is TlsMode.OPERATOR:
        keys.add(ObjectKey("Secret", names.client_tls_secret(desired.name)))
    return frozenset(keys)


def _unconditional_objects(
    desired: DesiredCluster, observed: ObservedCluster
) -> Iterator[Manifest]:
    """Yield the wanted objects that are created without any precondition.

    They are all wanted objects except the workloads of storages and servers, the secrets, and the
    Services for access from outside.
    """
    cluster = desired.cluster
    yield from server_objects(cluster)
    yield from budgets(
        cluster,
        _evictable_storages(desired, observed),
        has_several_copies=desired.has_several_copies,
        is_zookeeper_rolling=is_rolling(desired, observed, Component.ZOOKEEPER),
    )
    pools = _pools(desired, observed)
    pod_ports = _pod_ports(desired, observed, pools)
    yield from network_policies(cluster, pools, desired.operator_namespace, pod_ports)
    yield from certificate_requests(cluster, outside_names(desired, observed))
    for pool in pools:
        yield from storage_objects(cluster, pool)
    managed = cluster.spec.zookeeper.managed
    if managed is not None:
        yield from zookeeper_objects(cluster)
        yield zookeeper_switch(cluster, may_initialize=_may_initialize_ensemble(desired, observed))
        rendered = zookeeper_set(cluster, managed)
        live = observed.objects.get(rendered.key)
        yield manifest_to_apply(RenderedWorkload(cluster, rendered), live)


def _pod_ports(
    desired: DesiredCluster, observed: ObservedCluster, pools: Iterable[StoragePool]
) -> PodPorts:
    """Return the ports of the pods that exist, which may be of earlier versions."""
    spec = desired.cluster.spec.servers
    servers = server_pods(desired, observed).values()
    storages = [
        pod for pod in observed.of_kind("Pod", Component.STORAGE) if is_ours(pod, desired.name)
    ]
    return PodPorts(
        servers={port_of_pod(pod, "waltz", spec.port) for pod in servers},
        server_http={port_of_pod(pod, "http", spec.http_port) for pod in servers},
        storage_http={
            _name(pool): {
                port_of_pod(pod, "http", pool.spec.http_port)
                for pod in storages
                if pod["metadata"]["labels"].get(names.POOL_LABEL) == _name(pool)
            }
            for pool in pools
        },
    )


def _pools(desired: DesiredCluster, observed: ObservedCluster) -> tuple[StoragePool, ...]:
    """Return the pools that need their objects: all, except those whose removal is complete."""
    retired = retired_pools(desired, observed)
    return tuple(pool for pool in desired.own_pools if _name(pool) not in retired)


def _evictable_storages(desired: DesiredCluster, observed: ObservedCluster) -> int:
    """Return how many storages may be evicted at once.

    The number is 0 while the replicas are not observed. It is also 0 during a rolling change and
    while a volume is replaced, because the operator itself stops storages then. Replicas of another
    cluster at the same root say nothing about this cluster's storages.
    """
    match observed.metadata:
        case ClusterPresent() as present if present.key == desired.key:
            if is_rolling(desired, observed, Component.STORAGE):
                return 0
            if is_replacing(desired):
                return 0
            return count_storages_that_may_be_away(present)
        case _:
            return 0


def _may_initialize_ensemble(desired: DesiredCluster, observed: ObservedCluster) -> bool:
    """Whether ZooKeeper members with empty volumes may form an ensemble.

    They may only before the metadata of the cluster is complete for the first time. Once False, the
    answer stays False, even while ZooKeeper does not answer. Otherwise members that lost their
    volumes could form an empty ensemble, in which the cluster would seem not to exist
    (test_switch_forbids_empty_members_a_new_ensemble_once_the_cluster_exists).
    """
    switch = observed.objects.get(ObjectKey("ConfigMap", names.zookeeper_set(desired.name)), {})
    forbidden_before = (switch.get("data") or {}).get(SWITCH_KEY) == "no"
    existed = desired.cluster.status.cluster_key != "" or isinstance(
        observed.metadata, ClusterPresent
    )
    return not (forbidden_before or existed)


def plan_objects(
    desired: DesiredCluster, observed: ObservedCluster, wanted: Iterable[Manifest]
) -> ClusterPlan:
    """Return the steps that create or repair the ``wanted`` objects.

    An object of another owner is a problem. An object that is being deleted is a wait.
    """
    result = EMPTY_PLAN
    for manifest in wanted:
        live = observed.objects.get(manifest.key)
        if live is not None and not is_ours(live, desired.name):
            result += problem(foreign_object(manifest.key))
        elif live is not None and live["metadata"].get("deletionTimestamp"):
            result += wait(
                f"{manifest.key} is being deleted; the operator creates it again afterwards"
            )
        elif live is None or not matches(manifest, live):
            result += ClusterPlan((ApplyObject(manifest, new=live is None),))
    return result


def _prune(
    desired: DesiredCluster, observed: ObservedCluster, wanted: Set[ObjectKey]
) -> ClusterPlan:
    """Return the deletion of the cluster's own objects that its spec no longer wants."""
    # A pool that the spec names may not be claimed at this moment. Then its policy is not among
    # ``wanted``, but is kept, because it still protects running storages.
    kept_pools = {*desired.cluster.spec.pools} if desired.cluster.spec.network_policies else set()
    return ClusterPlan(
        tuple(
            DeleteObject(ObjectKey(kind, live["metadata"]["name"]), live["metadata"]["uid"])
            for kind in _PRUNED_KINDS
            for live in observed.of_kind(kind)
            if is_ours(live, desired.name)
            and not live["metadata"].get("deletionTimestamp")
            and ObjectKey(kind, live["metadata"]["name"]) not in wanted
            and live["metadata"]["labels"].get(names.POOL_LABEL) not in kept_pools
        )
    )


def _num_pods(
    pool: StoragePool, observed: ObservedCluster, registered: frozenset[str] | None
) -> int:
    """Return the replica count of a pool's StatefulSet.

    It is large enough for the registered storage with the highest ordinal, because this storage may
    hold committed transactions (test_stateful_set_is_never_scaled_below_registered). While the
    registered storages are unknown (``registered`` is None), an existing StatefulSet does not
    shrink, and a StatefulSet that is created again keeps all pods that exist.
    """
    if registered is not None:
        ordinals = (ordinal_of(pool, storage) for storage in registered)
        return max([pool.spec.storages, *(n + 1 for n in ordinals if n is not None)])
    live = observed.objects.get(ObjectKey("StatefulSet", names.storage_set(_name(pool))))
    if live is None:
        return max(pool.spec.storages, _num_replicas_of_pods(pool, observed))
    return max(pool.spec.storages, int(live["spec"].get("replicas", 0)))


def _num_replicas_of_pods(pool: StoragePool, observed: ObservedCluster) -> int:
    """Return the replica count with which a StatefulSet keeps all existing pods of a pool.

    It is the highest ordinal of a pod plus 1, or 0 without pods.
    """
    prefix = f"{names.storage_set(_name(pool))}-"
    ordinals = (
        pod["metadata"]["name"].removeprefix(prefix)
        for pod in observed.of_kind("Pod", Component.STORAGE)
        if pod["metadata"]["name"].startswith(prefix)
        and not pod["metadata"].get("deletionTimestamp")
    )
    return max((int(each) + 1 for each in ordinals if each.isdecimal()), default=0)


def _await_pods(observed: ObservedCluster, wanted: Manifest) -> ClusterPlan:
    """Return a wait for the pods of a workload that are not ready.

    The plan is empty if all pods are ready, or if the workload does not exist.
    """
    live = observed.objects.get(wanted.key)
    if live is None:
        return EMPTY_PLAN
    ready = (live.get("status") or {}).get("readyReplicas", 0)
    count = wanted.body["spec"]["replicas"]
    if ready >= count:
        return EMPTY_PLAN
    return wait(f"{wanted.key} has {ready} of {count} pods ready")


def _await_budgets(observed: ObservedCluster, wanted_objects: Iterable[Manifest]) -> ClusterPlan:
    """Return a wait for each disruption budget whose limit this plan changes.

    The limits follow the health of the replicas. Without the wait the cluster would be Healthy one
    reconcile before its pods may be evicted.
    """
    result = EMPTY_PLAN
    for wanted in wanted_objects:
        live = observed.objects.get(wanted.key)
        if wanted.key.kind != "PodDisruptionBudget" or live is None:
            continue
        limit = wanted.body["spec"]["maxUnavailable"]
        live_limit = (live.get("spec") or {}).get("maxUnavailable")
        if live_limit != limit:
            result += wait(f"{wanted.key} still allows {live_limit} evictions, not {limit}")
    return result


def _servers_wait(desired: DesiredCluster) -> str:
    """Return the sentence that says when servers start, while `planning.replicas` forbids it."""
    if desired.cluster.spec.adopt is not None:
        return (
            "servers start when every storage of the adopted cluster answers the operator, and "
            "every new partition has a replica in every pool"
        )
    return "servers start when every new partition has a replica in every pool"


def _name(pool: StoragePool) -> str:
    return pool.metadata.name
