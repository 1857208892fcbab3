"""Plan for a simulated world of the operator, once or until a plan has a step of one kind. Pure."""

from __future__ import annotations

from tests.support.operator_world import World
from waltz_operator.core.planning import plan
from waltz_operator.core.steps import ClusterPlan

_MANY_ROUNDS = 100


def next_plan(world: World) -> ClusterPlan:
    """Return the plan for the present state of ``world``."""
    return plan(world.desired(), world.observed())


def follow_until(world: World, kind: type) -> ClusterPlan:
    """Perform plans until one has a step of ``kind``; return it without performing it."""
    for _ in range(_MANY_ROUNDS):
        world.settle()
        decided = next_plan(world)
        if any(isinstance(step, kind) for step in decided.steps):
            return decided
        for step in decided.steps:
            world.perform(step)
    raise AssertionError(f"no plan has a step {kind.__name__}: {decided}")
