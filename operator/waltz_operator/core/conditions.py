"""Form the conditions of a cluster or pool from statements. Pure.

A *statement* says what a condition is now; `condition` adds the times and generations. This module
makes the statements of Changing, Rotating, Foreign and UpdateAvailable. `core.status` and
`core.pool_status` make the others, and say what each condition means.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from waltz_operator.core.adoption import foreign_storages, storages_elsewhere
from waltz_operator.core.authority import RotationPhase
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.observed import ClusterPresent, ObservedCluster
from waltz_operator.core.resources import Condition, ForeignGroups
from waltz_operator.core.steps import ClusterPlan

MAX_MESSAGE_CHARACTERS = 1000
"""The largest length of the message of a condition; a longer message is cut off."""

MAX_REASONS = 3
"""The number of reasons that a message names at most."""

_ROTATION_REASONS = {
    RotationPhase.SETTLED: "RotationWaits",
    RotationPhase.TRUST: "TrustingBoth",
    RotationPhase.SIGN: "SigningNew",
    RotationPhase.RETIRE: "RetiringOld",
}
"""The reason of Rotating by phase. In the phase SETTLED, a rotation is due that has not begun."""

_TRUE_WITH_MESSAGE = ("Healthy", "Changing", "Rotating", "Foreign", "UpdateAvailable")
"""The conditions that may have a message while they are true.

While Healthy is true, its message says what the operator does now: a step, or the rotation of the
certificate authority. Changing, Rotating, Foreign and UpdateAvailable are true only while there is
something to say. A condition that is not listed has a message only while it is not true: the
message says why.
"""


@dataclass(frozen=True, slots=True)
class Statement:
    """A condition without its times; ``holds`` is None if the status of the condition is Unknown.

    ``kind`` is the type of the condition, such as ``Ready``.
    """

    kind: str
    holds: bool | None
    reason: str
    message: str


def changing(plan: ClusterPlan) -> Statement:
    """Return the statement of Changing."""
    change = plan.change
    if change is None:
        return Statement("Changing", False, "NoChange", "")
    reasons = [*plan.problems, *plan.waits][:MAX_REASONS]
    parts = [f"{change.progress}; {change.quorum_sentence}", *reasons]
    message = "; ".join(parts)[:MAX_MESSAGE_CHARACTERS]
    return Statement("Changing", True, change.kind.value, message)


def rotating(plan: ClusterPlan) -> Statement:
    """Return the statement of Rotating."""
    rotation = plan.rotation
    if rotation is None:
        return Statement("Rotating", False, "NoRotation", "")
    message = str(rotation)[:MAX_MESSAGE_CHARACTERS]
    return Statement("Rotating", True, _ROTATION_REASONS[rotation.phase], message)


def update_available(sentence: str) -> Statement:
    """Return the statement of UpdateAvailable; ``sentence`` is that of `available_update`."""
    if not sentence:
        return Statement("UpdateAvailable", False, "NoUpdate", "")
    return Statement(
        "UpdateAvailable", True, "PodsOfOtherVersion", sentence[:MAX_MESSAGE_CHARACTERS]
    )


def foreign(
    desired: DesiredCluster, observed: ObservedCluster, present: ClusterPresent | None
) -> Statement:
    """Return the statement of Foreign: whether storages are registered that no pool here runs.

    These are the storages that are in no pool, and those that have the address of a pool here but
    run elsewhere (`core.adoption`).

    ``present`` is None if the storage maps are not observed. Then the condition is Unknown. During
    a deletion, however, it stays as it was: the deletion removes the znodes before the volumes, and
    the condition then decides whether the volumes may be deleted.
    """
    if present is None:
        conditions = desired.cluster.status.conditions
        before = next((each for each in conditions if each.type == "Foreign"), None)
        if desired.deleting and before is not None:
            holds = {"True": True, "False": False}.get(before.status)
            return Statement("Foreign", holds, before.reason, before.message)
        return Statement("Foreign", None, "NotObserved", "the storage maps are not observed")
    elsewhere = storages_elsewhere(desired, observed, present.maps)
    storages = sorted(foreign_storages(desired, present.maps) | {*elsewhere})
    if not storages:
        return Statement("Foreign", False, "NoForeignStorages", "")
    adopt = desired.cluster.spec.adopt
    are_retired = adopt is not None and adopt.foreign_groups is ForeignGroups.RETIRE
    reason = "RetiringForeignStorages" if are_retired else "ForeignStoragesKept"
    texts = []
    for storage in storages:
        report = present.replicas.storages.get(storage)
        answers = report is not None and report.problem is None
        texts.append(storage if answers else f"{storage}, which does not answer")
    message = f"storages that no pool here runs: {'; '.join(texts)}"[:MAX_MESSAGE_CHARACTERS]
    return Statement("Foreign", True, reason, message)


def condition(
    old: Iterable[Condition], statement: Statement, generation: int, now: str
) -> Condition:
    """Return the condition of a statement; its time changes only if its status changes.

    ``old`` are the conditions so far. ``now`` is the present time in UTC.
    """
    status = "Unknown" if statement.holds is None else str(statement.holds)
    before = next((each for each in old if each.type == statement.kind), None)
    since = before.last_transition_time if before and before.status == status else now
    has_message = not statement.holds or statement.kind in _TRUE_WITH_MESSAGE
    return Condition(
        type=statement.kind,
        status=status,
        observed_generation=generation,
        last_transition_time=since,
        reason=statement.reason,
        message=statement.message if has_message else "",
    )
