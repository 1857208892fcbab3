"""Test the rotation of a cluster's certificate authority while a witness appends and reads.

The connections of the witness (`e2e.witness`) stay open during a rotation. So new clients append,
too, in each phase of the rotation. This test does not kill operators, because that would take ten
minutes in which no other test could run:
``tests/unit/operator/test_operator_rotation_properties.py`` does it instead.
"""

from __future__ import annotations

import base64
from typing import Any

from e2e import resources
from e2e.kubectl import Kubectl
from e2e.waiting import until
from e2e.witnessing import Witness

_READY_SECONDS = 240.0
_STEP_SECONDS = 120
"""How long clients have in each of two phases to load their certificates.

A kubelet updates the files of a mounted secret after about a minute."""

_ROTATED_SECONDS = 600.0
"""Enough for two times `_STEP_SECONDS` and three updates of mounted secrets."""

_REASONS_IN_ORDER = ["TrustingBoth", "SigningNew", "RetiringOld"]
_SELECTOR = "waltz.dev/cluster=log,waltz.dev/component in (storage,server)"


def status(namespace: Kubectl) -> dict[str, Any]:
    cluster = namespace.get("waltzcluster", "log")
    assert cluster is not None
    found: dict[str, Any] = cluster["status"]
    return found


def condition(namespace: Kubectl, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        each for each in status(namespace)["conditions"] if each["type"] == kind
    )
    return found


def parts(namespace: Kubectl, name: str) -> dict[str, bytes]:
    secret = namespace.get("secret", name)
    assert secret is not None
    return {part: base64.b64decode(content) for part, content in secret["data"].items()}


def restarts_by_pod(namespace: Kubectl) -> dict[str, int]:
    """Return the number of restarts of each pod of servers and storages, by the pod's uid."""
    return {
        pod["metadata"]["uid"]: sum(
            each["restartCount"] for each in pod["status"]["containerStatuses"]
        )
        for pod in namespace.find("pod", _SELECTOR)
    }


def test_rotation_under_load_fails_no_append_and_restarts_no_process(namespace: Kubectl) -> None:
    pools = [resources.pool(name) for name in "xyz"]
    tls = {"rotationStepSeconds": _STEP_SECONDS}
    namespace.apply(*pools, resources.cluster("log", list("xyz"), tls=tls))
    namespace.await_condition("waltzcluster/log", "Healthy", _READY_SECONDS)
    witness = Witness(namespace)
    # The witness has the certificate of clients, not that of the cluster's processes.
    witness.start("log", secret="log-tls-client")
    old, before = parts(namespace, "log-authority"), restarts_by_pod(namespace)
    namespace("annotate", "waltzcluster", "log", "waltz.dev/rotate-ca=e2e")
    reasons: list[str] = []

    def rotated() -> bool:
        witness.waltz("log", "append", "0", "by a new client")
        rotating = condition(namespace, "Rotating")
        if rotating["status"] == "True" and rotating["reason"] not in reasons:
            reasons.append(rotating["reason"])
        return status(namespace).get("rotatedCa") == "e2e"

    until(rotated, _ROTATED_SECONDS, "the authority is rotated", show=namespace.describe)
    assert [each for each in reasons if each in _REASONS_IN_ORDER] == _REASONS_IN_ORDER
    assert restarts_by_pod(namespace) == before, "no process is restarted"
    new = parts(namespace, "log-authority")
    assert {*new} == {"tls.crt", "tls.key"}
    assert not {*new.values()} & {*old.values()}
    for secret in ("log-tls", "log-tls-client"):
        assert parts(namespace, secret)["ca.crt"] == new["tls.crt"]
    # Restarted pods open new connections between all components, by certificates of the new
    # authority alone.
    for pod in ("x-storage-0", server(namespace)):
        namespace.delete("pod", pod)
        witness.await_progress(60)
    witness.finish()


def server(namespace: Kubectl) -> str:
    """Return the pod of the only server."""
    (pod,) = namespace.find("pod", "waltz.dev/cluster=log,waltz.dev/component=server")
    return str(pod["metadata"]["name"])
