"""Test TLS with a user's own certificates, their renewal without a restart, and plaintext."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from e2e import resources
from e2e.kubectl import CommandFailed, Kubectl
from e2e.waiting import until
from e2e.witnessing import Witness
from waltz_operator.shell.certificates import KeyPair, issue, make_authority

_READY_SECONDS = 120.0
_RENEWED_SECONDS = 150.0
"""A kubelet updates a mounted secret after about a minute."""

_STORAGE_HTTP_PORT = 6002
"""The port at which a storage shows its metrics."""

AUTHORITY = make_authority("users-own")
"""The authority that signs the user's own certificates."""


@pytest.fixture(scope="module")
def secured(module_namespace: Kubectl) -> Kubectl:
    """A namespace with two clusters: one with a user's own certificates, one without TLS."""
    own: dict[str, Any] = {"mode": "Secret", "secretName": "small-tls"}
    module_namespace.apply(
        secret(certificate(module_namespace, days=5)),
        *(resources.pool(name) for name in ("p", "q")),
        resources.cluster("small", ["p"], tls=own),
        resources.cluster("plain", ["q"], tls={"mode": "None"}),
    )
    return module_namespace


def certificate(namespace: Kubectl, *, days: int) -> KeyPair:
    return issue(AUTHORITY, f"small.{namespace.namespace}.waltz", days=days)


def secret(own: KeyPair) -> dict[str, Any]:
    parts = {"ca.crt": AUTHORITY.certificate, "tls.crt": own.certificate, "tls.key": own.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "small-tls"},
        "data": {name: base64.b64encode(part).decode() for name, part in parts.items()},
    }


def days_left(namespace: Kubectl, pod: str) -> float:
    """Return the remaining days of a storage's certificate, which the storage's metrics show."""
    process = f"{pod}:{_STORAGE_HTTP_PORT}"
    path = f"/api/v1/namespaces/{namespace.namespace}/pods/{process}/proxy/metrics"
    gauges = json.loads(namespace("get", "--raw", path))["gauges"]
    return float(gauges["waltz-storage.tls-certificate-days-left"]["value"])


def test_users_own_certificates_are_required_and_used(secured: Kubectl) -> None:
    secured.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    witness = Witness(secured)
    witness.start("small")
    read_without_tls = ("env", "WALTZ_TLS=off", "python3", "-m", "waltz.cli", "log", "read")
    with pytest.raises(CommandFailed):
        secured("exec", "witness", "--", *read_without_tls, "0", "0-")
    assert days_left(secured, "p-storage-0") < 5.1, "the certificate is the user's, of 5 days"
    witness.finish()


def test_renewed_certificates_are_used_without_a_restart(secured: Kubectl) -> None:
    secured.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    witness = Witness(secured)
    witness.start("small")
    restarts = sum_of_restarts(secured)
    secured.apply(secret(certificate(secured, days=50)))
    until(
        lambda: days_left(secured, "p-storage-0") > 40,
        _RENEWED_SECONDS,
        "the storage uses the new certificate",
    )
    witness.await_progress(30)
    witness.finish()
    assert sum_of_restarts(secured) == restarts


def sum_of_restarts(namespace: Kubectl) -> int:
    pods = namespace.find("pod", "waltz.dev/cluster=small")
    return sum(each["restartCount"] for pod in pods for each in pod["status"]["containerStatuses"])


def test_cluster_without_tls_works_in_plaintext(secured: Kubectl) -> None:
    secured.await_condition("waltzcluster/plain", "Ready", _READY_SECONDS)
    assert secured.get("secret", "plain-tls") is None
    witness = Witness(secured)
    witness.start("plain", tls=False)
    witness.await_progress(30)
    witness.finish()
