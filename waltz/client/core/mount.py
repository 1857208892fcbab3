"""Mounts one partition on its current connection and keeps its feed running. Pure.

A mount request names the last transaction that the client has seen. The server feeds the following
transactions and answers READY (spec/wire.md section 4, spec/behaviour.md section 8). The appends of
a partition have one `Mount`, and each stream of the partition has its own. `tick` is the only
source of time.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from waltz.client.core.effects import Effects
from waltz.protocol.client_numbers import CLIENT_AHEAD_SINCE
from waltz.protocol.client_server import (
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    MountRequest,
    MountResponse,
    MountState,
)
from waltz.protocol.records import NO_TRANSACTION, ReqId, wrapped

NOT_READY_BACKOFF_SECONDS = 0.5
"""How long to wait before mounting again after NOT_READY."""

MOUNT_TIMEOUT_SECONDS = 5.0
"""A mount request is sent again if no answer and no feed arrives for this long."""

AHEAD_CONFIRMATIONS = 3
"""How many consecutive answers must report a log shorter than the client's mark.

One answer is not enough: a server that no longer owns the partition, and has not noticed it yet,
answers from an old log. ClientAhead would then stop an application whose mark is right.
"""

_NOT_READY_BEFORE_MARK_CHECK = 3
"""After how many NOT_READY answers to read the log's mark.

Servers before `CLIENT_AHEAD_SINCE` answer NOT_READY also if the client's mark is beyond the log.
"""


class Phase(Enum):
    """The state of a mount."""

    DETACHED = "no connection"
    MOUNTING = "mount request sent"
    BACKOFF = "server not ready"
    MOUNTED = "mounted"


class RequestIds:
    """Assigns the ids of one client's requests to one partition.

    ``last`` grows without bound; the sequence number on the wire is ``last`` wrapped to 32 bits.
    Every id must be unique: if two appends had the same id, the client would take the transaction
    of one for that of the other.
    """

    __slots__ = ("client_id", "last", "partition")

    def __init__(self, client_id: int, partition: int, last: int = -1) -> None:
        self.client_id = client_id
        self.partition = partition
        self.last = last

    def next(self, generation: int) -> ReqId:
        """Return a new id."""
        self.last += 1
        return ReqId(self.client_id, generation, self.partition, wrapped(self.last))


class Mount:
    """The feed session of one partition: its phase, its id, and the last transaction id fed.

    It adds its messages to ``effects``, which it shares with the object that owns the mount.
    """

    def __init__(self, ids: RequestIds, mark: int, effects: Effects[Any]) -> None:
        self.ids = ids
        self._mark = mark
        self._effects = effects
        self.phase = Phase.DETACHED
        self.generation = -1
        self.version = -1
        self.session: ReqId | None = None
        self.log_mark_behind: int | None = None
        """The log's mark, after `AHEAD_CONFIRMATIONS` answers have shown that it is below ``mark``;
        None before."""
        self._connection_seq = 0
        self._since: float | None = None
        self._not_ready = 0
        self._confirmations = 0
        self._mark_request: ReqId | None = None

    @property
    def mark(self) -> int:
        """The last transaction id fed."""
        return self._mark

    def advance(self, mark: int) -> None:
        """Record that the feed has reached ``mark``; this restarts the timeout of the mount."""
        assert mark >= self._mark, "a mark never goes down"
        self._mark = mark
        self._since = None

    def attach(self, generation: int, connection_seq: int, version: int) -> None:
        """Mount on a new connection to the partition's server, with protocol ``version``."""
        self.generation = generation
        self.version = version
        self._connection_seq = connection_seq
        self.log_mark_behind = None
        self._not_ready = self._confirmations = 0
        self._request()

    def detach(self) -> None:
        """Stop using the connection: it is lost, or that server no longer owns the partition."""
        self._enter(Phase.DETACHED)
        self.session = self._mark_request = None

    def mount_received(self, response: MountResponse) -> bool:
        """Handle a MountResponse; return whether it has mounted the partition.

        A response to an earlier mount request is ignored, because it is about another connection or
        generation.
        """
        if response.req_id != self.session or self.phase is not Phase.MOUNTING:
            return False
        match response.state:
            case MountState.READY:
                self._not_ready = self._confirmations = 0
                self._enter(Phase.MOUNTED)
                return True
            case MountState.NOT_READY:
                self._not_ready += 1
                self._enter(Phase.BACKOFF)
                if (
                    self.version < CLIENT_AHEAD_SINCE
                    and self._not_ready >= _NOT_READY_BEFORE_MARK_CHECK
                ):
                    self._request_log_mark()
            case MountState.CLIENT_AHEAD:
                self._enter(Phase.BACKOFF)
                self._request_log_mark()
        return False

    def log_mark_received(self, response: HighWaterMarkResponse) -> None:
        """Handle the log's mark, which shows whether the log ends before ``mark``."""
        if response.req_id != self._mark_request:
            return
        self._mark_request = None
        if NO_TRANSACTION <= response.transaction_id < self.mark:
            self._confirmations += 1
            if self._confirmations >= AHEAD_CONFIRMATIONS:
                self.log_mark_behind = response.transaction_id
        else:
            self._confirmations = 0

    def restart_wait(self) -> None:
        """Restart the timeout of the mount: while reading was paused, no answer could arrive."""
        self._since = None

    def tick(self, now: float) -> None:
        """Mount again if the backoff or the timeout has ended at ``now`` (monotonic, seconds)."""
        if self.phase is Phase.BACKOFF:
            limit = NOT_READY_BACKOFF_SECONDS
        elif self.phase is Phase.MOUNTING:
            limit = MOUNT_TIMEOUT_SECONDS
        else:
            return
        if self.log_mark_behind is not None:
            return
        if self._since is None:
            self._since = now
        if now - self._since >= limit:
            self._request()

    def _request(self) -> None:
        self.session = self.ids.next(self.generation)
        self._enter(Phase.MOUNTING)
        request = MountRequest(self.session, self._mark, self._connection_seq)
        self._effects.messages.append(request)

    def _request_log_mark(self) -> None:
        self._mark_request = self.ids.next(self.generation)
        self._effects.messages.append(HighWaterMarkRequest(self._mark_request))

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._since = None
