"""The stages of a store, the phases of its sessions, and the progress of each replica. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from waltz.protocol import storage as st

_SHORTEST_READ_MS = 1.0
"""A read that took less time than this counts as this long. Otherwise a replica with a few very
short reads would get almost all further reads."""
_LONGEST_READ_MS = 3000.0
"""A read that took more time than this counts as this long. Otherwise one read that hung would
keep a replica from further reads long after the replica has recovered."""


class StoreStage(Enum):
    """The stage of a store.

    * IDLE: a new generation or new replicas lead to READING, as soon as the store has both.
    * READING, BEGINNING, RUNNING: an attempt to begin a session passes these stages. If it fails
      before RUNNING, WAITING or REFUSED follows.
    * RUNNING: if the session fails to open, WAITING follows. If it ends in any other way, READING
      follows. A new generation ends it at once. New replicas do so, too, but an open session first
      drains.
    * WAITING, REFUSED: a new generation or new replicas lead to READING. After WAITING, the end of
      the pause does so, too.
    * CLOSED: this stage is final.
    """

    IDLE = auto()
    """The store has no generation or no replicas."""
    READING = auto()
    """The store reads the metadata, to begin a session."""
    BEGINNING = auto()
    """The store writes the metadata with the id of the next session."""
    RUNNING = auto()
    """The store has a session, which is recovering, open or draining."""
    WAITING = auto()
    """The store pauses before its next attempt to begin a session."""
    REFUSED = auto()
    """Another server owns the partition in a newer generation. The store waits for a newer one."""
    CLOSED = auto()
    """This server has released the partition."""


class SessionPhase(Enum):
    """The phases of a store session, in order."""

    RECOVERING = auto()
    """The session brings a quorum of replicas to the same log; no append is sent."""
    OPEN = auto()
    """The session takes appends."""
    DRAINING = auto()
    """The session forms no new batches, and closes when all batches in flight are committed."""
    CLOSED = auto()
    """The session has ended."""


class ReplicaStage(Enum):
    """The progress of a replica in a store session."""

    CONNECTING = auto()
    """The replica has not answered the request for the last session on its disk."""
    RECOVERING = auto()
    """The recovery takes steps with the replica (`recovery_steps`)."""
    ACTIVE = auto()
    """The replica takes part in appends."""
    FAILED = auto()
    """The replica takes no further part; only another session may readmit it."""


@dataclass(slots=True)
class ReplicaSession:
    """The state of one replica of a store session."""

    storage: str
    stage: ReplicaStage = ReplicaStage.CONNECTING
    info_requested: bool = False
    """Whether the request for its last session has been sent and not answered."""
    next_id: int = 0
    """The first transaction that has not been sent to the replica."""
    acknowledged: int = -1
    """The last transaction that the replica has acknowledged: it is on the replica's disk."""
    in_flight: int = 0
    """Number of batches that were sent to the replica and not acknowledged."""
    copying: st.BoundedRecordListRequest | None = None
    """The read of another replica, whose records will be sent to this one."""
    lagged: bool = False
    """Whether a log line has said that the replica lags, so that no further line is written."""
    read_load: float = 0.0
    """Total time in milliseconds that the reads sent to this replica were expected to take.

    It only grows. The next read goes to the replica with the smallest total, so a replica that
    answers twice as fast gets twice as many reads. The time in which a replica cannot be read does
    not count: see `choose_replica`."""
    expected_read_ms: float = 10.0
    """How long a read of this replica is expected to take, in milliseconds."""

    def activate(self, mark: int) -> None:
        """Let the replica take part in appends: it holds exactly the log up to ``mark``."""
        assert self.stage is ReplicaStage.RECOVERING
        assert self.acknowledged <= mark, "the log on a disk never shrinks within a session"
        self.stage = ReplicaStage.ACTIVE
        self.acknowledged = mark
        self.next_id = mark + 1

    def sent(self, first_id: int, count: int) -> None:
        """Note that a batch of ``count`` records from ``first_id`` on is sent to the replica."""
        # The storage would refuse a gap; an overlap would write an id twice.
        assert first_id == self.next_id, f"{self.storage}: {first_id} sent, {self.next_id} is next"
        self.next_id += count
        self.in_flight += 1

    def acknowledge(self, first_id: int, count: int) -> bool:
        """Note that the replica has acknowledged ``count`` records from ``first_id`` on.

        Return False, and note nothing, if the replica has not acknowledged the records before
        ``first_id``: they would count as durable, although they may not be on its disk
        (`test_replica_that_answers_out_of_order_is_dropped`).
        """
        assert self.in_flight > 0, "acknowledged without an append"
        assert first_id + count <= self.next_id, "only sent records are acknowledged"
        if first_id != self.acknowledged + 1:
            return False
        self.in_flight -= 1
        self.acknowledged += count
        return True

    def learn_read_time(self, elapsed_ms: float) -> None:
        """Note how long a read took, so that slow replicas get fewer reads."""
        counted_ms = min(max(elapsed_ms, _SHORTEST_READ_MS), _LONGEST_READ_MS)
        self.expected_read_ms = (self.expected_read_ms + counted_ms) / 2


def readable_replicas(
    replicas: Iterable[ReplicaSession], needed_id: int, excluded: Collection[str]
) -> list[ReplicaSession]:
    """Return the active replicas that have the log up to ``needed_id``, without ``excluded``."""
    return [
        replica
        for replica in replicas
        if replica.stage is ReplicaStage.ACTIVE
        and replica.acknowledged >= needed_id
        and replica.storage not in excluded
    ]


def choose_replica(
    replicas: Iterable[ReplicaSession], candidates: Collection[ReplicaSession]
) -> str | None:
    """Choose the least loaded of the ``candidates``, which `readable_replicas` has returned.

    Add the expected time of one read to the load of this replica: the caller must send it a read.
    Return None if there is no candidate.

    ``replicas`` are all replicas of the session. No load stays below that of the chosen replica,
    not even the load of a replica that cannot be chosen now. Otherwise that replica would later get
    all reads, until its load equals the loads of the others.
    """
    if not candidates:
        return None
    least_loaded = min(candidates, key=lambda replica: replica.read_load)
    for replica in replicas:
        replica.read_load = max(replica.read_load, least_loaded.read_load)
    least_loaded.read_load += least_loaded.expected_read_ms
    return least_loaded.storage


def end_copy(replicas: Iterable[ReplicaSession], request: st.Request) -> ReplicaSession | None:
    """End the copy whose records ``request`` reads; return the replica that copies.

    Return None if ``request`` is not of a copy in progress.
    """
    replica = next((each for each in replicas if each.copying is request), None)
    if replica is not None:
        replica.copying = None
    return replica


def committed_id(replicas: Iterable[ReplicaSession], quorum: int) -> int:
    """Return the highest id that at least ``quorum`` of ``replicas`` have on their disks.

    A replica that has failed still counts with the last id that it acknowledged: the records up to
    this id are on its disk, and the vote of the next session will find them there.
    """
    acknowledged = sorted((r.acknowledged for r in replicas), reverse=True)
    return acknowledged[quorum - 1]
