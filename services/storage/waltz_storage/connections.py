"""The connections of servers and administrators: messages in, answers out. Touches the network.

A connection is not read from while it has too much under way, or does not drain its answers.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from waltz.net import FrameConnection
from waltz.protocol import admin, storage
from waltz.protocol.failures import RpcFailure
from waltz_storage.admin_desk import AdminDesk
from waltz_storage.engine import Append, Arrival, Ask
from waltz_storage.errors import RequestRefused

_MOST_PENDING = 4096
_MOST_PENDING_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Cluster:
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


class _Reading:
    """Pauses a connection's reading while too many of its requests are under way."""

    def __init__(self) -> None:
        self.connection: FrameConnection | None = None
        self._pending = 0
        self._pending_bytes = 0
        self._paused = False

    def begun(self, requests: int, size: int) -> None:
        """Count requests that came in."""
        self._pending += requests
        self._pending_bytes += size
        self.review()

    def done(self, size: int) -> None:
        """Count a request that was answered."""
        self._pending -= 1
        self._pending_bytes -= size
        if self._paused:
            self.review()

    def review(self) -> None:
        """Pause, or read on."""
        connection = self.connection
        if connection is None or connection.closed:
            return
        full = self._pending > _MOST_PENDING or self._pending_bytes > _MOST_PENDING_BYTES
        pause = full or connection.congested
        if pause and not self._paused:
            connection.pause_reading()
        elif self._paused and not pause:
            connection.resume_reading()
        self._paused = pause


class ServerConnection:
    """A connection on the storage port; implements `waltz.net.FrameHandler`."""

    def __init__(self, cluster: Cluster, submit: Callable[[Sequence[Arrival]], None]) -> None:
        self._cluster = cluster
        self._submit = submit
        self._reading = _Reading()

    def ready(self, connection: FrameConnection) -> None:
        """Handshake done."""
        self._reading.connection = connection

    def received(self, bodies: list[bytes]) -> None:
        """Hand the requests of one chunk to the engine, together."""
        connection = self._connection
        arrivals: list[Arrival] = []
        now = time.monotonic()
        total = 0
        for body in bodies:
            request = storage.decode(body, connection.version)
            if isinstance(request, storage.OpenRequest):
                self._open(request)
                continue
            size = len(body)
            total += size
            arrivals.append(Arrival(request.partition, self._job(request, size, now)))
        if arrivals:
            self._reading.begun(len(arrivals), total)
            self._submit(arrivals)

    def lost(self, reason: str) -> None:
        """What is under way goes on; its answers go nowhere."""

    def writable(self) -> None:
        """The peer drains its answers again."""
        self._reading.review()

    @property
    def _connection(self) -> FrameConnection:
        connection = self._reading.connection
        assert connection is not None, "received before ready"
        return connection

    def _job(self, request: Any, size: int, now: float) -> Append | Ask:
        def reply(answer: storage.Response) -> None:
            self._answer(answer)
            self._reading.done(size)

        if isinstance(request, storage.AppendRequest):
            return Append(request, reply, now)
        return Ask(request, reply)

    def _open(self, request: storage.OpenRequest) -> None:
        refusal = self._cluster.refusal(request.key, request.num_partitions)
        context = (request.session_id, request.seq_num, request.partition)
        if refusal is None:
            self._answer(storage.SuccessResponse(*context))
        else:
            self._answer(storage.FailureResponse(*context, refusal))

    def _answer(self, answer: storage.Response) -> None:
        connection = self._connection
        connection.send(storage.encode(answer, connection.version))
        if connection.congested:
            self._reading.review()


class AdminConnection:
    """A connection on the admin port; implements `waltz.net.FrameHandler`."""

    def __init__(self, cluster: Cluster, desk: AdminDesk, metrics: Callable[[], str]) -> None:
        self._cluster = cluster
        self._desk = desk
        self._metrics = metrics
        self._reading = _Reading()

    def ready(self, connection: FrameConnection) -> None:
        """Handshake done."""
        self._reading.connection = connection

    def received(self, bodies: list[bytes]) -> None:
        """Answer the requests of one chunk, sooner or later."""
        connection = self._reading.connection
        assert connection is not None, "received before ready"
        for body in bodies:
            request = admin.decode(body, connection.version)
            self._reading.begun(1, len(body))
            self._handle(request, partial(self._answer, len(body)))

    def lost(self, reason: str) -> None:
        """What is under way goes on; its answers go nowhere."""

    def writable(self) -> None:
        """The peer drains its answers again."""
        self._reading.review()

    def _handle(self, request: Any, reply: Callable[[admin.Response | None], None]) -> None:
        match request:
            case admin.AdminOpenRequest(seq, key, num_partitions):
                refusal = self._cluster.refusal(key, num_partitions)
                if refusal is None:
                    reply(admin.AdminSuccessResponse(seq))
                else:
                    reply(admin.AdminFailureResponse(seq, refusal))
            case admin.MetricsRequest(seq):
                reply(admin.MetricsResponse(seq, self._metrics()))
            case _:
                self._desk.handle(request, reply)

    def _answer(self, size: int, answer: admin.Response | None) -> None:
        connection = self._reading.connection
        assert connection is not None
        if answer is None:
            connection.close("a request that cannot be answered")
            return
        connection.send(admin.encode(answer, connection.version))
        self._reading.done(size)
        if connection.congested:
            self._reading.review()
