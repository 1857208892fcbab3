"""The Certificate objects, by which a cluster requests certificates from cert-manager. Pure.

Cert-manager generates the keys and writes the secrets. There are Certificate objects only with
tls.mode CertManager. With tls.mode Operator, `waltz_operator.shell` generates the keys and issues
the certificates itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from waltz_operator.core import names
from waltz_operator.core.names import Component
from waltz_operator.core.objects.manifest import Manifest, manifest
from waltz_operator.core.resources import TlsMode, WaltzCluster


def certificate_requests(
    cluster: WaltzCluster, outside: Sequence[str] = ()
) -> tuple[Manifest, ...]:
    """Return the Certificates for cert-manager; none if the cluster does not use cert-manager.

    The first is for the processes, the second for the clients. ``outside`` are the names and IP
    addresses by which clients outside reach the processes.
    """
    tls, name, namespace = cluster.spec.tls, cluster.metadata.name, cluster.metadata.namespace
    # The rules of the resource require an issuer with this mode.
    if tls.mode is not TlsMode.CERT_MANAGER or tls.issuer_ref is None:
        return ()
    issuer = {"group": "cert-manager.io", **tls.issuer_ref.to_json()}
    processes, clients = names.tls_secret(name), names.client_tls_secret(name)
    return (
        _request(
            cluster,
            processes,
            {
                **_names(names.tls_name(name, namespace), outside),
                "usages": ["server auth", "client auth"],
                "issuerRef": issuer,
            },
        ),
        _request(
            cluster,
            clients,
            {
                "dnsNames": [names.client_tls_name(name, namespace)],
                "usages": ["client auth"],
                "issuerRef": dict(issuer),  # YAML would write a shared dictionary as an alias.
            },
        ),
    )


def _names(name: str, outside: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a Certificate that have its names and IP addresses."""
    addresses = [each for each in outside if _is_address(each)]
    dns_names = [name, *(each for each in outside if not _is_address(each))]
    return {"dnsNames": dns_names, **({"ipAddresses": addresses} if addresses else {})}


def _is_address(host: str) -> bool:
    """Whether ``host`` is an IP address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _request(cluster: WaltzCluster, secret: str, spec: dict[str, Any]) -> Manifest:
    """Return a Certificate that is named like its secret.

    ``spec`` has the fields in which the Certificates of a cluster differ.
    """
    key = {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"}
    content = {"spec": {"secretName": secret, "privateKey": key, **spec}}
    object_labels = names.labels(cluster.metadata.name, Component.CLUSTER)
    return manifest(cluster, "Certificate", secret, object_labels, content)
