"""Watch the connections of clients: every message that a client gets is checked when it arrives."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.alarm import Alarm
from tests.sim.checker import Checker
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from tests.sim.operation import Batch
from tests.sim.range_checks import RangeRequest
from waltz.client.core.codec import FeedRun, parse
from waltz.protocol import CLIENT_SERVER
from waltz.protocol import client_server as cs
from waltz.protocol.client_numbers import APPEND_BATCH_TYPE, APPEND_TYPE
from waltz.protocol.frames import frame_head
from waltz.testing.interceptors import DialedConnection
from waltz_server.core.reads.range_reads import NOT_HERE, NOT_OPEN

_REASONS = {NOT_HERE: "not here", NOT_OPEN: "not open"}
_RANGE_TYPES = (23, 25)


class ClientSight:
    """What the checks know of one client. ``position`` is the end of what it has read."""

    def __init__(
        self, name: str, checker: Checker, history: History, position: Callable[[], int]
    ) -> None:
        self.name = name
        self.checker = checker
        self.history = history
        self.position = position
        self.sent: set[bytes] = set()
        """The data of the appends that it has sent."""


class _Frames:
    """Splits chunks, which may end within a frame, into the bodies of messages."""

    def __init__(self) -> None:
        self.rest = b""

    def take(self, data: bytes) -> tuple[list[bytes], int]:
        """Return the bodies that are complete now, and their protocol version."""
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

    def __init__(self, sight: ClientSight, connection: DialedConnection, alarm: Alarm) -> None:
        self.is_closed = connection.is_closed
        self._sight = sight
        self._alarm = alarm
        self._to_server, self._to_client = _Frames(), _Frames()
        self._ranges: dict[int, tuple[RangeRequest, int]] = {}
        """The open requests for ranges, and the client's position at each."""
        self._batches: dict[int, Batch] = {}
        """The unanswered batches, by the number of their first request."""
        self._seen = -1
        """The last transaction fed on this connection."""

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
        self._guard(self._check_sent, data)
        return data

    def to_dialer(self, data: bytes) -> bytes:
        """See Interceptor."""
        self._guard(self._check_arrived, data)
        return data

    def _guard(self, check: Callable[[bytes], None], data: bytes) -> None:
        try:
            check(data)
        except Exception as error:
            # The connection would only be closed because of the error: the run ends at once.
            self._alarm.ring(error)
            raise

    def _check_sent(self, data: bytes) -> None:
        bodies, version = self._to_server.take(data)
        for body in bodies:
            if body[0] == APPEND_TYPE or body[0] == APPEND_BATCH_TYPE or body[0] in _RANGE_TYPES:
                self._sent(cs.decode(body, version))

    def _sent(self, message: cs.Message) -> None:
        sight = self._sight
        sight.history.detail(sight.name, "sends {}", message)
        match message:
            case cs.AppendRequest(data=data):
                if data in sight.sent:
                    # The client sends an append again only when it is certainly not in the log.
                    sight.history.counters["client: absent"] += 1
                sight.sent.add(data)
            case cs.AppendBatchRequest(req_id=req_id, appends=appends):
                batch = sight.checker.ops[appends[0].data].batch
                assert batch is not None
                sight.checker.batches.sent(batch, req_id.generation)
                self._batches[req_id.seq] = batch
            case cs.RecordsRequest() | cs.HeadersRequest():
                self._ranges[message.req_id.seq] = (message, sight.position())

    def _check_arrived(self, data: bytes) -> None:
        sight = self._sight
        bodies, version = self._to_client.take(data)
        for item in parse(bodies, version):
            if isinstance(item, FeedRun):
                sight.checker.fed(sight.name, item.records)
                self._seen = max(self._seen, item.records[-1][4])
            else:
                sight.history.detail(sight.name, "gets {}", item)
                self._got(item)

    def _got(self, message: cs.Message) -> None:
        sight = self._sight
        match message:
            case cs.MountResponse(state=cs.MountState.CLIENT_AHEAD):
                raise Violation(
                    Guarantee.DURABLE, f"{sight.name} has seen more than its server's log holds"
                )
            case cs.FlushResponse(transaction_id=mark) if mark < self._seen:
                raise Violation(
                    Guarantee.DURABLE,
                    f"{sight.name} has seen {self._seen}, and its server says after a flush that "
                    f"the log ends at {mark}",
                )
            case cs.AppendBatchResponse(req_id=req_id, outcomes=outcomes):
                batch = self._batches.pop(req_id.seq, None)
                if batch is None:
                    raise Violation(
                        Guarantee.BATCH, f"{sight.name} receives an answer to an unknown batch"
                    )
                sight.checker.batches.check_outcomes(batch, outcomes)
            case cs.RecordsResponse() | cs.HeadersResponse():
                wanted = self._ranges.pop(message.req_id.seq, None)
                if wanted is None:
                    raise Violation(
                        Guarantee.RANGE, f"{sight.name} receives an answer without a request"
                    )
                sight.checker.ranges.check_answer(sight.name, *wanted, message)
                if message.error is not None:
                    why = _REASONS.get(message.error, "no replica could deliver")
                    sight.history.counters[f"client: range refused: {why}"] += 1
