"""Test what a program can do with the certificate that the operator issues for clients."""

from __future__ import annotations

import pytest

from e2e import resources
from e2e.kubectl import CommandFailed, Kubectl
from e2e.waiting import until
from e2e.witnessing import Witness

_READY_SECONDS = 120.0
_CREATED_SECONDS = 60.0
_SECRET = "log-tls-client"


def test_client_appends_and_reads_but_storages_refuse_it(namespace: Kubectl) -> None:
    namespace.apply(resources.pool("p"), resources.cluster("log", ["p"]))
    namespace.await_condition("waltzcluster/log", "Ready", _READY_SECONDS)
    witness = Witness(namespace)
    witness.start("log", secret=_SECRET)
    witness.await_progress(30)
    # With this label, NetworkPolicies admit the pod to the storages. So the certificate alone
    # decides.
    namespace("label", "pod", "witness", "waltz.dev/administers=log")
    with pytest.raises(CommandFailed):
        witness.waltz("cluster", "verify")
    assert f"its certificate has client.log.{namespace.namespace}.waltz" in storage_log(namespace)
    before = uid(namespace)
    namespace.delete("secret", _SECRET)
    until(
        lambda: uid(namespace) not in ("", before),
        _CREATED_SECONDS,
        "the secret is created again",
        show=namespace.describe,
    )
    witness.await_progress(30)
    witness.finish()


def storage_log(namespace: Kubectl) -> str:
    return namespace("logs", "p-storage-0")


def uid(namespace: Kubectl) -> str:
    """Return the uid of the secret, an empty text if it does not exist."""
    found = namespace.get("secret", _SECRET)
    return "" if found is None else str(found["metadata"]["uid"])
