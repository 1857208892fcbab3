"""Which objects Kubernetes is to be given, and which ones differ from that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from waltz_operator.core import names
from waltz_operator.core.desired import Desired, ordinal_of
from waltz_operator.core.objects import (
    Manifest,
    ObjectKey,
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
from waltz_operator.core.objects.zookeeper import FOUND
from waltz_operator.core.observed import Observed, Present, Unreachable
from waltz_operator.core.resources import StoragePool, TlsMode
from waltz_operator.core.steps import NOTHING, Apply, IssueCertificates, Plan, problem, wait

_RENEWED_DAYS_BEFORE = 30.0
_SECRET_PARTS = ("ca.crt", "tls.crt", "tls.key")


@dataclass(frozen=True, slots=True)
class Gates:
    """What may begin; what has begun is repaired whatever these say.

    ``registered`` are the storages that ZooKeeper knows, None if that is not known.
    """

    storages: bool
    servers: bool
    registered: frozenset[str] | None


def plan_workloads(desired: Desired, observed: Observed, gates: Gates) -> Plan:
    """Return which objects are to be made or repaired."""
    tls = _plan_tls(desired, observed)
    secured = tls == NOTHING
    result = _apply(desired, observed, _always(desired, observed)) + tls
    for pool in desired.own_pools:
        found = observed.objects.get(ObjectKey("StatefulSet", names.storage_set(_name(pool))))
        if found is not None or (gates.storages and secured):
            replicas = _replicas(pool, observed, gates.registered)
            wanted = storage_set(desired.cluster, pool, replicas)
            result += _apply(desired, observed, (wanted,)) + _await_pods(observed, wanted)
    servers = server_deployment(desired.cluster)
    if servers.key in observed.objects or (gates.servers and secured):
        result += _apply(desired, observed, (servers,)) + _await_pods(observed, servers)
    elif gates.storages:
        result += wait("servers start when every new partition has a replica in every pool")
    return result


def needed_keys(desired: Desired) -> frozenset[ObjectKey]:
    """Return which objects the cluster needs by name, whoever has made those that there are."""
    pools = desired.own_pools
    keys = {each.key for each in _always(desired, Observed({}, Unreachable("not asked")))}
    keys |= {ObjectKey("StatefulSet", names.storage_set(_name(pool))) for pool in pools}
    keys.add(ObjectKey("Deployment", names.server_deployment(desired.name)))
    secret = tls_secret_name(desired.cluster)
    if secret is not None:
        keys.add(ObjectKey("Secret", secret))
        keys.add(ObjectKey("Secret", names.authority_secret(desired.name)))
    return frozenset(keys)


def _always(desired: Desired, observed: Observed) -> Iterator[Manifest]:
    """Yield what waits for nothing."""
    cluster = desired.cluster
    yield from server_objects(cluster)
    yield from budgets(cluster)
    yield from network_policies(cluster, desired.own_pools, desired.operator_namespace)
    yield from certificate_requests(cluster)
    for pool in desired.own_pools:
        yield from storage_objects(cluster, pool)
    managed = cluster.spec.zookeeper.managed
    if managed is not None:
        yield from zookeeper_objects(cluster)
        yield zookeeper_switch(cluster, found=_may_found(desired, observed))
        yield zookeeper_set(cluster, managed)


def _may_found(desired: Desired, observed: Observed) -> bool:
    """Whether an empty ZooKeeper has forgotten nothing: no metadata was ever seen in it."""
    switch = observed.objects.get(ObjectKey("ConfigMap", names.zookeeper_set(desired.name)), {})
    said_no = (switch.get("data") or {}).get(FOUND) == "no"
    seen = desired.cluster.status.cluster_key != "" or isinstance(observed.metadata, Present)
    return not (said_no or seen)


def _plan_tls(desired: Desired, observed: Observed) -> Plan:
    """Return what keeps pods from having certificates; nothing if they may be started."""
    name = tls_secret_name(desired.cluster)
    if name is None:
        return NOTHING
    secret = observed.objects.get(ObjectKey("Secret", name))
    missing = [part for part in _SECRET_PARTS if part not in ((secret or {}).get("data") or {})]
    match desired.cluster.spec.tls.mode:
        case TlsMode.OPERATOR:
            return _plan_own_certificates(desired, observed, missing)
        case TlsMode.CERT_MANAGER:
            if missing:
                return wait(f"cert-manager has not made the secret {name} yet")
        case _:
            if secret is None:
                return wait(f"the secret {name}, which spec.tls.secretName names, does not exist")
            if missing:
                return problem(f"the secret {name} lacks {', '.join(missing)}: add it")
    return NOTHING


def _plan_own_certificates(desired: Desired, observed: Observed, missing: list[str]) -> Plan:
    for secret in (names.authority_secret(desired.name), names.tls_secret(desired.name)):
        live = observed.objects.get(ObjectKey("Secret", secret))
        if live is not None and not is_ours(live, desired.name):
            return problem(_foreign(ObjectKey("Secret", secret)))
    if missing:
        return Plan((IssueCertificates(renew=False),))
    days = observed.certificate_days
    if days is not None and days < _RENEWED_DAYS_BEFORE:
        return Plan((IssueCertificates(renew=True),))
    return NOTHING


def _apply(desired: Desired, observed: Observed, wanted: Iterable[Manifest]) -> Plan:
    result = NOTHING
    for manifest in wanted:
        live = observed.objects.get(manifest.key)
        if live is not None and not is_ours(live, desired.name):
            result += problem(_foreign(manifest.key))
        elif live is not None and live["metadata"].get("deletionTimestamp"):
            result += wait(
                f"{manifest.key} was deleted by somebody; it is made anew when it is gone"
            )
        elif live is None or not matches(manifest, live):
            result += Plan((Apply(manifest, new=live is None),))
    return result


def _foreign(key: ObjectKey) -> str:
    return (
        f"{key} is there already, and not the operator's for this cluster: delete it, or give the "
        "cluster or pool another name"
    )


def _replicas(pool: StoragePool, observed: Observed, registered: frozenset[str] | None) -> int:
    """Return how many pods the pool has: never fewer than there are storages with an identity."""
    if registered is not None:
        known = (ordinal_of(pool, storage) for storage in registered)
        return max(pool.spec.storages, *(n + 1 for n in known if n is not None), 0)
    live = observed.objects.get(ObjectKey("StatefulSet", names.storage_set(_name(pool))))
    return max(pool.spec.storages, 0 if live is None else live["spec"].get("replicas", 0))


def _await_pods(observed: Observed, wanted: Manifest) -> Plan:
    """Return what is known of pods that are not ready."""
    live = observed.objects.get(wanted.key)
    if live is None:
        return NOTHING
    ready, count = (
        (live.get("status") or {}).get("readyReplicas", 0),
        wanted.body["spec"]["replicas"],
    )
    if ready >= count:
        return NOTHING
    return wait(f"{wanted.key} has {ready} of {count} pods ready")


def _name(pool: StoragePool) -> str:
    return pool.metadata.name
