"""Mounts one partition on its current connection and keeps its feed running. Pure.

A mount request names the last transaction that the client has seen. The server feeds what follows
it and answers READY (spec/wire.md section 4, spec/behaviour.md section 8). The appends of a
partition and every stream of it have one `Mount` each. Time comes in through `tick` alone.
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
"""A mount request that is neither answered nor fed for this long is sent again."""

AHEAD_CONFIRMATIONS = 3
"""How many answers in a row must say that the log is shorter than the client's mark.

One answer is not enough: a server that has lost the partition and not noticed it yet answers from
an old log, and ClientAhead would then stop an application whose mark is right.
"""

_NOT_READY_BEFORE_MARK_CHECK = 3
"""Old servers answer NOT_READY also to a client whose mark is beyond the log."""


class Phase(Enum):
    """How far the mount is."""

    DETACHED = "no connection"
    MOUNTING = "mount request sent"
    BACKOFF = "server not ready"
    MOUNTED = "mounted"


class RequestIds:
    """Assigns the ids of one client's requests to one partition.

    ``last`` grows without bound; the sequence number on the wire is ``last`` wrapped to 32 bits.
    An id that is used twice would make another append's transaction look like this one's.
    """

    __slots__ = ("client_id", "last", "partition")

    def __init__(self, client_id: int, partition: int, last: int = -1) -> None:
        self.client_id = client_id
        self.partition = partition
        self.last = last

    def next(self, generation: int) -> ReqId:
        """Return an id that no earlier request has."""
        self.last += 1
        return ReqId(self.client_id, generation, self.partition, wrapped(self.last))


class Mount:
    """The feed session of one partition: its phase, its id, and the last transaction id fed.

    Its messages go to ``effects``, which is that of the part that the mount belongs to.
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
        """The log's mark, once it is believed to be below ``mark``."""
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
        """Note that the feed has reached ``mark``, and end the wait for the server."""
        assert mark >= self._mark, "a mark never goes down"
        self._mark = mark
        self._since = None

    def attach(self, generation: int, connection_seq: int, version: int) -> None:
        """Mount on a connection that speaks ``version`` to the partition's server."""
        self.generation = generation
        self.version = version
        self._connection_seq = connection_seq
        self.log_mark_behind = None
        self._not_ready = self._confirmations = 0
        self._request()

    def detach(self) -> None:
        """The connection is gone, or the partition has left that server."""
        self._enter(Phase.DETACHED)
        self.session = self._mark_request = None

    def mount_received(self, response: MountResponse) -> bool:
        """Take a MountResponse; return whether the partition is mounted now and was not before.

        A response to an earlier mount is ignored: it concerns another connection or generation.
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
        """Take the log's mark, which shows whether the log is shorter than what was fed."""
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
        """Restart the wait for the server: while reading is paused, nothing is received."""
        self._since = None

    def tick(self, now: float) -> None:
        """Mount again if that is due at ``now``, in seconds of any monotonic clock."""
        if self.phase is Phase.BACKOFF:
            patience = NOT_READY_BACKOFF_SECONDS
        elif self.phase is Phase.MOUNTING:
            patience = MOUNT_TIMEOUT_SECONDS
        else:
            return
        if self.log_mark_behind is not None:
            return
        if self._since is None:
            self._since = now
        if now - self._since >= patience:
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
