"""Pure. A round: appends of several partitions that are written and flushed in one pass.

The appends of one partition are a *part* of the round. Each part is answered as soon as it is
durable, and need not wait for the other parts. `core.engine.engine` makes the rounds, and a
`RoundWriter` of the shell writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from waltz.protocol import storage
from waltz_storage.core.log.partition_log import PartitionLog, StagedAppend
from waltz_storage.core.partitions.partition import StoragePartition

Reply = Callable[[Any], None]
"""A callback for the answer to one request, called on the thread from which the job came."""

Answer = tuple[Reply, Any]
"""A callback, and the answer to pass to it."""


class AppendJob(NamedTuple):
    """A server's append.

    ``version`` is the protocol version of its connection. ``reply`` is called with the
    answer. ``arrived`` is when the request arrived, in seconds of the shell's clock.
    """

    request: storage.AppendRequest
    version: int
    reply: Reply
    arrived: float


class RoundPart(NamedTuple):
    """The appends of one partition in a round, and their staged (encoded) records."""

    partition: StoragePartition
    appends: list[AppendJob]
    staged: StagedAppend

    @property
    def log(self) -> PartitionLog:
        """The log that gets the records."""
        return self.partition.log


class RoundWriter(Protocol):
    """Writes the parts of a round and makes them durable.

    `shell.parallel_flushes` flushes the segment files of each partition, as Waltz 0.13.2 does.
    `shell.wal_engine` flushes one write-ahead log for all partitions.
    """

    @property
    def flushes(self) -> int:
        """How many flushes of files the rounds have begun so far."""

    @property
    def flushes_once(self) -> bool:
        """Whether one flush makes all parts of a round durable, however many there are.

        `shell.engine_thread` then commits a small round on its own thread.
        """

    def commit(self, parts: Sequence[RoundPart], durable: Callable[[RoundPart], None]) -> None:
        """Write and flush all parts; raises DiskFailed.

        Calls ``durable`` once for each part, from any thread, as soon as that part is durable.
        Returns when all parts are durable. After DiskFailed no append may be answered any more,
        because it is unknown which records are on disk.
        """
