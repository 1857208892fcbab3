"""Of several operator pods one acts, and another one soon when it is killed."""

from __future__ import annotations

from e2e import installing
from e2e.operators import Operator
from e2e.waiting import until

_REPLACED_SECONDS = 15.0


def test_a_killed_leader_is_replaced_within_15_seconds_and_two_never_lead(
    operator: Operator,
) -> None:
    first = operator.leader()
    assert first is not None
    assert len(operator.pods()) == 2
    operator.kubectl.delete("pod", first, now=True, wait=False)

    def another_leads() -> bool:
        leading = [pod for pod in operator.pods() if operator.leads(pod)]
        assert len(leading) <= 1, f"{leading} lead at the same time"
        return bool(leading) and leading != [first]

    until(another_leads, _REPLACED_SECONDS, "another operator leads", show=operator.leader)
    assert operator.leader() != first


def test_a_leader_that_is_told_to_stop_hands_over_at_once(operator: Operator) -> None:
    first = operator.leader()
    assert first is not None
    operator.kubectl.delete("pod", first, wait=False)
    until(
        lambda: operator.leader() not in (None, first),
        _REPLACED_SECONDS / 2,
        "another operator leads",
        show=operator.leader,
    )
    operator.kubectl.await_condition(f"deployment/{installing.RELEASE}", "Available", 60)
