"""Receive requests of servers and administrators, and send the answers. Touches the network.

The node stops reading from a connection while too many of its requests wait, and while the peer
does not read the answers (see `request_intake`).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from waltz.net import EVERYONE, AllowedNames, FrameConnection, FrameHandler, decode_received
from waltz.protocol import admin, storage
from waltz.protocol.failures import RpcFailure
from waltz_storage.core.admin_changes import change_text, outcome_text
from waltz_storage.core.engine.engine import Arrival, RequestJob
from waltz_storage.core.engine.request_weights import ADMIN_WEIGHT, RequestWeights, admin_weight
from waltz_storage.core.engine.rounds import AppendJob, Reply
from waltz_storage.core.errors import RequestRefused
from waltz_storage.core.partitions.fencing import is_read, raises_fence
from waltz_storage.core.partitions.open_sessions import OpenSessions
from waltz_storage.shell.admin_handler import AdminHandler
from waltz_storage.shell.request_intake import RequestIntake, WeightedRequest

log = logging.getLogger(__name__)

_NO_SESSION = -1
"""A number below every session id."""
_REFUSED_SECONDS = 10.0
"""How long a connection of a refused peer stays open without a request."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The cluster that this node belongs to."""

    key: uuid.UUID
    num_partitions: int

    def refusal(self, key: uuid.UUID, num_partitions: int) -> RpcFailure | None:
        """Return why a peer that names another cluster is refused, None if it names this one."""
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


