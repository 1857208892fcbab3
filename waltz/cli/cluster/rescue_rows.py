"""How the result of ``waltz cluster rescue`` is shown.

`waltz.admin.core.rescue` explains the terms: session, mark, closing mark, vote.
"""

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
    """What a storage reports of its replica; None where it reports no value.

    ``becomes`` is what the replica becomes by the rescue (see `_becomes`); None if the metadata to
    write do not have the replica, or no metadata are written. ``problem`` is why the replica may
    have held more than the storage reports, None if there is no such reason.
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

    ``session`` is the session in the metadata to write, None if no metadata are written.
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
    """Return the row of a replica.

    ``state`` is the replica's state in the metadata to write, and ``session`` their session; each
    is None if there is none.
    """
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
    """Return what a replica becomes in the recovery of the next session, None if ``state`` is None.

    * A replica with a closing mark is cut at this mark, and does not vote.
    * If the report of a replica is missing or unusable, the metadata say that the replica took part
      in ``session``, a new id that no disk has. So the recovery takes the disk for emptied, and
      counts the replica as absent.
    * Any other replica votes. The metadata have the session that is on its disk.

    `waltz.admin.core.rescue` has the reasons.
    """
    if state is None:
        return None
    if state.closing_mark != UNRESOLVED:
        return f"closed at {state.closing_mark}"
    return "absent in the vote" if state.session_id == session else "votes"
