"""Define the objects that the tests apply: small clusters, and client pods. Reads files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
EXAMPLE = REPOSITORY / "examples" / "kubernetes" / "log.yaml"
CHART = REPOSITORY / "charts" / "waltz"
ARCHIVES = REPOSITORY / "build" / "images"

_LOCKED_DOWN = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def version() -> str:
    """Return the version of the images."""
    return str(tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"])


def pool(name: str, **spec: Any) -> dict[str, Any]:
    """Return a StoragePool with small volumes; ``spec`` overrides fields of its spec."""
    return {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "StoragePool",
        "metadata": {"name": name},
        "spec": {"volumes": {"data": {"size": "1Gi"}}} | spec,
    }


def cluster(name: str, pools: list[str], **spec: Any) -> dict[str, Any]:
    """Return a WaltzCluster; ``spec`` overrides fields of its spec.

    By default it has one partition, one server and one ZooKeeper member.
    """
    zookeeper = {"managed": {"members": 1}}
    default_spec = {"partitions": 1, "servers": {"replicas": 1}, "zookeeper": zookeeper}
    return {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzCluster",
        "metadata": {"name": name},
        "spec": default_spec | {"pools": pools} | spec,
    }


def client_pod(
    name: str,
    cluster_name: str,
    namespace: str,
    command: list[str],
    *,
    tls: bool = True,
    secret: str = "",
    zookeeper: str = "",
    root: str = "/waltz",
) -> dict[str, Any]:
    """Return a pod that runs ``command`` as a client of a cluster.

    ``secret`` is the name of the secret with the certificates of the pod; an empty text means the
    secret of the cluster's processes. ``zookeeper`` is the address of an external ZooKeeper; an
    empty text means the cluster's managed ZooKeeper. Environment variables name the cluster: the
    command line ``waltz`` reads those that begin with WALTZ, and programs read the others. The pod
    can write to ``/work``; ``/programs`` has the files of the ConfigMap ``programs``.
    """
    zookeeper = zookeeper or f"{cluster_name}-zookeeper.{namespace}.svc:2181"
    environment = {"ZOOKEEPER": zookeeper, "WALTZ_ZOOKEEPER": zookeeper}
    environment |= {"ROOT": root, "WALTZ_ROOT": root}
    volumes: list[dict[str, Any]] = [
        {"name": "work", "emptyDir": {}},
        {"name": "programs", "configMap": {"name": "programs", "optional": True}},
    ]
    mounts: list[dict[str, Any]] = [
        {"name": "work", "mountPath": "/work"},
        {"name": "programs", "mountPath": "/programs"},
    ]
    if tls:
        environment |= {"TLS": "/tls", "TLS_NAME": f"{cluster_name}.{namespace}.waltz"}
        environment |= {"WALTZ_TLS": "/programs/tls.yaml"}
        volumes.append({"name": "tls", "secret": {"secretName": secret or f"{cluster_name}-tls"}})
        mounts.append({"name": "tls", "mountPath": "/tls"})
    else:
        environment |= {"WALTZ_TLS": "off"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000},
            "volumes": volumes,
            "containers": [
                {
                    "name": "client",
                    "image": f"waltz-server:{version()}",
                    "imagePullPolicy": "IfNotPresent",
                    "command": command,
                    "env": [{"name": key, "value": value} for key, value in environment.items()],
                    "volumeMounts": mounts,
                    "securityContext": _LOCKED_DOWN,
                }
            ],
        },
    }


def programs(cluster_name: str, namespace: str) -> dict[str, Any]:
    """Return the ConfigMap ``programs``: TLS settings and the witness, for client pods."""
    tls = "\n".join(
        (
            "certificate: /tls/tls.crt",
            "key: /tls/tls.key",
            "ca: /tls/ca.crt",
            f"serverName: {cluster_name}.{namespace}.waltz",
        )
    )
    witness = Path(__file__).with_name("witness.py").read_text()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "programs"},
        "data": {"tls.yaml": tls, "witness.py": witness},
    }
