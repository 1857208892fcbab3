"""Test that the operator repairs changes by others, and that appends succeed afterwards.

``log`` is a `Kubectl` for the namespace of the WaltzCluster named log. ``witness`` (`e2e.witness`)
appends to this cluster during each test. The test fails if an append is lost.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.kubectl import Kubectl
from e2e.operators import Operator
from e2e.waiting import until
from e2e.witnessing import Witness

_SOON_SECONDS = 30.0
_START_SECONDS = 90.0


def get_existing(log: Kubectl, kind: str, name: str) -> dict[str, Any]:
    found = log.get(kind, name)
    assert found is not None, f"{kind} {name} does not exist"
    return found


def uid(log: Kubectl, kind: str, name: str) -> str:
    return str(get_existing(log, kind, name)["metadata"]["uid"])


def await_replaced(log: Kubectl, kind: str, name: str, old: str, seconds: float) -> None:
    """Return when the object exists with another uid than ``old``."""

    def replaced() -> bool:
        found = log.get(kind, name)
        return found is not None and found["metadata"]["uid"] != old

    until(replaced, seconds, f"a new {kind} {name} exists", show=log.describe)


def await_status(log: Kubectl, seconds: float, **wanted: str) -> None:
    def matches() -> bool:
        status = get_existing(log, "waltzcluster", "log")["status"]
        return all(status[name] == value for name, value in wanted.items())

    until(matches, seconds, f"the status has {wanted}", show=log.describe)


def test_deleted_service_is_created_again(log: Kubectl, witness: Witness) -> None:
    old = uid(log, "service", "a-storage")
    log.delete("service", "a-storage")
    await_replaced(log, "service", "a-storage", old, _SOON_SECONDS)


def test_edited_stateful_set_is_repaired(log: Kubectl, witness: Witness) -> None:
    pod = uid(log, "pod", "b-storage-0")
    log.patch("statefulset", "b-storage", {"spec": {"replicas": 0}})
    await_replaced(log, "pod", "b-storage-0", pod, _START_SECONDS)
    assert get_existing(log, "statefulset", "b-storage")["spec"]["replicas"] == 1


def test_partition_switched_off_by_hand_is_switched_on_again(
    log: Kubectl, witness: Witness
) -> None:
    storage = f"c-storage-0.c-storage.{log.namespace}.svc:6000"
    witness.waltz("storage", "switch", storage, "1", "--read", "off", "--write", "off")

    def is_on() -> bool:
        listed = json.loads(witness.waltz("storage", "list", "-o", "json"))
        held = next(each["partitions"] for each in listed if each["storage"] == storage)
        return all(each["readable"] and each["writable"] for each in held)

    until(is_on, _SOON_SECONDS, "partition 1 is switched on", show=log.describe)


def test_deleted_storage_pod_restarts_with_its_volume(log: Kubectl, witness: Witness) -> None:
    claim, pod = (
        uid(log, "persistentvolumeclaim", "data-a-storage-0"),
        uid(log, "pod", "a-storage-0"),
    )
    log.delete("pod", "a-storage-0", now=True)
    await_replaced(log, "pod", "a-storage-0", pod, _START_SECONDS)
    log.await_condition("pod/a-storage-0", "Ready", _START_SECONDS)
    assert uid(log, "persistentvolumeclaim", "data-a-storage-0") == claim


def test_killed_server_is_replaced_and_its_partitions_are_reassigned(
    log: Kubectl, witness: Witness
) -> None:
    [first, _] = log.find("pod", "waltz.dev/cluster=log,waltz.dev/component=server")
    log.delete("pod", first["metadata"]["name"], now=True)
    witness.await_progress(_START_SECONDS)
    await_status(log, _START_SECONDS, servers="2/2", partitions="4/4")


def test_partitions_are_reassigned_when_the_number_of_servers_changes(
    log: Kubectl, witness: Witness
) -> None:
    log.patch("waltzcluster", "log", {"spec": {"servers": {"replicas": 3}}})
    await_status(log, _START_SECONDS, servers="3/3", partitions="4/4")
    witness.await_progress(_SOON_SECONDS)
    log.patch("waltzcluster", "log", {"spec": {"servers": {"replicas": 2}}})
    await_status(log, _START_SECONDS, servers="2/2", partitions="4/4")


def test_deleted_zookeeper_pod_restarts(log: Kubectl, witness: Witness) -> None:
    pod = uid(log, "pod", "log-zookeeper-0")
    log.delete("pod", "log-zookeeper-0", now=True)
    await_replaced(log, "pod", "log-zookeeper-0", pod, _START_SECONDS)
    log.await_condition("pod/log-zookeeper-0", "Ready", _START_SECONDS)


def test_log_loses_no_append_when_all_pods_are_killed_at_once(
    log: Kubectl, witness: Witness
) -> None:
    pods = log.find("pod", "waltz.dev/cluster=log")
    log.delete("pod", *(each["metadata"]["name"] for each in pods), now=True)
    witness.await_progress(2 * _START_SECONDS)


# The test counts reconciles, which must all be those of this cluster.
@pytest.mark.alone
def test_paused_cluster_is_not_repaired(log: Kubectl, witness: Witness, operator: Operator) -> None:
    log.patch("waltzcluster", "log", {"spec": {"paused": True}})
    until(
        lambda: "paused" in get_existing(log, "waltzcluster", "log")["status"]["message"],
        _SOON_SECONDS,
        "the status says that the cluster is paused",
    )
    old = uid(log, "service", "a-storage")
    log.delete("service", "a-storage")
    # Of the next two reconciles that finish, the second begins after the Service was deleted.
    before = operator.reconciles()
    until(lambda: operator.reconciles() >= before + 2, 60, "the cluster is reconciled again")
    assert log.get("service", "a-storage") is None
    log.patch("waltzcluster", "log", {"spec": {"paused": False}})
    await_replaced(log, "service", "a-storage", old, _SOON_SECONDS)


def test_changed_resync_annotation_causes_a_reconcile_at_once(
    log: Kubectl, witness: Witness
) -> None:
    # Disruption budgets are not watched: without the annotation, only the periodic reconcile would
    # create the budget again.
    old = uid(log, "poddisruptionbudget", "log-storage")
    log.delete("poddisruptionbudget", "log-storage")
    log("annotate", "waltzcluster", "log", "waltz.dev/resync=again", "--overwrite")
    await_replaced(log, "poddisruptionbudget", "log-storage", old, 5.0)
