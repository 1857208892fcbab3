"""Who talks to whom: with certificates of one's own, renewed while the log goes on, or without."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e import resources
from e2e.kubectl import CommandFailed, Kubectl
from e2e.operators import Operator
from e2e.waiting import until
from e2e.witnessing import Witness
from waltz_operator.shell.certificates import KeyPair, issue, make_authority

_READY_SECONDS = 120.0
_NOTICED_SECONDS = 150.0
"""A kubelet brings what has changed of a secret after a minute or so."""

_TINY = {"managed": {"members": 1}}
_NAME = "small.secured.waltz"


AUTHORITY = make_authority("mine")


@pytest.fixture(scope="module")
def secured(operator: Operator) -> Iterator[Kubectl]:
    """A namespace with two clusters: one has certificates from outside, the other has none."""
    made = Kubectl("secured")
    made.create_namespace()
    own: dict[str, Any] = {"mode": "Secret", "secretName": "small-tls"}
    made.apply(
        secret(issue(AUTHORITY, _NAME, days=5)),
        *(resources.pool(name) for name in ("p", "q")),
        resources.cluster("small", ["p"], zookeeper=_TINY, tls=own),
        resources.cluster("plain", ["q"], zookeeper=_TINY, tls={"mode": "None"}),
    )
    yield made
    made.delete_namespace(wait=False)


def secret(own: KeyPair) -> dict[str, Any]:
    parts = {"ca.crt": AUTHORITY.certificate, "tls.crt": own.certificate, "tls.key": own.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "small-tls"},
        "data": {name: base64.b64encode(part).decode() for name, part in parts.items()},
    }


def days_left(namespace: Kubectl, pod: str, port: int) -> float:
    """Return for how many days a storage says that its certificate is still good."""
    path = f"/api/v1/namespaces/{namespace.namespace}/pods/{pod}:{port}/proxy/metrics"
    gauges = json.loads(namespace("get", "--raw", path))["gauges"]
    return float(gauges["waltz-storage.tls-certificate-days-left"]["value"])


def test_certificates_of_ones_own_are_used(secured: Kubectl) -> None:
    secured.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    witness = Witness(secured)
    witness.begin("small")
    without = ("env", "WALTZ_TLS=off", "python3", "-m", "waltz.cli", "log", "read", "0", "0-")
    with pytest.raises(CommandFailed):
        secured("exec", "witness", "--", *without)
    assert days_left(secured, "p-storage-0", 6002) < 5.1
    witness.end()


@pytest.mark.long
def test_renewed_certificates_are_taken_up_without_a_restart(secured: Kubectl) -> None:
    secured.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    witness = Witness(secured)
    witness.begin("small")
    restarts = sum_of_restarts(secured)
    secured.apply(secret(issue(AUTHORITY, _NAME, days=50)))
    until(
        lambda: days_left(secured, "p-storage-0", 6002) > 40,
        _NOTICED_SECONDS,
        "a storage shows the new certificate",
    )
    witness.await_progress(30)
    witness.end()
    assert sum_of_restarts(secured) == restarts


def sum_of_restarts(namespace: Kubectl) -> int:
    pods = namespace.find("pod", "waltz.dev/cluster=small")
    return sum(each["restartCount"] for pod in pods for each in pod["status"]["containerStatuses"])


def test_a_cluster_may_do_without_tls(secured: Kubectl) -> None:
    secured.await_condition("waltzcluster/plain", "Ready", _READY_SECONDS)
    assert secured.get("secret", "plain-tls") is None
    witness = Witness(secured)
    witness.begin("plain", tls=False)
    witness.await_progress(30)
    witness.end()