class ServerConnection(FrameHandler):
    """A connection on the storage port."""

    def __init__(
        self,
        cluster: ClusterIdentity,
        submit: Callable[[Sequence[Arrival]], None],
        clock: Callable[[], float],
        allowed: AllowedNames = EVERYONE,
        open_sessions: OpenSessions | None = None,
        on_truncation: Callable[[int, int], None] | None = None,
    ) -> None:
        """Answer a server.

        ``submit`` queues requests for the engine. ``open_sessions`` has the sessions of all
        connections of the storage. ``on_truncation`` is called with a partition, and the last id of
        its log, after a request to truncate the log was executed and before a later job of the
        partition begins. The caller is the thread of the engine.
        """
        self._cluster = cluster
        self._on_truncation = on_truncation
        self._clock = clock
        self._open_sessions = OpenSessions() if open_sessions is None else open_sessions
        self._allowed = allowed
        self._refusal: str | None = None
        """Why this peer is refused, None if it is allowed."""
        self._intake: RequestIntake[Arrival] = RequestIntake(submit)
        self._weights = RequestWeights()
        self._sessions: dict[int, int] = {}
        """The highest session id of this peer's requests to each partition.

        Reads of committed records are not counted: readers repeat the session id of a server."""

    def ready(self, connection: FrameConnection) -> None:
        """Store the connection, whose handshake is complete.

        Before the peer has shown that it belongs to this cluster, it may send no large message.
        """
        self._intake.connection = connection
        connection.allow_large_requests(False)
        self._refusal = _check_peer(connection, "storage", self._allowed)
        # The storage is ready only if open connections use the sessions of its replicas. The dict
        # is empty now; each check of readiness reads what it has then.
        self._open_sessions.add(self._sessions)

    def received(self, bodies: list[bytes]) -> None:
        """Pass the requests of one chunk to the engine, together."""
        version = _required(self._intake.connection).version
        arrivals: list[WeightedRequest[Arrival]] = []
        now = self._clock()
        for body in bodies:
            request = decode_received(storage.decode, body, version)
            if self._refusal is not None:
                self._refuse(request, self._refusal)
                return
            if isinstance(request, storage.OpenRequest):
                self._answer_open(request)
                continue
            if request.session_id > self._sessions.get(request.partition, _NO_SESSION):
                self._note_session(request)
            if isinstance(request, storage.AppendRequest):
                weight = len(body)
                append = AppendJob(request, version, partial(self._answer, weight), now)
                arrival = Arrival(request.partition, append)
                arrivals.append(WeightedRequest(arrival, weight, is_read=False))
            else:
                arrivals.append(self._weighted(cast(storage.Request, request), version, len(body)))
        self._intake.add(arrivals)

    def _weighted(
        self, request: storage.Request, version: int, message_bytes: int
    ) -> WeightedRequest[Arrival]:
        """Return ``request``, which is not an append, in the form that the intake takes.

        The engine refuses a message that is not a request.
        """
        weight, only_reads = self._weights.of(request, message_bytes), is_read(request)
        answer = self._answer_read if only_reads else self._answer
        if isinstance(request, storage.TruncateRequest | storage.TruncateBelowMarkRequest):
            answer = self._answer_truncation
        reply = partial(answer, weight)
        arrival = Arrival(request.partition, RequestJob(request, version, reply))
        return WeightedRequest(arrival, weight, is_read=only_reads)

    def lost(self, reason: str) -> None:
        """Drop the waiting requests. Requests under way continue; their answers are dropped."""
        self._open_sessions.remove(self._sessions)
        self._intake.proceed()  # It drops the waiting requests of a closed connection.

    def writable(self) -> None:
        """Begin requests again: the peer has read its answers."""
        self._intake.proceed()

    def _note_session(self, request: storage.Message) -> None:
        """Store and log the session of ``request``, if the request raises the fence.

        A request with a wrong session id may block all servers (`fencing.is_possible`). Then the
        log line shows the sender of the request.
        """
        partition_exists = 0 <= request.partition < self._cluster.num_partitions
        if partition_exists and raises_fence(cast(storage.Request, request)):
            self._sessions[request.partition] = request.session_id
            log.info(
                "partition %d: session %d is used by %s",
                request.partition,
                request.session_id,
                _required(self._intake.connection).peer,
            )

    def _answer_open(self, request: storage.OpenRequest) -> None:
        """Answer the first request of a server: whether it belongs to the same cluster."""
        refusal = self._cluster.refusal(request.key, request.num_partitions)
        context = (request.session_id, request.seq_num, request.partition)
        if refusal is None:
            _required(self._intake.connection).allow_large_requests(True)
            self._send(storage.SuccessResponse(*context))
        else:
            self._send(storage.FailureResponse(*context, refusal))

    def _refuse(self, request: storage.Message, why: str) -> None:
        """Close the connection. A peer that follows the protocol gets the reason as an answer."""
        if isinstance(request, storage.OpenRequest):
            context = (request.session_id, request.seq_num, request.partition)
            failure = RpcFailure(RequestRefused(why).message)
            self._send(storage.FailureResponse(*context, failure))
        _required(self._intake.connection).close(why)

    def _answer(self, weight: int, answer: storage.Response) -> None:
        """Send the answer to a request other than a read, and let waiting requests begin."""
        self._send(answer)
        self._intake.note_answer(weight)

    def _answer_read(self, weight: int, answer: storage.Response) -> None:
        """Send the answer to a read, and let waiting requests begin.

        The records in the answer show how much memory later reads may need.
        """
        self._weights.learn(answer)
        self._send(answer)
        self._intake.note_read_answer(weight)

    def _answer_truncation(self, weight: int, answer: storage.Response) -> None:
        """Report the truncation, then answer the request for it."""
        if self._on_truncation and isinstance(answer, storage.MaxTransactionIdResponse):
            self._on_truncation(answer.partition, answer.transaction_id)
        self._answer(weight, answer)

    def _send(self, answer: storage.Response) -> None:
        connection = _required(self._intake.connection)
        connection.send(*storage.encode_parts(answer, connection.version))


