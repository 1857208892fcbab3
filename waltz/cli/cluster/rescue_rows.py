"""How the result of ``waltz cluster rescue`` is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from waltz.admin import PartitionRescue, ReplicaReport, Verdict
from waltz.cli.rows import Rendering, blank, column, listing, nested
from waltz.cli.suggested import complete
from waltz.metadata.core.formats import UNRESOLVED, ReplicaState


@dataclass(frozen=True, slots=True)
class RescuedReplica:
    """What a storage reports of its replica; None where it reports nothing.

    ``becomes`` is what the rescue makes of the replica (see `_becomes`), None if the metadata of
    the partition are not written. ``problem`` is why the replica may have held more than
    it shows now.
    """

    storage: str
    session: int | None
    low_water_mark: int | None
    last_transaction: int | None
    becomes: Annotated[str | None, column(show=blank)]
    problem: Annotated[str | None, column(show=blank)]


@dataclass(frozen=True, slots=True)
class RescuedPartition:
    """The decision for one partition: the verdict on its ``metadata``, and the reason ``why``.

    ``session`` is the session in the metadata to write, None if none are written.
    """

    partition: int
    metadata: Verdict
    session: int | None
    why: str
    replicas: Annotated[tuple[RescuedReplica, ...], nested(RescuedReplica, "Replicas")]


def render_rescue(plans: Sequence[PartitionRescue]) -> Rendering:
    """Return the rendering of the partitions of a cluster."""
    return listing("Metadata", RescuedPartition, [_partition(plan) for plan in plans])


def _partition(plan: PartitionRescue) -> RescuedPartition:
    """Return the row of a partition."""
    decision = plan.decision
    written = decision.metadata
    states = {} if written is None else written.replicas
    session = None if written is None else written.session_id
    return RescuedPartition(
        plan.partition,
        decision.verdict,
        session,
        complete(decision.reason),
        tuple(_replica(report, states.get(report.storage), session) for report in plan.reports),
    )


def _replica(
    report: ReplicaReport, state: ReplicaState | None, session: int | None
) -> RescuedReplica:
    """Return the row of a replica; ``state`` and ``session`` are in the metadata to write."""
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

    `waltz.admin.core.rescue` has the reasons. A replica with a closing mark is cut at that mark,
    and does not vote. If the report of a replica is missing or unusable, the metadata say that the
    replica took part in ``session``, a new id that no disk has. So the recovery treats the disk as
    emptied, and counts the replica as absent. Any other replica has the session on its disk in the
    metadata, and votes.
    """
    if state is None:
        return None
    if state.closing_mark != UNRESOLVED:
        return f"closed at {state.closing_mark}"
    return "absent in the vote" if state.session_id == session else "votes"
