"""Common parts of pods: security context, placement, settings, TLS, probes, volumes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from waltz.runtime.core.setting_names import environment_variable
from waltz_operator.core.names import (
    CLUSTER_RESTART_ANNOTATION,
    POOL_LABEL,
    POOL_RESTART_ANNOTATION,
    Component,
    labels,
    selector,
    tls_name,
    tls_secret,
)
from waltz_operator.core.resources import StoragePool, TlsMode, WaltzCluster
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

_NODE = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"
_APART_ON_NODES = 100
"""The weight of the preference that two copies are on different nodes: the largest weight."""

_APART_IN_ZONES = 50
"""The weight of the preference that two copies are in different zones."""

_TOGETHER_IN_ZONES = 10
"""The weight of the preference that the storages of one pool are in one zone.

It is less than `_APART_IN_ZONES`: it decides only between zones that have no other copy."""

SCRATCH = {"name": "tmp", "mountPath": "/tmp"}
"""The mount of an empty directory for temporary files: other directories are read-only."""


def pod_template(
    cluster: WaltzCluster,
    component: Component,
    spec: Mapping[str, Any],
    scheduling: Scheduling,
    *,
    pool: StoragePool | None = None,
) -> dict[str, Any]:
    """Return a pod template; ``spec`` is the part that is specific to its component."""
    name, images = cluster.metadata.name, cluster.spec.images
    pool_name = None if pool is None else pool.metadata.name
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
        **_placement(scheduling, name, component, pool_name),
        **spec,
    }
    if images.pull_secrets:
        pod["imagePullSecrets"] = [{"name": each} for each in images.pull_secrets]
    metadata: dict[str, Any] = {"labels": labels(name, component, pool_name)}
    if restarts := _restarts(cluster, pool):
        metadata["annotations"] = restarts
    return {"metadata": metadata, "spec": pod}


def _restarts(cluster: WaltzCluster, pool: StoragePool | None) -> dict[str, str]:
    """Return the annotations of the requested restarts: a new value changes the pod template."""
    requested = {CLUSTER_RESTART_ANNOTATION: cluster.spec.restarted_at}
    if pool is not None:
        requested[POOL_RESTART_ANNOTATION] = pool.spec.restarted_at
    return {annotation: time for annotation, time in requested.items() if time}


def service_account(cluster: str, component: Component) -> str:
    """Return the name of the service account of a component's pods; the account has no rights."""
    return f"{cluster}-{component.value}"


def container(
    name: str, image: str, cluster: WaltzCluster, resources: Resources, **more: Any
) -> dict[str, Any]:
    """Return a container with the least privileges; ``more`` has its other fields."""
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
    """Return a probe of an HTTP port; see `probe`."""
    return probe({"httpGet": {"path": path, "port": port}}, period=period, failures=failures)


def probe(check: Mapping[str, Any], *, period: int, failures: int) -> dict[str, Any]:
    """Return a probe that does ``check`` every ``period`` seconds.

    The probe fails when ``failures`` checks in a row have failed.
    """
    return {
        **check,
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def variables(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return settings, given by name, as the environment variables that the processes read."""
    return [
        {"name": environment_variable(name), "value": _text(value)}
        for name, value in settings.items()
    ]


def tls_settings(cluster: WaltzCluster, prefix: str) -> dict[str, Any]:
    """Return the TLS settings of a process; their names begin with ``prefix``, as `server.tls.`."""
    if cluster.spec.tls.mode is TlsMode.NONE:
        return {f"{prefix}enabled": False}
    return {
        f"{prefix}enabled": True,
        f"{prefix}certificate": f"{_TLS_FOLDER}/tls.crt",
        f"{prefix}key": f"{_TLS_FOLDER}/tls.key",
        f"{prefix}ca": f"{_TLS_FOLDER}/ca.crt",
        f"{prefix}serverName": tls_name(cluster.metadata.name, cluster.metadata.namespace),
    }


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
    """Return the volumes that both storages and servers have, then their mounts."""
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


def _placement(
    scheduling: Scheduling, cluster: str, component: Component, pool: str | None
) -> dict[str, Any]:
    """Return the fields of a pod's spec that say on which nodes the pod may or should run."""
    pods = {"matchLabels": selector(cluster, component, pool)}
    fields: dict[str, Any] = {
        # Spreads the storages of one pool, too, which the affinity does not keep apart.
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": _NODE,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": pods,
            }
        ],
        # A kind of affinity in the resource, such as podAffinity, replaces the default of its kind.
        "affinity": {**_default_affinity(cluster, component, pool), **scheduling.affinity},
    }
    nodes = dict(scheduling.node_selector)
    if scheduling.zone:
        nodes[_ZONE] = scheduling.zone
    if nodes:
        fields["nodeSelector"] = nodes
    if scheduling.tolerations:
        fields["tolerations"] = list(scheduling.tolerations)
    if scheduling.priority_class_name:
        fields["priorityClassName"] = scheduling.priority_class_name
    return fields


def _default_affinity(cluster: str, component: Component, pool: str | None) -> dict[str, Any]:
    """Return the preferences that keep two copies on different nodes and in different zones.

    The storages of one pool together hold one copy. So a storage avoids the storages of the other
    pools, and prefers the zone of its own pool: the loss of a zone then costs a partition no more
    than one copy. The servers avoid each other, and so do ZooKeeper's members. All of these are
    preferences, not requirements, because a cluster of three pools must also start on two nodes.
    `core.spread` reports copies that share a node.
    """
    others: dict[str, Any] = {"matchLabels": selector(cluster, component)}
    if pool is not None:
        others["matchExpressions"] = [{"key": POOL_LABEL, "operator": "NotIn", "values": [pool]}]
    apart = ((_APART_ON_NODES, _NODE), (_APART_IN_ZONES, _ZONE))
    affinity: dict[str, Any] = {"podAntiAffinity": _preferred(*apart, pods=others)}
    if pool is not None:
        own = {"matchLabels": selector(cluster, component, pool)}
        affinity["podAffinity"] = _preferred((_TOGETHER_IN_ZONES, _ZONE), pods=own)
    return affinity


def _preferred(*places: tuple[int, str], pods: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms of a preference to be near to, or away from, the nodes or zones of ``pods``.

    ``pods`` is a selector of pods. Each of ``places`` is the weight of a term, and the label of
    nodes that names the place (node or zone). Each term has a copy of ``pods``, because YAML would
    write a shared one as an alias.
    """
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": weight,
                "podAffinityTerm": {"topologyKey": key, "labelSelector": deepcopy(dict(pods))},
            }
            for weight, key in places
        ]
    }


def _text(value: Any) -> str:
    """Return the text of a setting's value; the text of a boolean is in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)