class AdminConnection(FrameHandler):
    """A connection on the admin port."""

    def __init__(
        self,
        cluster: ClusterIdentity,
        handler: AdminHandler,
        metrics: Callable[[], str],
        pull: Callable[[admin.PullRecordsRequest, Reply], None],
        allowed: AllowedNames = EVERYONE,
    ) -> None:
        """Answer an administrator.

        ``handler`` handles all requests but three kinds: those for the cluster and for the metrics,
        which are answered here, and those to pull records, which ``pull`` begins. ``metrics``
        returns the metrics as JSON.
        """
        self._cluster = cluster
        self._handler = handler
        self._metrics = metrics
        self._pull = pull
        self._intake: RequestIntake[admin.Message] = RequestIntake(self._begin)
        self._allowed = allowed
        self._refusal: str | None = None
        """Why this peer is refused, None if it is allowed."""

    def ready(self, connection: FrameConnection) -> None:
        """Store the connection, whose handshake is complete.

        Before the peer has shown that it belongs to this cluster, it may send no large message.
        """
        self._intake.connection = connection
        connection.allow_large_requests(False)
        self._refusal = _check_peer(connection, "storage admin", self._allowed)

    def received(self, bodies: list[bytes]) -> None:
        """Begin the requests of one chunk."""
        version = _required(self._intake.connection).version
        if self._refusal is not None:
            self._refuse(decode_received(admin.decode, bodies[0], version), self._refusal)
            return
        requests = [decode_received(admin.decode, body, version) for body in bodies]
        self._intake.add(
            [WeightedRequest(request, admin_weight(request), is_read=False) for request in requests]
        )

    def lost(self, reason: str) -> None:
        """Drop the waiting requests. Requests under way continue; their answers are dropped."""
        self._intake.proceed()  # It drops the waiting requests, as in `ServerConnection.lost`.

    def writable(self) -> None:
        """Begin requests again: the peer has read its answers."""
        self._intake.proceed()

    def _begin(self, requests: list[admin.Message]) -> None:
        """Begin requests in their order; some of them are answered at once."""
        version = _required(self._intake.connection).version
        for request in requests:
            match request:
                case admin.AdminOpenRequest(seq, key, num_partitions):
                    refusal = self._cluster.refusal(key, num_partitions)
                    if refusal is None:
                        _required(self._intake.connection).allow_large_requests(True)
                        self._answer(admin.AdminSuccessResponse(seq))
                    else:
                        self._answer(admin.AdminFailureResponse(seq, refusal))
                case admin.MetricsRequest(seq):
                    self._answer(admin.MetricsResponse(seq, self._metrics()))
                case admin.PullRecordsRequest():
                    self._pull(request, self._audited(request))
                case _:
                    # The handler refuses a message that is not a request.
                    reply = self._audited(request)
                    self._handler.handle(cast(admin.Request, request), version, reply)

    def _refuse(self, request: admin.Message, why: str) -> None:
        """Close the connection. A peer that follows the protocol gets the reason as an answer."""
        connection = _required(self._intake.connection)
        if isinstance(request, admin.AdminOpenRequest):
            failure = RpcFailure(RequestRefused(why).message)
            answer = admin.AdminFailureResponse(request.seq_num, failure)
            connection.send(*admin.encode_parts(answer, connection.version))
        connection.close(why)

    def _audited(self, request: admin.Message) -> Callable[[admin.Response | None], None]:
        """Return the callback for the answer; for a change, it also logs the sender and outcome."""
        answered = partial(self._answer, weight=admin_weight(request))
        change = change_text(request)
        if change is None:
            return answered
        peer = _required(self._intake.connection).peer_identity

        def answer_and_log(answer: admin.Response | None) -> None:
            log.info("administrative change by %s: %s: %s", peer, change, outcome_text(answer))
            answered(answer)

        return answer_and_log

    def _answer(self, answer: admin.Response | None, weight: int = ADMIN_WEIGHT) -> None:
        """Send ``answer``; close the connection if it is None (see `AdminHandler`)."""
        connection = _required(self._intake.connection)
        if answer is None:
            if not connection.closed:
                reason = "version 0 of the protocol has no answer for this request"
                log.warning("closing storage admin connection from %s: %s", connection.peer, reason)
                connection.close(reason)
            return
        connection.send(*admin.encode_parts(answer, connection.version))
        self._intake.note_answer(weight)


def _check_peer(connection: FrameConnection, port: str, allowed: AllowedNames) -> str | None:
    """Return why the peer of ``connection`` may not use the port, None if it may.

    A refusal is logged, and the connection is closed after `_REFUSED_SECONDS`.
    """
    if allowed.names is None:
        return None
    why = allowed.refusal(connection.peer_certificate)
    if why is not None:
        log.warning("refused a %s connection from %s: %s", port, connection.peer, why)
        # The first request gets the reason as its answer. A peer that sends no request must not use
        # up the connections of the port.
        asyncio.get_running_loop().call_later(_REFUSED_SECONDS, connection.close, why)
    return why


def _required(connection: FrameConnection | None) -> FrameConnection:
    """Return the connection, which is known from `FrameHandler.ready` on."""
    assert connection is not None, "received before ready"
    return connection
