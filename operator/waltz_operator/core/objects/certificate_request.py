"""The Certificate object, by which a cluster requests its certificate from cert-manager. Pure.

Without cert-manager, the operator issues the certificates. The executor generates the keys and
creates the secrets, because this module is pure.
"""

from __future__ import annotations

from waltz_operator.core import names
from waltz_operator.core.names import Component
from waltz_operator.core.objects.manifest import Manifest, manifest
from waltz_operator.core.resources import TlsMode, WaltzCluster


def certificate_requests(cluster: WaltzCluster) -> tuple[Manifest, ...]:
    """Return the Certificate for cert-manager; none if the cluster does not use cert-manager."""
    tls, metadata = cluster.spec.tls, cluster.metadata
    if tls.mode is not TlsMode.CERT_MANAGER or tls.issuer_ref is None:
        return ()
    content = {
        "spec": {
            "secretName": names.tls_secret(metadata.name),
            "dnsNames": [names.tls_name(metadata.name, metadata.namespace)],
            "usages": ["server auth", "client auth"],
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "issuerRef": {"group": "cert-manager.io", **tls.issuer_ref.to_json()},
        }
    }
    object_labels = names.labels(metadata.name, Component.CLUSTER)
    return (
        manifest(cluster, "Certificate", names.tls_secret(metadata.name), object_labels, content),
    )
