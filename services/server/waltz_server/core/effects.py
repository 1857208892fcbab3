"""Define the effects: the values by which the core requests actions from its shell. Pure.

The core collects effects in a `Ready`, as in etcd/raft:

* A partition has one `Ready`. Every part of the partition gets this `Ready` at construction and
  adds effects to it directly. No part returns effects or keeps a list of its own.
* After each input the shell calls `Partition.take_ready` and performs the effects in order.
* The result of an effect comes back as another input, which the effect's docstring names: a method
  of `Partition`, or of the `StorePartition` in ``Partition.store``.
* A report of the store to its partition is not an effect: see `store_reports`.

An effect about transactions is about a whole batch, because an effect for each transaction would
cost too much.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from waltz.metadata.core.formats import PartitionMetadata
from waltz.protocol import storage as st
from waltz_server.core.peer import Peer


class SendToClient(NamedTuple):
    """Send ``frames`` and then ``data`` to a client: together one or more complete messages.

    ``data`` is the end of the last message, if this end is long: it is not copied into ``frames``.
    """

    peer: Peer
    frames: bytes
    data: bytes | memoryview = b""


@dataclass(frozen=True, slots=True)
class DisconnectClient:
    """Close a client's connection, after the frames of earlier effects are sent."""

    peer: Peer
    reason: str


class SendToStorage(NamedTuple):
    """Send ``request`` to a storage, with a sequence number that the shell chooses.

    The result is `StorePartition.answered`, also if the connection is lost.
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
    """Read the partition's metadata; create them if they are missing.

    The result is `StorePartition.metadata_read` or `metadata_failed`, with this very object as the
    argument. Two operations are never equal, so that the late result of an old operation is not
    taken for the result of a newer one.
    """


@dataclass(frozen=True, slots=True, eq=False)
class WriteMetadata:
    """Write ``value`` as the partition's metadata if their version is still ``version``.

    The result is `StorePartition.metadata_written` or `metadata_failed`, with this very object as
    the argument: see `ReadMetadata`.
    """

    value: PartitionMetadata
    version: int


MetadataOperation = ReadMetadata | WriteMetadata


@dataclass(frozen=True, slots=True)
class RetrySession:
    """Timer: the pause after a failed attempt to begin a store session is over.

    ``number`` is the number of this timer. Only the timer that was started last counts.
    """

    number: int


@dataclass(frozen=True, slots=True)
class RetryMetadata:
    """Timer: the open session of this id may try its next operation on the metadata."""

    session_id: int


@dataclass(frozen=True, slots=True)
class RetryCopies:
    """Timer: replicas of this session may again copy from the sources that could not be read."""

    session_id: int


@dataclass(frozen=True, slots=True)
class RecoveryOverdue:
    """Timer: if the recovery of this session still runs, it takes too long.

    Then the partition counts as unhealthy, and the store reports `SessionDelayed`.
    """

    session_id: int


@dataclass(frozen=True, slots=True)
class BackoffOver:
    """Timer: the backoff of this storage is over; sessions may include it again."""

    storage: str


@dataclass(frozen=True, slots=True)
class ResetFailures:
    """Timer: reset this storage's failure count if it is still ``failures``."""

    storage: str
    failures: int


@dataclass(frozen=True, slots=True)
class RetryFeeds:
    """Timer: retry the feeds whose headers could not be read."""


@dataclass(frozen=True, slots=True)
class RangeReadTick:
    """Timer: one tick is over. A tick is the unit of the waits in `range_reads`."""


StoreTimer = (
    RetrySession | RetryMetadata | RetryCopies | RecoveryOverdue | BackoffOver | ResetFailures
)
Timer = StoreTimer | RetryFeeds | RangeReadTick


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Call `Partition.timer_expired` with ``timer`` after ``seconds``."""

    seconds: float
    timer: Timer


@dataclass(frozen=True, slots=True)
class ScheduleTurn:
    """Call `Partition.turn` soon: the partition has more to send to clients.

    All effects that were added before the call are performed first.
    """


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
    """A list of the effects that the shell must perform for one partition, in order."""

    __slots__ = ("_effects",)

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def add(self, effect: Effect) -> None:
        """Add ``effect``; the shell performs effects in the order in which they were added."""
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        """Remove and return the effects added since the last call."""
        effects = self._effects
        if effects:
            self._effects = []
        return effects
