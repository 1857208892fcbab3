"""Protection of a cluster's pods: disruption budgets, network policies. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from waltz.admin.core.replicas import quorum
from waltz_operator.core import names
from waltz_operator.core.names import (
    ZOOKEEPER_CLIENT_PORT,
    ZOOKEEPER_ELECTION_PORT,
    ZOOKEEPER_PEER_PORT,
    Component,
)
from waltz_operator.core.objects.manifest import Manifest, manifest
from waltz_operator.core.resources import StoragePool, WaltzCluster
from waltz_operator.core.resources.outside import OutsideAccess


def budgets(
    cluster: WaltzCluster,
    evictable_storages: int,
    *,
    has_several_copies: bool,
    is_zookeeper_rolling: bool = False,
) -> tuple[Manifest, ...]:
    """Return the disruption budgets: how many pods of each component may be evicted at once.

    ``evictable_storages`` is the number of storages that may be away now. With more evictions a
    partition could lose its quorum while nodes are drained
    (tests/unit/operator/test_operator_disruption.py). If ``is_zookeeper_rolling``, the operator
    itself replaces ZooKeeper's members one by one, so no further member may be away.

    ``has_several_copies`` is `DesiredCluster.has_several_copies`. It does not follow from
    ``cluster``, whose spec names neither the pools that leave nor the foreign storages. With a
    single copy, every eviction interrupts appends. Then the storages have no budget, because a
    budget that is always 0 would block every drain of a node.
    """
    spec, managed = cluster.spec, cluster.spec.zookeeper.managed
    allowed = {}
    if has_several_copies:
        allowed[Component.STORAGE] = evictable_storages
    if spec.servers.replicas > 1:
        allowed[Component.SERVER] = 1
    if managed is not None and managed.members > 1:
        spare = managed.members - quorum(managed.members)
        allowed[Component.ZOOKEEPER] = 0 if is_zookeeper_rolling else spare
    return tuple(_budget(cluster, component, count) for component, count in allowed.items())


@dataclass(frozen=True, slots=True)
class PodPorts:
    """The ports of the pods that exist. These pods may be of earlier versions.

    ``servers`` are the ports of servers for clients, ``server_http`` their ports for HTTP.
    ``storage_http`` has the ports of storages for HTTP, by the name of the pool. The other ports of
    a storage never change.
    """

    servers: Set[int] = frozenset()
    server_http: Set[int] = frozenset()
    storage_http: Mapping[str, Set[int]] = field(default_factory=dict)


def network_policies(
    cluster: WaltzCluster,
    pools: Iterable[StoragePool],
    operator_namespace: str,
    pod_ports: PodPorts | None = None,
) -> tuple[Manifest, ...]:
    """Return the policies that limit connections to storages and to a managed ZooKeeper.

    Only servers and the operator may connect to a storage's port for servers. Only the operator and
    the cluster's storages, which copy replicas from each other, may connect to its admin port. A
    user's pod with the label `names.ADMINISTERS_LABEL` may connect to both ports, so that the
    commands ``waltz storage`` work in it. Only ZooKeeper's members may connect to ZooKeeper's peer
    ports. A storage's HTTP port is open to any monitoring, and ZooKeeper's client port to clients,
    which may run anywhere.

    With access from outside to storages, the ports of their Services are open to clients outside,
    too. If `OutsideAccess.policies_restrict_clients` is true, these clients must be in the source
    ranges. Then also the client ports of servers and of a managed ZooKeeper are open only to pods
    and to clients in the source ranges. Otherwise servers have no policy.

    ``pod_ports`` are those of the pods that exist. They stay open until an update has replaced
    these pods. The result is empty if the spec wants no policies.
    """
    existing = pod_ports or PodPorts()
    if not cluster.spec.network_policies:
        return ()
    name, access = cluster.metadata.name, cluster.spec.access.outside
    operator = _peer(
        {"app.kubernetes.io/name": names.MANAGER},
        {"kubernetes.io/metadata.name": operator_namespace},
    )
    servers = _peer(names.selector(name, Component.SERVER))
    storages = _peer(names.selector(name, Component.STORAGE))
    administrators = _peer({names.ADMINISTERS_LABEL: name})
    any_peer: list[dict[str, Any]] = []  # A rule without peers is for all, see `_allow`.
    outside = _outside_peers(access)
    policies = []
    for pool in pools:
        spec = pool.spec
        rules = [
            _allow([servers, operator, administrators], spec.port),
            _allow([storages, operator, administrators], spec.admin_port),
            _allow(any_peer, spec.http_port, *existing.storage_http.get(pool.metadata.name, ())),
        ]
        if access is not None and access.storages:
            admin_ports = (spec.admin_port,) if access.admin_ports else ()
            rules.append(_allow(outside, spec.port, *admin_ports))
        policies.append(_policy(cluster, Component.STORAGE, rules, pool))
    # Clients in pods may be in any namespace.
    clients = [{"namespaceSelector": {}}, *outside] if outside else any_peer
    if outside:
        server = cluster.spec.servers
        rules = [
            _allow(clients, server.port, *existing.servers),
            _allow(any_peer, server.http_port, *existing.server_http),
        ]
        policies.append(_policy(cluster, Component.SERVER, rules))
    if cluster.spec.zookeeper.managed is not None:
        peers = [_peer(names.selector(name, Component.ZOOKEEPER))]
        rules = [
            _allow(peers, ZOOKEEPER_PEER_PORT, ZOOKEEPER_ELECTION_PORT),
            _allow(clients, ZOOKEEPER_CLIENT_PORT),
        ]
        policies.append(_policy(cluster, Component.ZOOKEEPER, rules))
    return tuple(policies)


def _outside_peers(access: OutsideAccess | None) -> list[dict[str, Any]]:
    """Return the peers of a rule for clients outside; no peers if these may be anywhere.

    Without the traffic policy Local, connections from outside seem to come from nodes. Then a rule
    with the source ranges would refuse all clients.
    """
    if access is None or not access.policies_restrict_clients:
        return []
    return [{"ipBlock": {"cidr": each}} for each in access.normalized_source_ranges]


def _budget(cluster: WaltzCluster, component: Component, unavailable: int) -> Manifest:
    """Return the disruption budget by which ``unavailable`` pods of a component may be away."""
    name = cluster.metadata.name
    # A server is not ready while one of its partitions is not open. Such a server must not block
    # the drain of its node: other servers take its partitions over. A storage is not ready while
    # one of its replicas takes no part in its session. Its other replicas may be needed for
    # quorums, so the budget still protects it.
    is_server = component is Component.SERVER
    content = {
        "spec": {
            "maxUnavailable": unavailable,
            "selector": {"matchLabels": names.selector(name, component)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow" if is_server else "IfHealthyBudget",
        }
    }
    object_labels = names.labels(name, component)
    return manifest(
        cluster, "PodDisruptionBudget", names.budget(name, component), object_labels, content
    )


def _policy(
    cluster: WaltzCluster,
    component: Component,
    rules: list[dict[str, Any]],
    pool: StoragePool | None = None,
) -> Manifest:
    """Return the network policy of the pods of a component, or of one pool of storages."""
    name = cluster.metadata.name
    pool_name = None if pool is None else pool.metadata.name
    policy_name = f"{name}-{component.value}" if pool_name is None else names.storage_set(pool_name)
    content = {
        "spec": {
            "podSelector": {"matchLabels": names.selector(name, component, pool_name)},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        }
    }
    object_labels = names.labels(name, component, pool_name)
    return manifest(pool or cluster, "NetworkPolicy", policy_name, object_labels, content)


def _peer(pods: Mapping[str, str], namespace: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the peer of a rule: the pods with these labels.

    ``namespace`` has the labels of their namespace, None for the namespace of the cluster.
    """
    peer: dict[str, Any] = {"podSelector": {"matchLabels": dict(pods)}}
    if namespace is not None:
        peer["namespaceSelector"] = {"matchLabels": dict(namespace)}
    return peer


def _allow(peers: list[dict[str, Any]], *ports: int) -> dict[str, Any]:
    """Return the rule that ``peers`` may connect to ``ports``; with no peers, all may connect."""
    in_order = sorted(set(ports))
    rule: dict[str, Any] = {"ports": [{"protocol": "TCP", "port": port} for port in in_order]}
    if peers:
        rule["from"] = peers
    return rule
