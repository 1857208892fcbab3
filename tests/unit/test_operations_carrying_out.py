"""Plans carried out on a cluster of values: they end, even when steps have no effect."""

from __future__ import annotations

import asyncio

import pytest

from tests.replica_model import Model
from waltz.admin import Observed, ReplicaOperator, ReplicaRecovery, Scope, Stalled, carry_out
from waltz.admin.core.steps import Step, SwitchOn, Wait

A, B, C = "a:1", "b:1", "c:1"


class Operator(ReplicaOperator):
    """Sees and changes a model. ``damaged``: a replica that stays off, whatever it is told."""

    def __init__(self, model: Model, damaged: str | None = None) -> None:
        self.model = model
        self.damaged = damaged
        self.performed: list[Step] = []

    async def observe(self, scope: Scope) -> Observed:
        return self.model.observed()

    async def perform(self, step: Step) -> None:
        self.performed.append(step)
        self.model.perform(step)
        if self.damaged is not None:
            self.model.update(self.damaged, 0, readable=False, writable=False)
        self.model.append(1)


@pytest.fixture
def cluster() -> Model:
    made = Model({A: 0, B: 1, C: 2}, {0: frozenset({A, B, C})})
    made.append(100)
    made.update(A, 0, readable=False, writable=False)
    return made


async def test_a_replica_is_brought_back(cluster: Model) -> None:
    operator = Operator(cluster)
    assert await carry_out(ReplicaRecovery(0, A), operator) == 1
    assert operator.performed == [SwitchOn(A, 0)]


async def test_a_step_that_has_no_effect_is_not_taken_for_ever(cluster: Model) -> None:
    operator = Operator(cluster, damaged=A)
    told: list[Step | Wait] = []
    async with asyncio.timeout(30):
        with pytest.raises(Stalled, match=r"nothing has changed by it: .* /health of storage a:1"):
            await carry_out(
                ReplicaRecovery(0, A), operator, patience_seconds=0.1, on_step=told.append
            )
    assert set(operator.performed) == {SwitchOn(A, 0)}
    assert [type(each) for each in told] == [SwitchOn, Wait]
