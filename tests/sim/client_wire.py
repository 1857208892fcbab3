"""Check every message on the connections of clients, when it is sent and when it arrives."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.answer_checks import AnswerChecks
from tests.sim.checker import Checker
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from tests.sim.operation import Batch
from tests.sim.range_checks import RangeRequest
from tests.sim.run_failure import RunFailure
from waltz.client.core.codec import FEED_TRANSACTION_ID, FeedRun, parse
from waltz.protocol import CLIENT_SERVER
from waltz.protocol import client_server as cs
from waltz.protocol.batches import OutcomeKind
from waltz.protocol.client_numbers import ANSWERED_APPEND_TYPE, APPEND_BATCH_TYPE, APPEND_TYPE
from waltz.protocol.frames import frame_head
from waltz.testing.interceptors import DialedConnection
from waltz_server.core.reads.range_reads import NOT_HERE, NOT_OPEN

_RANGE_REFUSALS = {NOT_HERE: "not here", NOT_OPEN: "not open"}
"""The names of these errors in the counters."""

_CHECKED_REQUESTS = (APPEND_TYPE, ANSWERED_APPEND_TYPE, APPEND_BATCH_TYPE, 23, 25)
"""The types of the requests that are checked; the numbers are RecordsRequest and HeadersRequest."""


class CheckedClient:
    """What the checks know of one client.

    ``position`` returns the last transaction that it has read in order.
    """

    def __init__(
        self, name: str, checker: Checker, history: History, position: Callable[[], int]
    ) -> None:
        self.name = name
        self.checker = checker
        self.history = history
        self.position = position
        self.sent: set[bytes] = set()
        """The data of the appends that it has sent."""


class _FrameSplitter:
    """Splits chunks, which may end within a frame, into the bodies of messages."""

    def __init__(self) -> None:
        self.rest = b""
        """The part of a frame whose other part has not arrived."""

    def take_bodies(self, data: bytes) -> tuple[list[bytes], int]:
        """Return the bodies that are complete after the chunk ``data``, and their version."""
        data = self.rest + data
        bodies: list[bytes] = []
        position = version = 0
        while (head := frame_head(data, position)) is not None:
            magic, frame_version, start, end = head
            if magic == CLIENT_SERVER.magic and start < end:
                bodies.append(data[start:end])
                version = frame_version
            position = end
        self.rest = data[position:]
        return bodies, version


class ClientWire:
    """One connection of a client; implements `waltz.testing.interceptors.Interceptor`."""

    def __init__(
        self, client: CheckedClient, connection: DialedConnection, failure: RunFailure
    ) -> None:
        self.is_closed = connection.is_closed
        self._client = client
        self._failure = failure
        self._to_server, self._to_client = _FrameSplitter(), _FrameSplitter()
        self._ranges: dict[int, tuple[RangeRequest, int]] = {}
        """By sequence number, the open requests for ranges, and the client's position at each."""
        self._batches: dict[int, Batch] = {}
        """The unanswered batches, by the sequence number of their request."""
        self._answers = AnswerChecks(client.name, client.checker)
        self._last_fed = -1
        """The last transaction fed on this connection, or known from the mark of an answer."""

    @property
    def has_open_batch(self) -> bool:
        """Whether the connection is open, and an answer to a batch is missing."""
        return bool(self._batches) and not self.is_closed()

    @property
    def inside_frame(self) -> bool:
        """Whether a part of a frame has arrived whose other part is missing."""
        return bool(self._to_client.rest)

    def to_listener(self, data: bytes) -> bytes:
        """See Interceptor."""
        self._check(self._check_sent, data)
        return data

    def to_dialer(self, data: bytes) -> bytes:
        """See Interceptor."""
        self._check(self._check_arrived, data)
        return data

    def _check(self, check: Callable[[bytes], None], data: bytes) -> None:
        """Call ``check`` with a chunk, and stop the run if it raises an error."""
        try:
            check(data)
        except Exception as error:
            # The error alone would only close the connection.
            self._failure.stop_run(error)
            raise

    def _check_sent(self, data: bytes) -> None:
        bodies, version = self._to_server.take_bodies(data)
        for body in bodies:
            if body[0] in _CHECKED_REQUESTS:
                self._record_request(cs.decode(body, version))

    def _record_request(self, message: cs.Message) -> None:
        client = self._client
        client.history.detail(client.name, "sends {}", message)
        match message:
            case cs.AppendRequest(data=data):
                if data in client.sent:
                    # The client sends an append again only when it is certainly not in the log.
                    client.history.counters["client: absent"] += 1
                client.sent.add(data)
                if isinstance(message, cs.AnsweredAppendRequest):
                    self._answers.record_sent(message)
            case cs.AppendBatchRequest(req_id=req_id, appends=appends):
                batch = client.checker.ops[appends[0].data].batch
                assert batch is not None
                client.checker.batches.record_sent(batch, req_id.generation)
                self._batches[req_id.seq] = batch
            case cs.RecordsRequest() | cs.HeadersRequest():
                self._ranges[message.req_id.seq] = (message, client.position())

    def _check_arrived(self, data: bytes) -> None:
        client = self._client
        bodies, version = self._to_client.take_bodies(data)
        for item in parse(bodies, version):
            if isinstance(item, FeedRun):
                client.checker.check_fed(client.name, item.records)
                self._last_fed = max(self._last_fed, item.records[-1][FEED_TRANSACTION_ID])
            else:
                client.history.detail(client.name, "gets {}", item)
                self._check_answer(item)

    def _check_answer(self, message: cs.Message) -> None:
        client = self._client
        match message:
            case cs.MountResponse(state=cs.MountState.CLIENT_AHEAD):
                raise Violation(
                    Guarantee.DURABLE, f"{client.name} has seen more than its server's log holds"
                )
            case cs.FlushResponse(transaction_id=mark) if mark < self._last_fed:
                raise Violation(
                    Guarantee.DURABLE,
                    f"{client.name} has seen {self._last_fed}, and its server says after a flush "
                    f"that the log ends at {mark}",
                )
            case cs.AppendAnswers(high_water_mark=mark, answers=answers):
                self._answers.check_answers(message)
                self._last_fed = max(self._last_fed, mark)
                for answer in answers:
                    outcome = OutcomeKind(answer.kind).name.lower()
                    client.history.counters[f"client: append answered {outcome}"] += 1
            case cs.AppendBatchResponse(req_id=req_id, outcomes=outcomes):
                batch = self._batches.pop(req_id.seq, None)
                if batch is None:
                    raise Violation(
                        Guarantee.BATCH, f"{client.name} receives an answer to an unknown batch"
                    )
                client.checker.batches.check_outcomes(batch, outcomes)
            case cs.RecordsResponse() | cs.StoredRecordsResponse() | cs.HeadersResponse():
                requested = self._ranges.pop(message.req_id.seq, None)
                if requested is None:
                    raise Violation(
                        Guarantee.RANGE, f"{client.name} receives an answer without a request"
                    )
                request, position = requested
                client.checker.ranges.check_answer(client.name, request, position, message)
                if not isinstance(message, cs.StoredRecordsResponse) and message.error is not None:
                    why = _RANGE_REFUSALS.get(message.error, "no replica could deliver")
                    client.history.counters[f"client: range refused: {why}"] += 1
