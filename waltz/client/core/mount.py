"""Mount one partition on its present connection, and mount it again when that is necessary. Pure.

`waltz.client.core` defines the words. A mount selects the connection over which a client appends to
a partition and receives its feed. A mount request names the client's mark. If the mount is *fed*,
the server first sends the feed after the mark, and then answers READY. Otherwise it answers READY
without a feed (spec/wire.md sections 4 and 12, spec/behaviour.md section 8).

The appends of a partition have one `Mount`. Each stream has its own for each of its partitions.
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
    RequestDenied,
)
from waltz.protocol.records import NO_TRANSACTION, ReqId, wrapped

NOT_READY_BACKOFF_SECONDS = 0.5
"""How long to wait before mounting again.

This is after a denial, and after the answers NOT_READY and CLIENT_AHEAD (`MountState`)."""

MOUNT_TIMEOUT_SECONDS = 5.0
"""A mount request is sent again if no answer and no feed arrives for this long."""

_LONGEST_MOUNT_TIMEOUT_SECONDS = 40.0
"""The timeout of a mount request doubles up to this value while no answer arrives.

Only the answer to the last request counts. So requests that follow each other faster than the
answers arrive would never mount: on a slow connection, or behind a long answer. And a server of
Waltz 0.13.2 queues mount requests while the partition has no open store session. When the queue is
full, it processes no further message of the connection, not even those about other partitions
(spec/behaviour.md section 3). Frequent repetitions would fill the queue.
"""

AHEAD_CONFIRMATIONS = 3
"""How many consecutive answers must report a log that ends before the client's mark.

One answer is not enough. A server that has lost the partition to another server, and has not read
the new assignment yet, answers with an old end of the log. After one such answer, ClientAhead would
stop an application whose mark is right.
"""

_NOT_READY_BEFORE_MARK_CHECK = 3
"""After how many NOT_READY answers of an old server the client requests the high-water mark.

