"""Test leader election: one operator pod is active, and another one becomes active if it ends."""

from __future__ import annotations

import pytest

from e2e import installing
from e2e.operators import Operator
from e2e.waiting import until

pytestmark = pytest.mark.alone

_REPLACED_SECONDS = 15.0
"""More than `LEASE_SECONDS` of the operator, after which the Lease of a killed leader expires."""

_RELEASED_SECONDS = _REPLACED_SECONDS / 2
"""Less than `LEASE_SECONDS`."""

_SHUTDOWN_SECONDS = 60.0


def test_killed_leader_is_replaced_within_15_seconds_and_two_pods_are_never_active(
    operator: Operator,
) -> None:
    # A pod of an earlier installation may still shut down.
    until(lambda: len(operator.pods()) == 2, _SHUTDOWN_SECONDS, "two operator pods are there")
    first = until(operator.leader, _REPLACED_SECONDS, "an operator is the leader")
    operator.kubectl.delete("pod", first, now=True, wait=False)

    def another_is_leader() -> bool:
        leaders = [pod for pod in operator.pods() if operator.is_leader(pod)]
        assert len(leaders) <= 1, f"{leaders} are active at the same time"
        return bool(leaders) and leaders != [first]

    until(
        another_is_leader, _REPLACED_SECONDS, "another operator is the leader", show=operator.leader
    )
    assert operator.leader() != first


def test_terminated_leader_is_replaced_before_its_lease_expires(operator: Operator) -> None:
    first = operator.leader()
    assert first is not None
    operator.kubectl.delete("pod", first, wait=False)
    until(
        lambda: operator.leader() not in (None, first),
        _RELEASED_SECONDS,
        "another operator is the leader",
        show=operator.leader,
    )
    operator.kubectl.await_condition(f"deployment/{installing.RELEASE}", "Available", 60)
