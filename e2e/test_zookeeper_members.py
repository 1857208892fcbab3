"""Test that a managed ZooKeeper of three members survives the loss of a member and its volume."""

from __future__ import annotations

from typing import Any

from e2e.kubectl import Kubectl
from e2e.waiting import until
from e2e.witnessing import Witness

_READY_SECONDS = 90.0
_MEMBERS = 3


def pod(log: Kubectl, number: int) -> dict[str, Any] | None:
    return log.get("pod", f"log-zookeeper-{number}")


def is_replaced(log: Kubectl, number: int, old: str) -> bool:
    found = pod(log, number)
    if found is None or found["metadata"]["uid"] == old:
        return False
    conditions = found["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def replace(log: Kubectl, number: int, *, with_volume: bool) -> None:
    """Delete the pod of a member, and its volume if ``with_volume``; wait until it is replaced."""
    found = pod(log, number)
    assert found is not None
    if with_volume:
        # Kubernetes deletes the claim only after the pod that uses it.
        log.delete("persistentvolumeclaim", f"data-log-zookeeper-{number}", wait=False)
    log.delete("pod", f"log-zookeeper-{number}", wait=False)
    until(
        lambda: is_replaced(log, number, found["metadata"]["uid"]),
        _READY_SECONDS,
        f"member {number} is replaced",
        show=log.describe,
    )


def test_three_members_have_a_disruption_budget_of_one(log: Kubectl) -> None:
    assert all(pod(log, number) for number in range(_MEMBERS))
    budget = log.get("poddisruptionbudget", "log-zookeeper")
    assert budget is not None
    assert budget["spec"]["maxUnavailable"] == 1


def test_deleted_member_is_replaced(log: Kubectl, witness: Witness) -> None:
    # Member 0 is enough: the next test replaces the other two members in the same way.
    replace(log, 0, with_volume=False)


def test_member_that_lost_its_volume_copies_the_data_from_the_others(
    log: Kubectl, witness: Witness
) -> None:
    replace(log, 0, with_volume=True)
    # The replaced member has all data again: now each of the other two members can be replaced.
    replace(log, 1, with_volume=False)
    replace(log, 2, with_volume=False)
