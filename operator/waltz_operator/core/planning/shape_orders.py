"""Turn an order of `waltz.admin` into the next steps of a plan. Pure.

An order has a goal, such as a move of a partition, and returns one step at a time: the next one for
the observed state.
"""

from __future__ import annotations

from waltz.admin.core.dry_run import after_step
from waltz.admin.core.replicas import ReplicaObservation
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    Done,
    DropReplicas,
    Order,
    Refuse,
    Wait,
)
from waltz.admin.core.steps import Step as ReplicaStep
from waltz_operator.core.shape_change import ShapeChange
from waltz_operator.core.steps import ClusterPlan


def follow_order(
    order: Order, observation: ReplicaObservation, change: ShapeChange
) -> ClusterPlan | None:
    """Return the plan with the next steps of ``order``; None if the order is complete.

    To get several steps, the state after a step is simulated, and the order returns its next step
    for this state. The plan ends with the first step after which servers or storages must be
    observed again. If a wait or a refusal follows other steps, the plan does not contain it: the
    next plan decides from the actual state.
    """
    steps: list[ReplicaStep] = []
    while True:
        match order.next_step(observation):
            case Done():
                return ClusterPlan(tuple(steps), change=change) if steps else None
            case Wait(reason):
                waits = () if steps else (f"{change.progress} waits: {reason}",)
                return ClusterPlan(tuple(steps), waits, change=change)
            case Refuse(reason):
                problems = () if steps else (f"{change.progress} is not possible: {reason}",)
                return ClusterPlan(tuple(steps), waits=(), problems=problems, change=change)
            case step:
                steps.append(step)
                if isinstance(step, ChangeAssignment | CopyReplica | DropReplicas):
                    return ClusterPlan(tuple(steps), change=change)
                observation = after_step(observation, step)


def waiting(change: ShapeChange, reason: str) -> ClusterPlan:
    """Return the plan in which a change waits, because of ``reason``."""
    return ClusterPlan(waits=(f"{change.progress} waits: {reason}",), change=change)
