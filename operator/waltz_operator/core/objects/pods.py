"""Common parts of all pods: security context, placement, TLS, volumes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waltz.runtime.core.setting_names import variable
from waltz_operator.core.names import Component, labels, selector, tls_name, tls_secret
from waltz_operator.core.resources import TlsMode, WaltzCluster
from waltz_operator.core.resources.parts import Resources, Scheduling, Volume

USER = 1000
"""The id of the user and of the group that run every container."""

_TLS_FOLDER = "/etc/waltz/tls"

LOCKED_DOWN = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""The security context of every container."""

SCRATCH = {"name": "tmp", "mountPath": "/tmp"}
"""The mount of an empty directory for temporary files: other directories are read-only."""


def pod_template(
    cluster: WaltzCluster,
    component: Component,
    spec: Mapping[str, Any],
    scheduling: Scheduling,
    *,
    pool: str | None = None,
) -> dict[str, Any]:
    """Return a pod template; ``spec`` is the part that is specific to its component."""
    name, images = cluster.metadata.name, cluster.spec.images
    pod: dict[str, Any] = {
        "serviceAccountName": service_account(name, component),
        "automountServiceAccountToken": False,
        # Without this, processes would read the variables that Kubernetes creates from Services as
        # settings.
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **_placement(scheduling, selector(name, component, pool)),
        **spec,
    }
    if images.pull_secrets:
        pod["imagePullSecrets"] = [{"name": each} for each in images.pull_secrets]
    return {"metadata": {"labels": labels(name, component, pool)}, "spec": pod}


def service_account(cluster: str, component: Component) -> str:
    """Return the name of the service account of a component's pods; the account has no rights."""
    return f"{cluster}-{component.value}"


def container(
    name: str, image: str, cluster: WaltzCluster, resources: Resources, **more: Any
) -> dict[str, Any]:
    """Return a container with the least privileges."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": cluster.spec.images.pull_policy,
        "securityContext": LOCKED_DOWN,
        "resources": resources.to_json(),
        # The last output of a failed process then appears in the pod's status, from which the
        # operator copies it into the cluster's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **more,
    }


def http_probe(path: str, port: int, *, period: int, failures: int) -> dict[str, Any]:
    """Return a probe of an HTTP port every ``period`` seconds.

    The probe fails when ``failures`` requests in a row have failed.
    """
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def variables(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return settings as the environment variables that the processes read."""
    return [{"name": variable(name), "value": _text(value)} for name, value in settings.items()]


def tls_settings(cluster: WaltzCluster, prefix: str, *, dials: bool) -> dict[str, Any]:
    """Return the TLS settings of a process, whose names begin with ``prefix``: ``server.tls.``.

    ``dials``: whether the process connects to other processes, and so verifies their certificates.
    """
    if cluster.spec.tls.mode is TlsMode.NONE:
        return {f"{prefix}enabled": False}
    settings: dict[str, Any] = {
        f"{prefix}enabled": True,
        f"{prefix}certificate": f"{_TLS_FOLDER}/tls.crt",
        f"{prefix}key": f"{_TLS_FOLDER}/tls.key",
        f"{prefix}ca": f"{_TLS_FOLDER}/ca.crt",
    }
    if dials:
        metadata = cluster.metadata
        settings[f"{prefix}serverName"] = tls_name(metadata.name, metadata.namespace)
    return settings


def tls_secret_name(cluster: WaltzCluster) -> str | None:
    """Return the name of the secret with the certificates, None without TLS."""
    match cluster.spec.tls.mode:
        case TlsMode.NONE:
            return None
        case TlsMode.SECRET:
            return cluster.spec.tls.secret_name
        case TlsMode.OPERATOR | TlsMode.CERT_MANAGER:
            return tls_secret(cluster.metadata.name)


def scratch_and_tls(cluster: WaltzCluster) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the volumes that both storages and servers have, and their mounts."""
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[dict[str, Any]] = [SCRATCH]
    secret = tls_secret_name(cluster)
    if secret is not None:
        # The folder is mounted as a whole, because after a renewal Kubernetes does not update files
        # that are mounted by subPath.
        volumes.append({"name": "tls", "secret": {"secretName": secret, "defaultMode": 0o440}})
        mounts.append({"name": "tls", "mountPath": _TLS_FOLDER, "readOnly": True})
    return volumes, mounts


def claim_template(name: str, volume: Volume, claim_labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the template of the PersistentVolumeClaims of one volume of a StatefulSet."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.storage_class_name:
        spec["storageClassName"] = volume.storage_class_name
    return {"metadata": {"name": name, "labels": dict(claim_labels)}, "spec": spec}


def _placement(scheduling: Scheduling, pods: Mapping[str, str]) -> dict[str, Any]:
    where: dict[str, Any] = {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(pods)},
            }
        ]
    }
    nodes = dict(scheduling.node_selector)
    if scheduling.zone:
        nodes["topology.kubernetes.io/zone"] = scheduling.zone
    if nodes:
        where["nodeSelector"] = nodes
    if scheduling.tolerations:
        where["tolerations"] = list(scheduling.tolerations)
    if scheduling.affinity:
        where["affinity"] = scheduling.affinity
    if scheduling.priority_class_name:
        where["priorityClassName"] = scheduling.priority_class_name
    return where


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
