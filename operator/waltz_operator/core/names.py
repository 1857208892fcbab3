"""Names of a cluster's objects in Kubernetes, and their labels, annotations and ports. Pure.

A storage's ``host:port`` is its identity and never changes. It consists of the pool's name, the
ordinal of the pod, the namespace and the port. The host ends in ``.svc`` and omits the domain of
the Kubernetes cluster: that domain may differ, and every pod has it in its DNS search list.
"""

from __future__ import annotations

from enum import StrEnum

CLUSTER_LABEL = "waltz.dev/cluster"
POOL_LABEL = "waltz.dev/pool"
COMPONENT_LABEL = "waltz.dev/component"
MANAGER_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "waltz-operator"

ADMINISTERS_LABEL = "waltz.dev/administers"
"""A label that users set on their pods. Its value is the name of a cluster: the pod may connect to
the storages of this cluster."""

MANIFEST_ANNOTATION = "waltz.dev/manifest"
"""An annotation of every object: the digest of the object's manifest (`core.objects.manifest`)."""

POD_TEMPLATE_ANNOTATION = "waltz.dev/pod-template"
"""An annotation of every workload: the template of its pods, and what it was rendered from.

The operator writes it; see `core.pod_templates`.
"""

UPDATE_PODS_ANNOTATION = "waltz.dev/update-pods"
"""The annotation of a WaltzCluster with which a user asks for pods of this operator's version.

Each new value is a request. Without one, an update of the operator restarts no pod: the pods that
an operator of another version has specified stay (`core.pod_templates`).
"""

RESYNC_ANNOTATION = "waltz.dev/resync"
"""The annotation that a user changes to cause a reconcile of a WaltzCluster at once.

The operator does not read it, because any change of a WaltzCluster except one of its status causes
a reconcile.
"""

CLUSTER_RESTART_ANNOTATION = "waltz.dev/cluster-restarted-at"
"""An annotation of every pod: the value of the WaltzCluster's field `restartedAt`, if it is set.

A new value changes the template of the pods, and so restarts them.
"""

POOL_RESTART_ANNOTATION = "waltz.dev/pool-restarted-at"
"""An annotation of a pool's pods: the value of the StoragePool's `restartedAt`, if it is set."""

OUTSIDE_LABEL = "waltz.dev/outside"
"""A label of the Services by which clients outside of Kubernetes reach a cluster, always `true`."""

SLOT_LABEL = "waltz.dev/slot"
"""A label that the operator gives to the pods of servers, if clients outside of Kubernetes have
access.

Its value is the number of the Service that leads to the pod (`core.slots`).
"""

REPLACE_VOLUME_ANNOTATION = "waltz.dev/replace-volume"
"""The annotation of a StoragePool with which a user requests one replacement of a volume.

Its value is the name of the volume's pod.
"""

REPLACEMENT_ANNOTATION = "waltz.dev/volume-replacement"
"""The annotation of a StoragePool that holds how far the replacement of a volume is.

The operator writes it; see `core.volume_replacement`.
"""

ROTATE_CA_ANNOTATION = "waltz.dev/rotate-ca"
"""The annotation of a WaltzCluster with which a user requests one rotation of its authority.

Each new value is a request. The authority's secret has the same annotation: its value is the
request that the last rotation began for.
"""

REBALANCE_ANNOTATION = "waltz.dev/rebalance"
"""The annotation of a StoragePool with which a user requests to rebalance it by bytes.

Each new value is a request.
"""

REBALANCED_ANNOTATION = "waltz.dev/rebalanced"
"""The annotation of a StoragePool that holds how far a rebalance is.

The operator writes it; see `core.rebalance`.
"""

ANNOTATIONS_OF_CLUSTER = (
    REPLACE_VOLUME_ANNOTATION,
    REPLACEMENT_ANNOTATION,
    REBALANCE_ANNOTATION,
    REBALANCED_ANNOTATION,
)
"""The annotations of a StoragePool that are about the cluster that has claimed it.

They are removed when the pool is released. If a record stayed, the next cluster of the pool would
continue an old replacement, and delete a volume claim. If a request stayed without its record, it
would count as a new request.
"""

FINALIZER = "waltz.dev/cluster"
"""The finalizer of a WaltzCluster and its pools: Kubernetes deletes them after the cleanup."""


