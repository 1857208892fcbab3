"""Getting one partition's feed going, on whatever connection it has at the moment. Pure.

A mount tells the server what the client has seen; the server feeds what is missing and says READY
(spec/wire.md section 4, spec/behaviour.md section 8). `Mount` is shared by whoever lives on a feed:
the appends of a partition and the streams of it. Time comes in through `tick` alone.
"""

from __future__ import annotations

from enum import Enum

from waltz.protocol.client_numbers import CLIENT_AHEAD_SINCE
from waltz.protocol.client_server import (
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    Message,
    MountRequest,
    MountResponse,
    MountState,
)
from waltz.protocol.records import NO_TRANSACTION, ReqId, wrapped

NOT_READY_PAUSE_SECONDS = 0.5
"""How long to wait before mounting again after NOT_READY."""

MOUNT_SILENCE_SECONDS = 5.0
"""A mount that is neither answered nor fed for this long is asked for again."""

AHEAD_CONFIRMATIONS = 3
"""How often a server must say that its log is shorter than the client's mark to be believed.

A server that has not yet heard that it lost the partition and got it back knows an old log.
"""

_OLD_NOT_READY_TRIES = 3


class Phase(Enum):
    """How far the feed is."""

    DETACHED = "no connection"
    MOUNTING = "mount asked for"
    PAUSING = "told not ready"
    MOUNTED = "fed"


class RequestIds:
    """Gives each request of one client about one partition its id.

    ``last`` counts without end; the sequence number on the wire is it, wrapped to 32 bits.
    """

    __slots__ = ("client_id", "last", "partition")

    def __init__(self, client_id: int, partition: int, last: int = -1) -> None:
        self.client_id = client_id
        self.partition = partition
        self.last = last

    def next(self, generation: int) -> ReqId:
        """Return an id that was not used before."""
        self.last += 1
        return ReqId(self.client_id, generation, self.partition, wrapped(self.last))


class Mount:
    """The feed session of one partition: its phase, its id, and the last transaction id seen."""

    def __init__(self, ids: RequestIds, mark: int) -> None:
        self.ids = ids
        self.mark = mark
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
        self._mark_question: ReqId | None = None

    def attach(self, generation: int, connection_seq: int, version: int) -> list[Message]:
        """Begin on a connection that speaks ``version`` to the partition's server."""
        self.generation = generation
        self.version = version
        self._connection_seq = connection_seq
        self.log_mark_behind = None
        self._not_ready = self._confirmations = 0
        return self._request()

    def detach(self) -> None:
        """The connection is gone, or the partition has left that server."""
        self._enter(Phase.DETACHED)
        self.session = self._mark_question = None

    def answered(self, response: MountResponse) -> list[Message]:
        """Take a MountResponse; those of another session are obsolete and ignored."""
        if response.req_id != self.session or self.phase is not Phase.MOUNTING:
            return []
        match response.state:
            case MountState.READY:
                self._not_ready = self._confirmations = 0
                self._enter(Phase.MOUNTED)
                return []
            case MountState.NOT_READY:
                self._not_ready += 1
                self._enter(Phase.PAUSING)
                suspicious = (
                    self.version < CLIENT_AHEAD_SINCE and self._not_ready >= _OLD_NOT_READY_TRIES
                )
                return self._ask_log_mark() if suspicious else []
            case MountState.CLIENT_AHEAD:
                self._enter(Phase.PAUSING)
                return self._ask_log_mark()

    def log_mark_told(self, response: HighWaterMarkResponse) -> None:
        """Take the answer to the question whether the log is shorter than the mark."""
        if response.req_id != self._mark_question:
            return
        self._mark_question = None
        if NO_TRANSACTION <= response.transaction_id < self.mark:
            self._confirmations += 1
            if self._confirmations >= AHEAD_CONFIRMATIONS:
                self.log_mark_behind = response.transaction_id
        else:
            self._confirmations = 0

    def heard(self) -> None:
        """Something of the feed has come, or could not have: the silence begins anew."""
        self._since = None

    def tick(self, now: float) -> list[Message]:
        """Return what is due at ``now`` (seconds of any steady clock); call it often."""
        if self.phase is Phase.PAUSING:
            patience = NOT_READY_PAUSE_SECONDS
        elif self.phase is Phase.MOUNTING:
            patience = MOUNT_SILENCE_SECONDS
        else:
            return []
        if self.log_mark_behind is not None:
            return []
        if self._since is None:
            self._since = now
        return self._request() if now - self._since >= patience else []

    def _request(self) -> list[Message]:
        self.session = self.ids.next(self.generation)
        self._enter(Phase.MOUNTING)
        return [MountRequest(self.session, self.mark, self._connection_seq)]

    def _ask_log_mark(self) -> list[Message]:
        self._mark_question = self.ids.next(self.generation)
        return [HighWaterMarkRequest(self._mark_question)]

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._since = None
