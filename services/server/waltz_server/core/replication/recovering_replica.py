"""Hold what a recovery knows about one replica. Pure.

`replica_roles` defines the roles and marks, `recovery_steps` the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.metadata.core.formats import NO_SESSION, UNRESOLVED, ReplicaState
from waltz_server.core.replication.recovery_steps import Step
from waltz_server.core.replication.replica_roles import RecoveryCase, VoteRole


@dataclass(slots=True)
class RecoveringReplica:
    """What the recovery knows about a replica that has connected."""

    role: VoteRole
    case: RecoveryCase
    low_water_mark: int
    """The low-water mark on the disk. An interim mark updates it when it is written. The resolved
    mark does not: then ``marked`` is set."""
    local_mark: int
    """The local low-water mark: where the log ended when the disk got ``low_water_mark``.

    A storage accepts no mark while its log ends below the local mark."""
    first_step: Step | None
    """The step whose report has the first position of the replica; None once it is reported."""
    interim_mark: int | None
    """The mark to write to the disk with the session id before copies count. None once it is
    written, and for a replica that needs no interim mark."""
    position: int | None = None
    """The replica's last transaction id, None until ``first_step`` is reported."""
    busy: bool = False
    """Whether a step of the replica is not reported yet."""
    cut_sent: bool = False
    """Whether the replica was sent the command to cut its log to the resolved mark."""
    marked: bool = False
    """Whether the new session is on the replica's disk, with the resolved mark."""
    recovered: bool = False
    """Whether the replica is marked and holds exactly the log up to the resolved mark."""


def state_to_write(
    session_id: int, mark: int, replica: RecoveringReplica | None, entry: ReplicaState | None
) -> ReplicaState:
    """Return the state of a replica to write to the metadata when a session opens at ``mark``.

    ``replica`` is None if the replica is absent or has failed. ``entry`` is the replica's state in
    the metadata now, None if it has none.
    """
    if replica is not None and replica.recovered:
        return ReplicaState(session_id, UNRESOLVED)  # It takes part in the session.
    if replica is not None and replica.marked:
        # This session's id is on the disk, so this state may name it. If the disk is emptied later,
        # the id on it is older than that in this state. By this, later sessions recognise the loss
        # (`RecoveryCase.OLDER`).
        return ReplicaState(session_id, mark)
    if entry is None:
        return ReplicaState(NO_SESSION, mark)
    if entry.closing_mark == UNRESOLVED:
        return ReplicaState(entry.session_id, mark)  # It took part in the last session, and leaves.
    return entry  # It left earlier: its closing mark stays.
