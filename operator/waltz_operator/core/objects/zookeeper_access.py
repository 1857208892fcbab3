"""TLS and credentials of the pods for an external ZooKeeper: settings, volumes, mounts. Pure.

Servers write the metadata, so they get the credentials. Storages only read, so they do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from waltz_operator.core.resources import WaltzCluster
from waltz_operator.core.resources.zookeeper import ZooKeeperTls

CREDENTIALS_KEY = "credentials"
"""The key of the credentials in their secret."""

_TLS_FOLDER = "/etc/waltz/zookeeper-tls"
_CREDENTIALS_FOLDER = "/etc/waltz/zookeeper-credentials"


@dataclass(frozen=True, slots=True)
class PodAccess:
    """What a pod needs for its connection to ZooKeeper.

    ``settings`` are those of the process. ``volumes`` and ``mounts`` are parts of the pod's spec
    and of the container's.
    """

    settings: dict[str, Any]
    volumes: list[dict[str, Any]]
    mounts: list[dict[str, Any]]


def tls_parts(tls: ZooKeeperTls) -> tuple[str, ...]:
    """Return the keys that the secret of ``tls`` must have."""
    return ("ca.crt", "tls.crt", "tls.key") if tls.client_certificate else ("ca.crt",)


def zookeeper_access(cluster: WaltzCluster, *, may_write: bool) -> PodAccess:
    """Return the access of a pod; with ``may_write``, also the credentials to change znodes.

    The access is empty for a managed ZooKeeper, and for an external one without TLS.
    """
    access = PodAccess({}, [], [])
    external = cluster.spec.zookeeper.external
    # Without TLS there are no credentials: the rules of the resource refuse them.
    if external is None or external.tls is None:
        return access
    tls, authentication = external.tls, external.authentication
    access.settings["zookeeper.tls.enabled"] = True
    access.settings["zookeeper.tls.ca"] = f"{_TLS_FOLDER}/ca.crt"
    if tls.client_certificate:
        access.settings["zookeeper.tls.certificate"] = f"{_TLS_FOLDER}/tls.crt"
        access.settings["zookeeper.tls.key"] = f"{_TLS_FOLDER}/tls.key"
    if tls.server_name:
        access.settings["zookeeper.tls.serverName"] = tls.server_name
    _add_secret(access, "zookeeper-tls", tls.secret_name, _TLS_FOLDER)
    if authentication is None or not may_write:
        return access
    if authentication.certificate:
        access.settings["zookeeper.authentication.certificate"] = True
    else:
        file = f"{_CREDENTIALS_FOLDER}/{CREDENTIALS_KEY}"
        access.settings["zookeeper.authentication.file"] = file
        _add_secret(
            access, "zookeeper-credentials", authentication.secret_name, _CREDENTIALS_FOLDER
        )
    return access


def _add_secret(access: PodAccess, name: str, secret: str, folder: str) -> None:
    """Add a volume and a mount of a secret to ``access``.

    The secret is mounted as a whole folder, because only then Kubernetes updates its files after a
    change.
    """
    access.volumes.append({"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}})
    access.mounts.append({"name": name, "mountPath": folder, "readOnly": True})
