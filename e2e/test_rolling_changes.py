"""Test rolling changes on the shared cluster while a witness (`e2e.witness`) appends and reads.

A roll replaces the pods of storages and of ZooKeeper one at a time. A roll to a version that does
not start stops at the first pod.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.kubectl import CommandFailed, Kubectl
from e2e.waiting import until
from e2e.witnessing import Witness

_ROLL_SECONDS = 300.0
_SOON_SECONDS = 60.0
_HEALTHY_SECONDS = 120.0
_STORAGES = ("a-storage-0", "b-storage-0", "c-storage-0")
_MEMBERS = ("log-zookeeper-0", "log-zookeeper-1", "log-zookeeper-2")
_MISSING_IMAGE = "localhost/waltz-storage:missing"
"""No registry listens on localhost, so the pull fails at once on every Kubernetes cluster."""

_PRINT_STATE = "exec 3<> /dev/tcp/127.0.0.1/2181; printf srvr >&3; cat <&3"
"""Prints the answer of a ZooKeeper member to its command `srvr`, which has the member's mode."""


def status(log: Kubectl) -> dict[str, Any]:
    cluster = log.get("waltzcluster", "log")
    assert cluster is not None
    found: dict[str, Any] = cluster["status"]
    return found


def condition(log: Kubectl, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in status(log)["conditions"] if each["type"] == kind)
    return found


def pods(log: Kubectl) -> dict[str, dict[str, Any]]:
    """Return the pods of storages and of ZooKeeper by name."""
    found = log.find("pod", "waltz.dev/cluster=log,waltz.dev/component in (storage,zookeeper)")
    return {pod["metadata"]["name"]: pod for pod in found}


def uids(log: Kubectl) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in pods(log).items()}


def is_running(pod: dict[str, Any] | None) -> bool:
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return False
    states = pod["status"].get("containerStatuses", ())
    return bool(states) and all("running" in each["state"] for each in states)


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def await_replaced(log: Kubectl, old: dict[str, str], names: tuple[str, ...]) -> set[str]:
    """Return when the pods ``names`` are replaced and the cluster is Healthy.

    Raises AssertionError if more than one storage, or more than one member of ZooKeeper, does not
    run at the same time. The result are the pods of ``old`` that were once seen as not ready.
    """
    unready: set[str] = set()

    def replaced() -> bool:
        found = pods(log)
        unready.update(
            name
            for name, pod in found.items()
            if pod["metadata"]["uid"] == old.get(name)
            and not pod["metadata"].get("deletionTimestamp")
            and not is_ready(pod)
        )
        for group in (_STORAGES, _MEMBERS):
            away = [name for name in group if not is_running(found.get(name))]
            assert len(away) <= 1, f"pods are away at the same time: {away}\n{log.describe()}"
        all_replaced = all(
            name in found and found[name]["metadata"]["uid"] != old[name] for name in names
        )
        statuses = {condition(log, kind)["status"] for kind in ("Updated", "Healthy")}
        return all_replaced and statuses == {"True"}

    until(replaced, _ROLL_SECONDS, f"{', '.join(names)} are replaced", show=log.describe)
    return unready


def creation_times(log: Kubectl) -> dict[str, str]:
    return {name: pod["metadata"]["creationTimestamp"] for name, pod in pods(log).items()}


def leader(log: Kubectl) -> str:
    """Return the member that leads ZooKeeper."""
    (found,) = (
        name
        for name in _MEMBERS
        if "Mode: leader" in log("exec", name, "--", "bash", "-c", _PRINT_STATE)
    )
    return found


def evict(log: Kubectl, pod: str) -> None:
    """Evict a pod as `kubectl drain` does. Raises CommandFailed if the budget forbids it."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": log.namespace},
    }
    path = f"/api/v1/namespaces/{log.namespace}/pods/{pod}/eviction"
    log("create", "--raw", path, "-f", "-", given=json.dumps(eviction))


def test_restart_replaces_every_pod_one_at_a_time_and_the_leader_of_zookeeper_last(
    log: Kubectl, witness: Witness
) -> None:
    # Healthy implies that every storage is ready. Only ready storages are replaced after the
    # members of ZooKeeper.
    log.await_condition("waltzcluster/log", "Healthy", _HEALTHY_SECONDS)
    old, old_leader = uids(log), leader(log)
    log.patch("waltzcluster", "log", {"spec": {"restartedAt": "2026-01-31T12:00:00Z"}})
    unready = await_replaced(log, old, (*_MEMBERS, *_STORAGES))
    times = creation_times(log)
    assert max(_MEMBERS, key=times.__getitem__) == old_leader
    # A storage that is not ready is replaced at once, before the members. One storage may have been
    # unready between two observations, so the first replacement does not count.
    waited = sorted((name for name in _STORAGES if name not in unready), key=times.__getitem__)
    assert len(waited) >= 2, f"storages were not ready before their replacement: {unready}"
    last_member = max(times[name] for name in _MEMBERS)
    assert last_member <= times[waited[1]], f"two storages came before the members: {times}"
    # Three members, three storages and two servers.
    assert status(log)["updated"] == "8/8"


def test_rollout_restart_of_one_set_replaces_only_its_pods(log: Kubectl, witness: Witness) -> None:
    old = uids(log)
    log("rollout", "restart", "statefulset/c-storage")
    await_replaced(log, old, ("c-storage-0",))
    kept = {name: uid for name, uid in uids(log).items() if uid == old[name]}
    assert kept.keys() == {*_MEMBERS, *_STORAGES} - {"c-storage-0"}


def test_image_that_does_not_exist_stops_at_one_pod_and_a_correction_replaces_that_pod(
    log: Kubectl, witness: Witness
) -> None:
    old = uids(log)
    log.patch("waltzcluster", "log", {"spec": {"images": {"storage": _MISSING_IMAGE}}})
    until(
        lambda: condition(log, "Updated")["reason"] == "RollStopped",
        _ROLL_SECONDS,
        "the roll has stopped",
        show=log.describe,
    )
    message = condition(log, "Updated")["message"]
    assert f"its image {_MISSING_IMAGE} cannot be pulled" in message
    now = uids(log)
    (stopped,) = (name for name in _STORAGES if now[name] != old[name])
    assert stopped in message
    log.await_condition("waltzcluster/log", "Ready", _SOON_SECONDS)
    witness.await_progress(_SOON_SECONDS)
    for other in _STORAGES:
        if other != stopped:
            with pytest.raises(CommandFailed, match="disruption budget"):
                evict(log, other)
    log.patch("waltzcluster", "log", {"spec": {"images": {"storage": None}}})
    await_replaced(log, now, (stopped,))
    assert {name: uid for name, uid in uids(log).items() if name != stopped} == {
        name: uid for name, uid in old.items() if name != stopped
    }


def test_storage_is_ready_only_when_its_replicas_take_part(log: Kubectl, witness: Witness) -> None:
    old = uids(log)
    log.delete("pod", "b-storage-0")
    await_replaced(log, old, ("b-storage-0",))
    log.await_condition("pod/b-storage-0", "Ready", _SOON_SECONDS)
    listed = json.loads(witness.waltz("storage", "list", "-o", "json"))
    sessions = {
        each["storage"]: {held["partition"]: held["session"] for held in each["partitions"]}
        for each in listed
    }
    # Every replica that takes part has the session of its partition's other replicas.
    (of_b,) = (held for storage, held in sessions.items() if storage.startswith("b-storage-0."))
    assert all(of_b == held for held in sessions.values())