class Component(StrEnum):
    """The components of a cluster."""

    STORAGE = "storage"
    SERVER = "server"
    ZOOKEEPER = "zookeeper"
    CLUSTER = "cluster"
    """Objects that all components share, such as secrets."""


ZOOKEEPER_CLIENT_PORT = 2181
ZOOKEEPER_PEER_PORT = 2888
ZOOKEEPER_ELECTION_PORT = 3888


def labels(cluster: str, component: Component, pool: str | None = None) -> dict[str, str]:
    """Return the labels of an object.

    MANAGER_LABEL and CLUSTER_LABEL together select the objects of a cluster.
    """
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
    """Return the labels that select pods, a part of `labels`.

    Kubernetes allows no change of a workload's selector. So the selector has only labels of which
    the values never change.
    """
    result = {CLUSTER_LABEL: cluster, COMPONENT_LABEL: component.value}
    if pool is not None:
        result[POOL_LABEL] = pool
    return result


def storage_set(pool: str) -> str:
    """Return the name of a pool's StatefulSet and of its headless Service."""
    return f"{pool}-storage"


def storage_address(pool: str, namespace: str, port: int, ordinal: int) -> str:
    """Return the address of one storage of a pool, which is its identity."""
    return f"{storage_set(pool)}-{ordinal}{storage_domain(pool, namespace)}:{port}"


def storage_domain(pool: str, namespace: str) -> str:
    """Return the end of the host names of a pool's storages, beginning with a dot."""
    return f".{storage_set(pool)}.{namespace}.svc"


def pod_of_storage(storage: str) -> str:
    """Return the name of a storage's pod, with which the address ``storage`` begins."""
    return storage.partition(".")[0]


def servers(cluster: str) -> str:
    """Return the name of the Deployment of the servers and of their Service."""
    return f"{cluster}-server"


def zookeeper_set(cluster: str) -> str:
    """Return the name of a managed ZooKeeper's StatefulSet, ConfigMap and Service for clients."""
    return f"{cluster}-zookeeper"


def zookeeper_members_service(cluster: str) -> str:
    """Return the name of the headless Service that resolves the members' names."""
    return f"{cluster}-zookeeper-members"


def outside_storage(pool: str, ordinal: int) -> str:
    """Return the name of the Service by which clients outside reach one storage of a pool."""
    return f"{storage_set(pool)}-{ordinal}-outside"


def outside_server(cluster: str, slot: int) -> str:
    """Return the name of the Service by which clients outside reach the server of a slot."""
    return f"{servers(cluster)}-{slot}-outside"


def outside_zookeeper(cluster: str) -> str:
    """Return the name of the Service by which clients outside reach a managed ZooKeeper."""
    return f"{zookeeper_set(cluster)}-outside"


def is_outside(service: str) -> bool:
    """Whether clients outside reach the cluster by the Service of this name."""
    return service.endswith("-outside")


def budget(cluster: str, component: Component) -> str:
    """Return the name of the disruption budget of a component's pods."""
    return f"{cluster}-{component.value}"


def authority_secret(cluster: str) -> str:
    """Return the name of the secret with the key of the cluster's own certificate authority."""
    return f"{cluster}-authority"


def tls_secret(cluster: str) -> str:
    """Return the name of the secret with ca.crt, tls.crt and tls.key.

    The operator or cert-manager creates this secret. With tls.mode Secret, pods mount the secret of
    the user instead: see `objects.pods.tls_secret_name`.
    """
    return f"{cluster}-tls"


def client_tls_secret(cluster: str) -> str:
    """Return the name of the secret with the certificate of the clients, and with ca.crt.

    The operator or cert-manager creates this secret. The name is not `CLUSTER-client-tls`, because
    that is the `tls_secret` of a cluster with the name `CLUSTER-client`.
    """
    return f"{cluster}-tls-client"


def tls_name(cluster: str, namespace: str) -> str:
    """Return the server name in the certificates of all processes.

    Peers verify it instead of the address. Storages accept only peers that have this name, unless
    the certificates are those of a user (``tls.mode`` Secret).
    """
    return f"{cluster}.{namespace}.waltz"


def client_tls_name(cluster: str, namespace: str) -> str:
    """Return the name in the certificate of the clients, by which access rules know them."""
    return f"client.{tls_name(cluster, namespace)}"


def metadata_name(cluster: str, namespace: str) -> str:
    """Return the cluster's name in ZooKeeper."""
    return f"{namespace}/{cluster}"