Servers of versions before `CLIENT_AHEAD_SINCE` answer NOT_READY also if the log ends before the
client's mark.
"""


class Phase(Enum):
    """The state of a mount."""

    DETACHED = "no connection"
    MOUNTING = "mount request sent"
    BACKOFF = "waiting before the next mount request"
    MOUNTED = "mounted"


class RequestIds:
    """Generates the ids of one client's requests about one partition.

    ``last`` is the number of the last id, -1 before the first, and grows without a limit. The
    sequence number on the wire is ``last`` wrapped to 32 bits. All appends of a client to a
    partition must get their ids from one `RequestIds`. Otherwise two appends could have the same
    id, and a transaction in the feed could belong to either of them.
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
    """The mount of one partition.

    ``phase`` is its state. ``request_id`` is the id of its last mount request, None while it has no
    connection. ``generation`` and ``version`` are those of the last `attach`, -1 before. The
    messages to send are added to ``effects``, which the owner of the mount passes to the
    constructor.
    """

    def __init__(self, ids: RequestIds, mark: int, effects: Effects[Any]) -> None:
        self.ids = ids
        self._mark = mark
        self._effects = effects
        self.phase = Phase.DETACHED
        self.generation = -1
        self.version = -1
        self.request_id: ReqId | None = None
        self.log_mark_behind: int | None = None
        """The high-water mark, if `AHEAD_CONFIRMATIONS` consecutive answers were below ``mark``.

        Otherwise None.
        """
        self.denial: str | None = None
        """Why the server denied the last mount request or feed request; None if it did not."""
        # Arguments of the last `attach`.
        self._connection_seq = 0
        self._fed = True
        self._waiting_since: float | None = None
        """The time of the first `tick` after the last restart of the timeout."""
        self._num_not_ready = 0
        """The number of consecutive NOT_READY answers."""
        self._timeout_seconds = MOUNT_TIMEOUT_SECONDS
        """How long the last mount request may take."""
        self._confirmations = 0
        """The number of consecutive high-water marks that were below ``mark``."""
        self._mark_request_id: ReqId | None = None
        """The id of the open request for the high-water mark, None if there is none."""

    @property
    def mark(self) -> int:
        """The transaction after which a mount begins, named in each mount request.

        A client that is fed has received every transaction up to the mark. Without a feed, the
        answers to appends advance the mark (`FeedNeed.advance_mark`).
        """
        return self._mark

    def advance(self, mark: int) -> None:
        """Raise the mark to ``mark``, which may be the present one, and restart the timeout.

        During a mount, the server sends the feed before its answer. So the mount request has
        arrived, and must not be sent again while the feed continues.
        """
        assert mark >= self._mark, "a mark never goes down"
        self._mark = mark
        self._waiting_since = None
        self._timeout_seconds = MOUNT_TIMEOUT_SECONDS

    def attach(
        self, generation: int, connection_seq: int, version: int, *, fed: bool = True
    ) -> None:
        """Mount the partition on a new connection to its server, or in a new generation.

        ``connection_seq`` is the number of the connection, ``version`` its protocol version. If the
        mount is not ``fed``, the version must be `client_numbers.APPEND_ANSWERS_SINCE` or later: an
        older server shows the outcomes of appends only in the feed.
        """
        self._fed = fed
        self.generation = generation
        self.version = version
        self._connection_seq = connection_seq
        self.log_mark_behind = self.denial = None
        self._num_not_ready = self._confirmations = 0
        self._timeout_seconds = MOUNT_TIMEOUT_SECONDS
        self._request()

    def detach(self) -> None:
        """Stop using the connection: it is lost, or another server owns the partition now."""
        self._enter(Phase.DETACHED)
        self.request_id = self._mark_request_id = None

    def mount_received(self, response: MountResponse) -> bool:
        """Handle a MountResponse; return whether the partition is mounted by this response.

        Ignore a response to an earlier mount request: it may be about another connection or
        generation. Ignore a second response to the same request, too, and one after its denial.
        """
        if response.req_id != self.request_id or self.phase is not Phase.MOUNTING:
            return False
        self._timeout_seconds = MOUNT_TIMEOUT_SECONDS
        match response.state:
            case MountState.READY:
                self._num_not_ready = self._confirmations = 0
                self.denial = None
                self._enter(Phase.MOUNTED)
                return True
            case MountState.NOT_READY:
                self._num_not_ready += 1
                self._enter(Phase.BACKOFF)
                if (
                    self.version < CLIENT_AHEAD_SINCE
                    and self._num_not_ready >= _NOT_READY_BEFORE_MARK_CHECK
                ):
                    self._request_log_mark()
            case MountState.CLIENT_AHEAD:
                self._enter(Phase.BACKOFF)
                self._request_log_mark()
        return False

    def request_denied(self, response: RequestDenied) -> bool:
        """Handle a RequestDenied; return whether it is about this mount or its feed.

        If so, `tick` mounts the partition again after a backoff, because the right may have been
        granted by then. A stream does not wait for that: it fails (`ServerStream`).
        """
        if response.req_id != self.request_id:
            return False
        self.denial = response.error or "no reason given"
        self._enter(Phase.BACKOFF)
        return True

    def log_mark_received(self, response: HighWaterMarkResponse) -> None:
        """Handle the answer to `_request_log_mark`. Ignore other answers."""
        if response.req_id != self._mark_request_id:
            return
        self._mark_request_id = None
        # A mark below -1 says that the server has not opened the partition, or does not own it.
        if NO_TRANSACTION <= response.transaction_id < self.mark:
            self._confirmations += 1
            if self._confirmations >= AHEAD_CONFIRMATIONS:
                self.log_mark_behind = response.transaction_id
        else:
            self._confirmations = 0

    def restart_wait(self) -> None:
        """Restart the timeout of the mount.

        The owner calls this while it does not read from the connection, because then no answer can
        arrive.
        """
        self._waiting_since = None

    def tick(self, now: float) -> None:
        """Mount again if the backoff or the timeout has ended at ``now``.

        ``now`` is in seconds and never goes back. A mount knows the time only from this method.
        """
        if self.phase is Phase.BACKOFF:
            limit = NOT_READY_BACKOFF_SECONDS
        elif self.phase is Phase.MOUNTING:
            limit = self._timeout_seconds
        else:
            return
        if self.log_mark_behind is not None:
            return  # The log is too short. The client raises ClientAhead until the next `attach`.
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < limit:
            return
        if self.phase is Phase.MOUNTING:
            self._timeout_seconds = min(2 * limit, _LONGEST_MOUNT_TIMEOUT_SECONDS)
        self._request()

    def _request(self) -> None:
        """Send a mount request with a new id."""
        self.request_id = self.ids.next(self.generation)
        self._enter(Phase.MOUNTING)
        request = MountRequest(self.request_id, self._mark, self._connection_seq, self._fed)
        self._effects.messages.append(request)

    def _request_log_mark(self) -> None:
        """Request the high-water mark, because the log may end before `mark`.

        `log_mark_received` handles the answer.
        """
        self._mark_request_id = self.ids.next(self.generation)
        self._effects.messages.append(HighWaterMarkRequest(self._mark_request_id))

    def _enter(self, phase: Phase) -> None:
        """Enter a phase, and restart the timeout."""
        self.phase = phase
        self._waiting_since = None
