"""One replica's part in a store session: how far it is, what is under way to it. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from waltz.protocol import storage as st

CATCH_UP_START_RECORDS = 64


class ReplicaStage(Enum):
    """How far a replica has come in a store session."""

    CONNECTING = auto()
    RECOVERING = auto()
    ACTIVE = auto()
    """It takes part in appends."""
    LEFT = auto()
    """It failed: only another session may take it back in."""


@dataclass(slots=True)
class ReplicaSession:
    """What a store session knows of one of its replicas."""

    storage: str
    stage: ReplicaStage = ReplicaStage.CONNECTING
    introducing: bool = False
    next_id: int = 0
    """First transaction not yet sent to it."""
    acknowledged: int = -1
    in_flight: int = 0
    copying: st.RecordListRequest | None = None
    """The read whose records it is to get."""
    lagged: bool = False
    catch_up_records: int = CATCH_UP_START_RECORDS
    route_weight: float = 0.0
    expected_ms: float = 10.0
