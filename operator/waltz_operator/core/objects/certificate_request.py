"""The Certificate objects, by which a cluster requests certificates from cert-manager. Pure.

Cert-manager generates the keys and writes the secrets. In a cluster without it there are no
Certificate objects: `waltz_operator.shell` generates the keys and issues the certificates itself.
"""

from __future__ import annotations

from typing import Any

from waltz_operator.core import names
from waltz_operator.core.names import Component
from waltz_operator.core.objects.manifest import Manifest, manifest
from waltz_operator.core.resources import TlsMode, WaltzCluster


def certificate_requests(cluster: WaltzCluster) -> tuple[Manifest, ...]:
    """Return the Certificates for cert-manager; none if the cluster does not use cert-manager.

    One is for the processes, the other for the clients.
    """
    tls, name, namespace = cluster.spec.tls, cluster.metadata.name, cluster.metadata.namespace
    if tls.mode is not TlsMode.CERT_MANAGER or tls.issuer_ref is None:
        return ()
    issuer = {"group": "cert-manager.io", **tls.issuer_ref.to_json()}
    processes, clients = names.tls_secret(name), names.client_tls_secret(name)
    return (
        _request(
            cluster,
            processes,
            {
                "dnsNames": [names.tls_name(name, namespace)],
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
                "issuerRef": dict(issuer),
            },
        ),
    )


def _request(cluster: WaltzCluster, secret: str, spec: dict[str, Any]) -> Manifest:
    """Return a Certificate that is named like its secret; ``spec`` has the other fields."""
    key = {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"}
    content = {"spec": {"secretName": secret, "privateKey": key, **spec}}
    object_labels = names.labels(cluster.metadata.name, Component.CLUSTER)
    return manifest(cluster, "Certificate", secret, object_labels, content)
