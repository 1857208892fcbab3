"""How the result of ``waltz cluster rescue`` is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from waltz.admin import PartitionRescue, ReplicaReport, Verdict
from waltz.cli.rows import Rendering, blank, column, listing, nested
from waltz.metadata.core.formats import UNRESOLVED, ReplicaState


@dataclass(frozen=True, slots=True)
class RescuedReplica:
    """The report of one storage, and the state that the metadata get for its replica."""

    storage: str
    session: int | None
    low_water_mark: int | None
    last_transaction: int | None
    becomes: Annotated[str | None, column(show=blank)]
    problem: Annotated[str | None, column(show=blank)]


@dataclass(frozen=True, slots=True)
class RescuedPartition:
    """The decision for one partition."""

    partition: int
    metadata: Verdict
    session: int | None
    why: str
    replicas: Annotated[tuple[RescuedReplica, ...], nested(RescuedReplica, "Replicas")]


def render_rescue(plans: Sequence[PartitionRescue]) -> Rendering:
    """Return the rendering of the partitions of a cluster."""
    return listing("Metadata", RescuedPartition, [_partition(plan) for plan in plans])


def _partition(plan: PartitionRescue) -> RescuedPartition:
    decision = plan.decision
    written = decision.metadata
    states = {} if written is None else written.replicas
    session = None if written is None else written.session_id
    return RescuedPartition(
        plan.partition,
        decision.verdict,
        session,
        decision.reason,
        tuple(_replica(report, states.get(report.storage), session) for report in plan.reports),
    )


def _replica(
    report: ReplicaReport, state: ReplicaState | None, session: int | None
) -> RescuedReplica:
    held = report.held
    return RescuedReplica(
        report.storage,
        held.session_id if held else None,
        held.low_water_mark if held else None,
        held.max_transaction_id if held else None,
        _becomes(state, session),
        report.unknown,
    )


def _becomes(state: ReplicaState | None, session: int | None) -> str | None:
    """Return what a replica becomes in the recovery of the next session.

    `waltz.admin.core.rescue` has the reasons. A replica with a closing mark is cut there, and does
    not vote. The state of a replica that is unknown has ``session``, which no disk has: so the
    replica is absent in the vote.
    """
    if state is None:
        return None
    if state.closing_mark != UNRESOLVED:
        return f"closed at {state.closing_mark}"
    return "absent in the vote" if state.session_id == session else "votes"
