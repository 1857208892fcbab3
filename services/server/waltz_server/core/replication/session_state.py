"""The stages of a store, the phases of its sessions, and how far each replica is. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from waltz.protocol import storage as st

CATCH_UP_START_RECORDS = 64
_CATCH_UP_TARGET_BYTES = 1 << 20
_READ_MS = (1.0, 3000.0)
"""Bounds of what one read may add to a replica's expected time."""


class StoreStage(Enum):
    """The stage of a store, between its sessions and in them."""

    IDLE = auto()
    """It has no generation or no replicas."""
    READING = auto()
    """It reads the metadata, to begin a session."""
    BEGINNING = auto()
    """It writes the metadata, to begin a session."""
    RUNNING = auto()
    WAITING = auto()
    """It pauses before the next attempt."""
    REFUSED = auto()
    """Another server owns the partition in a newer generation."""
    CLOSED = auto()


class SessionPhase(Enum):
    """The phases of a store session, in order."""

    RECOVERING = auto()
    OPEN = auto()
    DRAINING = auto()
    CLOSED = auto()


class ReplicaStage(Enum):
    """How far a replica has come in a store session."""

    CONNECTING = auto()
    RECOVERING = auto()
    ACTIVE = auto()
    """It takes part in appends."""
    FAILED = auto()
    """Only another session may take it back in."""


@dataclass(slots=True)
class ReplicaSession:
    """The state of one replica of a store session."""

    storage: str
    stage: ReplicaStage = ReplicaStage.CONNECTING
    info_requested: bool = False
    """Whether the request for its last session has been sent and not answered."""
    next_id: int = 0
    """First transaction not yet sent to it."""
    acknowledged: int = -1
    """The last transaction that it has acknowledged, so that it is on its disk."""
    in_flight: int = 0
    """Batches sent and not acknowledged."""
    copying: st.RecordListRequest | None = None
    """The read whose records will be sent to it."""
    lagged: bool = False
    catch_up_records: int = CATCH_UP_START_RECORDS
    read_load: float = 0.0
    expected_ms: float = 10.0

    def activate(self, mark: int) -> None:
        """Let it take part in appends: it holds exactly the log up to ``mark``."""
        assert self.stage is ReplicaStage.RECOVERING
        assert self.acknowledged <= mark, "what is on a disk never shrinks within a session"
        self.stage = ReplicaStage.ACTIVE
        self.acknowledged = mark
        self.next_id = mark + 1

    def sent(self, first_id: int, count: int) -> None:
        """Note a batch that is sent to it."""
        # A gap would be refused by the storage, an overlap would write an id twice.
        assert first_id == self.next_id, f"{self.storage}: {first_id} sent, {self.next_id} is next"
        self.next_id += count
        self.in_flight += 1

    def acknowledge(self, last_id: int) -> None:
        """Note that everything up to ``last_id`` is on its disk."""
        assert self.in_flight > 0, "acknowledged without an append"
        assert self.acknowledged < last_id < self.next_id, "only what was sent is acknowledged"
        self.in_flight -= 1
        self.acknowledged = last_id

    def adapt_catch_up(self, copied_bytes: int) -> None:
        """Choose the number of records of the next copy, so that it has about a megabyte."""
        if copied_bytes < _CATCH_UP_TARGET_BYTES // 2:
            self.catch_up_records *= 2
        elif copied_bytes > _CATCH_UP_TARGET_BYTES:
            self.catch_up_records = max(1, self.catch_up_records // 2)

    def read_took(self, elapsed_ms: float) -> None:
        """Record the duration of a read: slow replicas are read from less often."""
        shortest, longest = _READ_MS
        self.expected_ms = (self.expected_ms + min(max(elapsed_ms, shortest), longest)) / 2


def replica_to_read(
    replicas: Iterable[ReplicaSession], needed_id: int, excluded: Collection[str]
) -> str | None:
    """Return the least loaded active replica that has ``needed_id``, None if there is none."""
    having = [
        r
        for r in replicas
        if r.stage is ReplicaStage.ACTIVE
        and r.acknowledged >= needed_id
        and r.storage not in excluded
    ]
    if not having:
        return None
    best = min(having, key=lambda r: r.read_load)
    best.read_load += best.expected_ms
    return best.storage


def committed_id(replicas: Iterable[ReplicaSession], quorum: int) -> int:
    """Return the highest id that ``quorum`` of ``replicas`` have on their disks.

    A replica that has failed counts with the last id that it acknowledged: the records up to it are
    on its disk, and the next session's vote will find them there.
    """
    acknowledged = sorted((r.acknowledged for r in replicas), reverse=True)
    return acknowledged[quorum - 1]
