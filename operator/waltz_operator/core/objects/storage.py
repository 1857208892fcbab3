"""The workload of a pool: a StatefulSet of storages and its headless Service. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waltz_operator.core import names
from waltz_operator.core.names import Component
from waltz_operator.core.objects.manifest import Manifest, manifest
from waltz_operator.core.objects.pods import (
    claim_template,
    container,
    http_probe,
    pod_template,
    scratch_and_tls,
    tls_settings,
    variables,
)
from waltz_operator.core.objects.zookeeper import connect_string
from waltz_operator.core.objects.zookeeper_access import zookeeper_access
from waltz_operator.core.resources import StoragePool, TlsMode, WaltzCluster
from waltz_operator.core.resources.pool import Engine, StoragePoolSpec

_GRACE_SECONDS = 60
"""How long a storage may take to stop, before Kubernetes kills it."""

_START_FAILURES = 360
"""The number of failed startup probes, one every 5 seconds, after which a storage is restarted.

A storage may need half an hour to open many partitions after a crash.
"""


def storage_objects(cluster: WaltzCluster, pool: StoragePool) -> tuple[Manifest, ...]:
    """Return the headless Service of a pool, by which its storages have stable addresses."""
    name, pool_name, spec = cluster.metadata.name, pool.metadata.name, pool.spec
    ports = {"storage": spec.port, "admin": spec.admin_port, "http": spec.http_port}
    service = {
        "spec": {
            "clusterIP": "None",
            # Servers must reach a storage during its recovery, before it is ready.
            "publishNotReadyAddresses": True,
            "selector": names.selector(name, Component.STORAGE, pool_name),
            # By name, because a pod of an earlier version may have another number for its port.
            "ports": [
                {"name": port, "port": number, "targetPort": port} for port, number in ports.items()
            ],
        }
    }
    object_labels = names.labels(name, Component.STORAGE, pool_name)
    return (manifest(pool, "Service", names.storage_set(pool_name), object_labels, service),)


def storage_set(
    cluster: WaltzCluster,
    pool: StoragePool,
    replicas: int,
    sizes: Mapping[str, str] | None = None,
) -> Manifest:
    """Return the StatefulSet of a pool with ``replicas`` storages.

    ``sizes`` are the sizes in the claim templates, by kind of volume (``data``, ``meta``, ``wal``).
    A kind that is missing gets the size in the spec of the pool. Kubernetes refuses to change the
    claim templates of an existing StatefulSet, so the caller passes the sizes that these templates
    have.

    The pods start in parallel. A changed pod template takes effect only when a pod is deleted: a
    rolling update by Kubernetes does not check quorums and could stop two replicas of a partition.
    The StatefulSet never deletes a volume.
    """
    name, pool_name = cluster.metadata.name, pool.metadata.name
    object_labels = names.labels(name, Component.STORAGE, pool_name)
    content = {
        "spec": {
            "replicas": replicas,
            "serviceName": names.storage_set(pool_name),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": "Retain",
                "whenScaled": "Retain",
            },
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": names.selector(name, Component.STORAGE, pool_name)},
            "template": pod_template(
                cluster,
                Component.STORAGE,
                _pod(cluster, pool),
                pool.spec.scheduling,
                pool=pool,
            ),
            "volumeClaimTemplates": [
                claim_template(
                    kind,
                    volume.model_copy(update={"size": (sizes or {}).get(kind, volume.size)}),
                    object_labels,
                )
                for kind, volume in pool.spec.volumes.by_kind.items()
            ],
        }
    }
    return manifest(pool, "StatefulSet", names.storage_set(pool_name), object_labels, content)


def _pod(cluster: WaltzCluster, pool: StoragePool) -> dict[str, Any]:
    """Return the part of the pod's spec that only storages have."""
    spec = pool.spec
    volumes, mounts = scratch_and_tls(cluster)
    zookeeper = zookeeper_access(cluster, may_write=False)
    # A folder of the volume is mounted, because the root of the volume may contain lost+found.
    mounts += [
        {"name": kind, "mountPath": f"/{kind}", "subPath": "storage"}
        for kind in pool.spec.volumes.by_kind
    ]
    return {
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "volumes": volumes + zookeeper.volumes,
        "containers": [
            container(
                "storage",
                cluster.spec.images.storage,
                cluster,
                spec.resources,
                env=variables(_settings(cluster, pool)),
                ports=[
                    {"name": "storage", "containerPort": spec.port},
                    {"name": "admin", "containerPort": spec.admin_port},
                    {"name": "http", "containerPort": spec.http_port},
                ],
                volumeMounts=mounts + zookeeper.mounts,
                startupProbe=http_probe(
                    "/ping", spec.http_port, period=5, failures=_START_FAILURES
                ),
                livenessProbe=http_probe("/ping", spec.http_port, period=10, failures=6),
                # /ready fails while a replica takes no part in its session. No start waits for it:
                # the pods of a set start together. The headless Service has the addresses of pods
                # that are not ready, too, so that servers reach them and begin the sessions.
                readinessProbe=http_probe("/ready", spec.http_port, period=5, failures=2),
            )
        ],
    }


def _settings(cluster: WaltzCluster, pool: StoragePool) -> dict[str, Any]:
    """Return the settings of the storages, by the name of the setting."""
    zookeeper, spec = cluster.spec.zookeeper, pool.spec
    return {
        "zookeeper.connectString": connect_string(cluster),
        "zookeeper.sessionTimeout": zookeeper.session_timeout_seconds * 1000,
        **zookeeper_access(cluster, may_write=False).settings,
        "cluster.root": zookeeper.root,
        "storage.port": spec.port,
        "storage.admin.port": spec.admin_port,
        "storage.jetty.port": spec.http_port,
        "storage.directory": "/data",
        **({"storage.metaDirectory": "/meta"} if spec.volumes.meta else {}),
        "storage.segment.size.threshold": spec.segment_bytes,
        **_engine_settings(spec),
        **tls_settings(cluster, "storage.tls."),
        **_allowed_names(cluster),
    }


def _allowed_names(cluster: WaltzCluster) -> dict[str, Any]:
    """Return the settings that admit only peers whose certificate has the name of this cluster.

    The certificates of all processes of the cluster have this name, those of clients do not. A
    storage obeys its peers: without these settings, a client could change the log on a storage.
    There are no such settings for the certificates of a user (``tls.mode`` Secret), which may have
    any names, such as one with a wildcard.
    """
    match cluster.spec.tls.mode:
        case TlsMode.OPERATOR | TlsMode.CERT_MANAGER:
            name = names.tls_name(cluster.metadata.name, cluster.metadata.namespace)
            return {"storage.allowedNames": name, "storage.admin.allowedNames": name}
        case TlsMode.SECRET | TlsMode.NONE:
            return {}


def _engine_settings(spec: StoragePoolSpec) -> dict[str, Any]:
    """Return the settings of the storage engine, none for the default engine.

    A new setting would change the pods. So the pods of a pool that does not name an engine get
    none: they stay as they are when the operator is updated.
    """
    if spec.engine is Engine.FILES:
        return {}
    return {
        "storage.engine": "wal",
        "storage.wal.size": spec.wal_bytes,
        **({"storage.wal.directory": "/wal"} if spec.volumes.wal else {}),
    }
