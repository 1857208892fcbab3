"""The connections of servers and administrators: messages in, answers out. Touches the network.

A connection is not read from while too much of it is under way, or it does not drain its answers.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar, cast

from waltz.net import FrameConnection, FrameHandler
from waltz.protocol import admin, storage
from waltz.protocol.failures import RpcFailure
from waltz_storage.core.engine import AppendJob, Arrival, AskJob
from waltz_storage.core.errors import RequestRefused
from waltz_storage.shell.admin_handler import AdminDesk

log = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_WEIGHT = 64 << 20
_LIST_WEIGHT = 16 << 20
_WEIGHTS: dict[type, int] = {
    storage.RecordListRequest: _LIST_WEIGHT,
    storage.RecordHeaderListRequest: _LIST_WEIGHT,
    storage.BoundedRecordListRequest: _LIST_WEIGHT,
    storage.CommittedRecordListRequest: _LIST_WEIGHT,
    storage.StoredRecordListRequest: _LIST_WEIGHT,
    storage.RecordRequest: 64 << 10,
    storage.RecordHeaderRequest: 64 << 10,
}


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Which cluster's node this is."""

    key: uuid.UUID
    num_partitions: int

    def refusal(self, key: uuid.UUID, num_partitions: int) -> RpcFailure | None:
        """Return why a peer of the given cluster is refused, None if it is of this one."""
        if key != self.key:
            text = "Provided cluster key is inconsistent with key in control file."
        elif num_partitions != self.num_partitions:
            text = (
                "Provided number of partitions is inconsistent with the total number of partitions "
                "in control file."
            )
        else:
            return None
        return RpcFailure(RequestRefused(text).message)


class _Intake(Generic[T]):
    """Begins a connection's requests in their order, and only so many at a time.

    Each weighs about what it, or its answer, takes in memory. While some have to wait, or the peer
    does not drain its answers, nothing is read from the connection.
    """

    def __init__(self, begin: Callable[[list[T]], None]) -> None:
        self.connection: FrameConnection | None = None
        self._begin = begin
        self._waiting: deque[tuple[int, T]] = deque()
        self._weight = 0
        self._paused = False
        self._going_on = False

    def add(self, requests: list[tuple[int, T]]) -> None:
        """Take the requests of one chunk, with their weights."""
        self._waiting.extend(requests)
        self.go_on()

    def done(self, weight: int) -> None:
        """Count a request that was answered."""
        self._weight -= weight
        if self._waiting:
            self.go_on()

    def go_on(self) -> None:
        """Begin what may begin; then pause reading, or read on."""
        connection = self.connection
        if connection is None or connection.closed:
            self._waiting.clear()
            return
        if self._going_on:
            # A request that was answered at once; the loop below sees what it made room for.
            return
        self._going_on = True
        while begun := self._take(connection):
            self._begin(begun)
        self._going_on = False
        pause = bool(self._waiting) or connection.congested
        if pause and not self._paused:
            connection.pause_reading()
        elif self._paused and not pause:
            connection.resume_reading()
        self._paused = pause

    def _take(self, connection: FrameConnection) -> list[T]:
        taken: list[T] = []
        while self._waiting and self._weight < _MOST_WEIGHT and not connection.congested:
            weight, request = self._waiting.popleft()
            self._weight += weight
            taken.append(request)
        return taken


class ServerConnection(FrameHandler):
    """A connection on the storage port."""

    def __init__(
        self, cluster: ClusterIdentity, submit: Callable[[Sequence[Arrival]], None]
    ) -> None:
        self._cluster = cluster
        self._intake: _Intake[Arrival] = _Intake(submit)

    def ready(self, connection: FrameConnection) -> None:
        """Handshake done."""
        self._intake.connection = connection

    def received(self, bodies: list[bytes]) -> None:
        """Hand the requests of one chunk to the engine, together."""
        version = _ready(self._intake.connection).version
        arrivals: list[tuple[int, Arrival]] = []
        now = time.monotonic()
        for body in bodies:
            request = storage.decode(body, version)
            if isinstance(request, storage.OpenRequest):
                self._open(request)
                continue
            weight = _WEIGHTS.get(type(request), len(body))
            reply = partial(self._answer, weight)
            if isinstance(request, storage.AppendRequest):
                job: AppendJob | AskJob = AppendJob(request, version, reply, now)
            else:
                # An answer sent as a request becomes a failure in the engine.
                job = AskJob(cast(storage.Request, request), version, reply)
            arrivals.append((weight, Arrival(request.partition, job)))
        self._intake.add(arrivals)

    def lost(self, reason: str) -> None:
        """What is under way goes on; its answers go nowhere."""
        self._intake.go_on()

    def writable(self) -> None:
        """The peer drains its answers again."""
        self._intake.go_on()

    def _open(self, request: storage.OpenRequest) -> None:
        refusal = self._cluster.refusal(request.key, request.num_partitions)
        context = (request.session_id, request.seq_num, request.partition)
        if refusal is None:
            self._send(storage.SuccessResponse(*context))
        else:
            self._send(storage.FailureResponse(*context, refusal))

    def _answer(self, weight: int, answer: storage.Response) -> None:
        self._send(answer)
        self._intake.done(weight)

    def _send(self, answer: storage.Response) -> None:
        connection = _ready(self._intake.connection)
        connection.send(*storage.encode_parts(answer, connection.version))


class AdminConnection(FrameHandler):
    """A connection on the admin port."""

    def __init__(
        self, cluster: ClusterIdentity, desk: AdminDesk, metrics: Callable[[], str]
    ) -> None:
        self._cluster = cluster
        self._desk = desk
        self._metrics = metrics
        self._intake: _Intake[admin.Message] = _Intake(self._begin)

    def ready(self, connection: FrameConnection) -> None:
        """Handshake done."""
        self._intake.connection = connection

    def received(self, bodies: list[bytes]) -> None:
        """Answer the requests of one chunk, sooner or later."""
        version = _ready(self._intake.connection).version
        self._intake.add([(_LIST_WEIGHT, admin.decode(body, version)) for body in bodies])

    def lost(self, reason: str) -> None:
        """What is under way goes on; its answers go nowhere."""
        self._intake.go_on()

    def writable(self) -> None:
        """The peer drains its answers again."""
        self._intake.go_on()

    def _begin(self, requests: list[admin.Message]) -> None:
        version = _ready(self._intake.connection).version
        for request in requests:
            match request:
                case admin.AdminOpenRequest(seq, key, num_partitions):
                    refusal = self._cluster.refusal(key, num_partitions)
                    if refusal is None:
                        self._answer(admin.AdminSuccessResponse(seq))
                    else:
                        self._answer(admin.AdminFailureResponse(seq, refusal))
                case admin.MetricsRequest(seq):
                    self._answer(admin.MetricsResponse(seq, self._metrics()))
                case _:
                    # An answer sent as a request is nothing the desk can do.
                    self._desk.handle(cast(admin.Request, request), version, self._answer)

    def _answer(self, answer: admin.Response | None) -> None:
        connection = _ready(self._intake.connection)
        if answer is None:
            if not connection.closed:
                reason = "a request that cannot be answered"
                log.warning("closing storage admin connection of %s: %s", connection.peer, reason)
                connection.close(reason)
            return
        connection.send(*admin.encode_parts(answer, connection.version))
        self._intake.done(_LIST_WEIGHT)


def _ready(connection: FrameConnection | None) -> FrameConnection:
    assert connection is not None, "received before ready"
    return connection
