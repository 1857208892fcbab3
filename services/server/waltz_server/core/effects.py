"""Effects, by which the core requests actions from its shell, and the `Ready` of effects. Pure.

The convention, which follows etcd/raft's `Ready`:

* A partition has one `Ready`. Each of its parts is given it at construction and adds effects to it
  directly. No part returns effects, keeps a separate list, or passes on effects of another part.
* After each input the shell calls `Partition.take_ready` and performs the effects in order.
* The result of an effect comes back as another input, which the effect's docstring names.
* A report of the store to its partition is not an effect: see `store_reports`.

An effect is a value. An effect about transactions is about a whole batch, never about a single
transaction, because effects per transaction would cost too much.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from waltz.metadata.core.formats import PartitionMetadata
from waltz.protocol import storage as st
from waltz_server.core.peer import Peer


@dataclass(frozen=True, slots=True)
class SendToClient:
    """Send whole frames to a client."""

    peer: Peer
    frames: bytes


@dataclass(frozen=True, slots=True)
class DisconnectClient:
    """Close a client's connection, after sending the frames that were queued before."""

    peer: Peer
    reason: str


@dataclass(frozen=True, slots=True)
class SendToStorage:
    """Send ``request`` to a storage; the result is `StorePartition.answered`.

    The shell numbers the request.
    """

    storage: str
    request: st.Request


@dataclass(frozen=True, slots=True)
class ConnectStorages:
    """Keep connections to exactly these storages.

    The results are `StorePartition.storage_up` and `StorePartition.storage_down`.
    """

    storages: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class ReadMetadata:
    """Read the partition's metadata, creating it if it is missing.

    The result is `StorePartition.metadata_read` or `metadata_failed` with this very object: two
    operations are never equal, so that a late result is not taken for that of a newer operation.
    """


@dataclass(frozen=True, slots=True, eq=False)
class WriteMetadata:
    """Compare-and-set the partition's metadata.

    The result is `StorePartition.metadata_written` or `metadata_failed` with this very object, as
    for `ReadMetadata`.
    """

    value: PartitionMetadata
    version: int


MetadataOperation = ReadMetadata | WriteMetadata


@dataclass(frozen=True, slots=True)
class RetrySession:
    """Timer: the pause before this attempt at a store session is over."""

    attempt: int


@dataclass(frozen=True, slots=True)
class RecoveryOverdue:
    """Timer: the recovery of this session should have ended by now."""

    session_id: int


@dataclass(frozen=True, slots=True)
class BackoffOver:
    """Timer: this storage, which failed, may take part again."""

    storage: str


@dataclass(frozen=True, slots=True)
class ResetFailures:
    """Timer: this storage's failure count is reset unless it has failed again since."""

    storage: str
    failures: int


@dataclass(frozen=True, slots=True)
class RetryFeeds:
    """Timer: feeds whose headers could not be read try again."""


@dataclass(frozen=True, slots=True)
class RangeReadTick:
    """Timer: one tick of the range reads that wait for transactions to be committed is over."""


StoreTimer = RetrySession | RecoveryOverdue | BackoffOver | ResetFailures
Timer = StoreTimer | RetryFeeds | RangeReadTick


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Call `Partition.timer_expired` with ``timer`` after ``seconds``."""

    seconds: float
    timer: Timer


@dataclass(frozen=True, slots=True)
class ScheduleTurn:
    """Call `Partition.turn` soon, when all effects are performed: there is more to send."""


class LogLevel(IntEnum):
    """The severity of a log line; the numbers are those of the logging module."""

    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class WriteLog:
    """Write a line to the log."""

    level: LogLevel
    text: str


Effect = (
    SendToClient
    | SendToStorage
    | DisconnectClient
    | ConnectStorages
    | ReadMetadata
    | WriteMetadata
    | StartTimer
    | ScheduleTurn
    | WriteLog
)


class Ready:
    """The effects that the shell must perform for one partition, in order."""

    __slots__ = ("_effects",)

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def add(self, effect: Effect) -> None:
        """Add ``effect``; the shell performs effects in the order in which they were added."""
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        """Take the effects added since the last call."""
        effects = self._effects
        if effects:
            self._effects = []
        return effects
