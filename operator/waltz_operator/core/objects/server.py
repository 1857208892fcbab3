"""The workload of a cluster's servers: a Deployment, and a Service for their metrics. Pure.

The module also has the service accounts of all components.
"""

from __future__ import annotations

from typing import Any

from waltz_operator.core import names
from waltz_operator.core.names import Component
from waltz_operator.core.objects.manifest import Manifest, manifest
from waltz_operator.core.objects.pods import (
    container,
    http_probe,
    pod_template,
    scratch_and_tls,
    service_account,
    tls_settings,
    variables,
)
from waltz_operator.core.objects.zookeeper import connect_string
from waltz_operator.core.objects.zookeeper_access import zookeeper_access
from waltz_operator.core.resources import WaltzCluster

MAX_SURGE = 1
"""How many servers more than specified may run during an update."""

_GRACE_SECONDS = 30
"""How long a server may take to stop, before Kubernetes kills it."""


def server_objects(cluster: WaltzCluster) -> tuple[Manifest, ...]:
    """Return the Service of the servers, and the service accounts of all components."""
    name, spec = cluster.metadata.name, cluster.spec.servers
    object_labels = names.labels(name, Component.SERVER)
    service = {
        "spec": {
            # Clients read servers' addresses from ZooKeeper; this Service is for monitoring.
            "clusterIP": "None",
            "selector": names.selector(name, Component.SERVER),
            "ports": [
                # By name, because a pod of an earlier version may have other numbers for its ports.
                {"name": "waltz", "port": spec.port, "targetPort": "waltz"},
                {"name": "http", "port": spec.http_port, "targetPort": "http"},
            ],
        }
    }
    accounts = [Component.STORAGE, Component.SERVER]
    if cluster.spec.zookeeper.managed is not None:
        accounts.append(Component.ZOOKEEPER)
    return (
        *(
            manifest(
                cluster,
                "ServiceAccount",
                service_account(name, component),
                names.labels(name, component),
                {"automountServiceAccountToken": False},
            )
            for component in accounts
        ),
        manifest(cluster, "Service", names.servers(name), object_labels, service),
    )


def server_deployment(cluster: WaltzCluster) -> Manifest:
    """Return the servers' Deployment. In an update, new servers join before old ones leave."""
    name = cluster.metadata.name
    content = {
        "spec": {
            "replicas": cluster.spec.servers.replicas,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": MAX_SURGE, "maxUnavailable": 0},
            },
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": names.selector(name, Component.SERVER)},
            "template": pod_template(
                cluster, Component.SERVER, _pod(cluster), cluster.spec.servers.scheduling
            ),
        }
    }
    object_labels = names.labels(name, Component.SERVER)
    return manifest(cluster, "Deployment", names.servers(name), object_labels, content)


def _pod(cluster: WaltzCluster) -> dict[str, Any]:
    """Return the part of the pod's spec that only servers have."""
    spec = cluster.spec.servers
    volumes, mounts = scratch_and_tls(cluster)
    zookeeper = zookeeper_access(cluster, may_write=True)
    advertised_host = {
        "name": "WALTZ_SERVER_ADVERTISED_HOST",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
    }
    return {
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "volumes": volumes + zookeeper.volumes,
        "containers": [
            container(
                "server",
                cluster.spec.images.server,
                cluster,
                spec.resources,
                env=[*variables(_settings(cluster)), advertised_host],
                ports=[
                    {"name": "waltz", "containerPort": spec.port},
                    {"name": "http", "containerPort": spec.http_port},
                ],
                volumeMounts=mounts + zookeeper.mounts,
                # The HTTP port opens when the server listens for clients and has its server id. The
                # server then joins the cluster in the background.
                startupProbe=http_probe("/ping", spec.http_port, period=2, failures=60),
                livenessProbe=http_probe("/ping", spec.http_port, period=10, failures=6),
                # /ready fails while a partition of the server is not open. So an update stops no
                # server before the new one has opened its partitions.
                readinessProbe=http_probe("/ready", spec.http_port, period=5, failures=2),
            )
        ],
    }


def _settings(cluster: WaltzCluster) -> dict[str, Any]:
    """Return the settings of the servers, by the name of the setting."""
    zookeeper, spec = cluster.spec.zookeeper, cluster.spec.servers
    return {
        "zookeeper.connectString": connect_string(cluster),
        "zookeeper.sessionTimeout": zookeeper.session_timeout_seconds * 1000,
        **zookeeper_access(cluster, may_write=True).settings,
        "cluster.root": zookeeper.root,
        "server.port": spec.port,
        "server.jetty.port": spec.http_port,
        "server.feedCacheSize": spec.caches.feed_bytes,
        "server.transactionDataCacheSize": spec.caches.data_bytes,
        **_client_limits(cluster),
        **tls_settings(cluster, "server.tls."),
    }


def _client_limits(cluster: WaltzCluster) -> dict[str, Any]:
    """Return the settings that restrict clients, without those that have their defaults."""
    spec = cluster.spec.servers
    limits: dict[str, Any] = {
        "server.access.required": spec.access_required,
        "server.quota.appendBytesPerSecond": spec.quotas.append_bytes_per_second,
        "server.quota.connections": spec.quotas.connections,
    }
    return {name: value for name, value in limits.items() if value}
