"""What everything of a cluster is called in Kubernetes, and by which labels it is found. Pure.

A storage's ``host:port`` is its identity for ever, and is made of the pool's name, the namespace
and the port. It ends in ``.svc``, so that it does not depend on what the Kubernetes cluster's
domain is; whoever resolves it has that among its search domains, as every pod does.
"""

from __future__ import annotations

from enum import StrEnum

CLUSTER_LABEL = "waltz.dev/cluster"
POOL_LABEL = "waltz.dev/pool"
COMPONENT_LABEL = "waltz.dev/component"
MANAGER_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "waltz-operator"

MANIFEST_ANNOTATION = "waltz.dev/manifest"
"""On every object: a digest of what the operator wants it to be."""

RESYNC_ANNOTATION = "waltz.dev/resync"
"""On a WaltzCluster: another value has the operator look at everything anew, at once."""

FINALIZER = "waltz.dev/cluster"
"""Keeps a WaltzCluster, and the pools that it uses, until what belongs to them is gone."""


class Component(StrEnum):
    """The parts that a cluster has."""

    STORAGE = "storage"
    SERVER = "server"
    ZOOKEEPER = "zookeeper"
    CLUSTER = "cluster"


ZOOKEEPER_CLIENT_PORT = 2181
ZOOKEEPER_PEER_PORT = 2888
ZOOKEEPER_ELECTION_PORT = 3888


def labels(cluster: str, component: Component, pool: str | None = None) -> dict[str, str]:
    """Return the labels of an object, by which it is found again."""
    result = {
        "app.kubernetes.io/name": "waltz",
        MANAGER_LABEL: MANAGER,
        CLUSTER_LABEL: cluster,
        COMPONENT_LABEL: component.value,
    }
    if pool is not None:
        result[POOL_LABEL] = pool
    return result


def selector(cluster: str, component: Component, pool: str | None = None) -> dict[str, str]:
    """Return those labels that select pods; they can never change."""
    result = {CLUSTER_LABEL: cluster, COMPONENT_LABEL: component.value}
    if pool is not None:
        result[POOL_LABEL] = pool
    return result


def storage_set(pool: str) -> str:
    """Return the name of a pool's StatefulSet and of its headless Service."""
    return f"{pool}-storage"


def storage_address(pool: str, namespace: str, port: int, ordinal: int) -> str:
    """Return the identity of one storage of a pool."""
    name = storage_set(pool)
    return f"{name}-{ordinal}.{name}.{namespace}.svc:{port}"


def server_deployment(cluster: str) -> str:
    """Return the name of the Deployment of the servers and of their Service."""
    return f"{cluster}-server"


def zookeeper_set(cluster: str) -> str:
    """Return the name of a managed ZooKeeper's StatefulSet, Services and ConfigMap."""
    return f"{cluster}-zookeeper"


def zookeeper_members_service(cluster: str) -> str:
    """Return the name of the headless Service by which its members find each other."""
    return f"{cluster}-zookeeper-members"


def authority_secret(cluster: str) -> str:
    """Return the name of the secret with the key of the cluster's own certificate authority."""
    return f"{cluster}-authority"


def tls_secret(cluster: str) -> str:
    """Return the name of the secret that pods mount: ca.crt, tls.crt, tls.key."""
    return f"{cluster}-tls"


def tls_name(cluster: str, namespace: str) -> str:
    """Return the one name that certificates of all processes bear: pods' addresses change."""
    return f"{cluster}.{namespace}.waltz"


def metadata_name(cluster: str, namespace: str) -> str:
    """Return what the cluster is called in ZooKeeper."""
    return f"{namespace}/{cluster}"
