"""Read requests to the server of one partition: data, headers, records, the high-water mark. Pure.

Read requests need no mount, and answers may arrive in any order. A request is sent again until it
is answered: on the next connection, after an error, and after a timeout (spec/behaviour.md section
8). The timeout is necessary because a server of Waltz 0.13.2 that does not own the partition does
not answer a request for the high-water mark.

When the timeout passes, the answer need not be lost. On a slow connection the answer comes late,
because the answers to all earlier requests precede it. So each repetition gets a new request id,
but the request also accepts the answers to its earlier ids on the same connection. And the timeouts
grow until they are as long as answers take. Otherwise each answer could come too late, and the slow
connection would carry mainly answers to repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from waltz.client.core.effects import Effects
from waltz.client.core.mount import AHEAD_CONFIRMATIONS, NOT_READY_BACKOFF_SECONDS, RequestIds
from waltz.client.core.read_values import (
    Answer,
    AnswerKind,
    ReadData,
    ReadHeaders,
    ReadMark,
    ReadRecords,
    ReadRequest,
)
from waltz.client.core.stored_ranges import verified
from waltz.net.core.backoff import Backoff
from waltz.protocol.client_numbers import RANGES_SINCE, STORED_RANGES_SINCE
from waltz.protocol.client_server import (
    HeadersRequest,
    HeadersResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    Message,
    RecordsRequest,
    RecordsResponse,
    RequestDenied,
    StoredRecordsResponse,
    TransactionDataRequest,
    TransactionDataResponse,
)
from waltz.protocol.records import NO_TRANSACTION, RecordBatch, ReqId, checksum

MARK_TIMEOUTS_SECONDS = Backoff(1.0, 8.0)
"""How long the answer with the high-water mark may take before the request is sent again.

Each repetition on a connection doubles the timeout, from the first to the second of these values.
The longest timeout is short, because the answers are small, and one may never come (see above).
"""

DATA_TIMEOUTS_SECONDS = Backoff(10.0, 640.0)
"""How long any other answer may take before the request is sent again.

Each repetition on a connection doubles the timeout, from the first to the second of these values.
For records, the wait of the server for the first record is added. The longest timeout must exceed
the time in which a slow connection carries all open answers, each of up to 64 MiB. Otherwise
requests would be repeated faster than they are answered.
"""

_MAX_IDS = 32
"""The most ids of an open request whose answers are accepted: the last ones."""

ERROR_BACKOFF = Backoff(0.01, 5.0)
"""The delays in seconds between an error answer and the next attempt."""

CHECKSUM_ATTEMPTS = 5
"""The number of wrong checksums after which a read fails."""


@dataclass(slots=True)
class _OpenRequest:
    """A read request without a result."""

    token: object
    request: ReadRequest
    seqs: tuple[int, ...] = ()
    """The sequence numbers of the request ids whose answers are accepted, the last id last. All
    belong to the present connection. Empty before the first id, and after `_forget_ids`."""
    sent: bool = False
    """Whether the request was sent with its last id. False during a pause, and if there was no
    connection when the request got this id."""
    timeout_doublings: int = 0
    """How often the timeout of the answer is doubled."""
    timeout_seconds: float = 0.0
    """How long the request waits for its answer, or for the end of its pause."""
    waiting_since: float | None = None
    """When the wait for the answer, or the pause, began: the time of the first
    `PartitionRequests.tick` afterwards, None before this tick."""
    errors: int = 0
    """The number of error answers."""
    mismatches: int = 0
    """The number of answers with wrong checksums."""
    num_ahead: int = 0
    """The number of consecutive answers that the log ends before the range."""
    trusts_disks: bool = True
    """Whether the answer may have records in their form on disk, which the server does not verify.
    False after an error answer, and after wrong records in this form. Then the storage and the
    server verify the records, report damage, and read another replica."""


class PartitionRequests:
    """The open read requests to one partition.

    The caller passes a token, any object, with each request. ``effects.results`` gets one `Answer`
    with this token.
    """

    def __init__(self, ids: RequestIds) -> None:
        self.effects: Effects[Answer] = Effects()
        self._ids = ids
        self._generation: int | None = None  # None: there is no connection.
        self._version = 0  # The protocol version of the last connection.
        self.wrong_stored_ranges = 0
        """The number of answers in the form on disk that had wrong records."""
        self._open: dict[int, _OpenRequest] = {}
        """The open requests, by the sequence number of each of their ids."""
        self._timeout_doublings = 0
        """How often the timeout of a new request is doubled from the beginning: 0 on a new
        connection, more after an answer has shown that a repetition was needless."""

    @property
    def idle(self) -> bool:
        """Whether no request is open."""
        return not self._open

    def attach(self, generation: int, version: int) -> None:
        """Send all open requests on a new connection to the partition's server."""
        self._generation = generation
        self._version = version
        self._timeout_doublings = 0
        for open_request in self._take_all():
            open_request.num_ahead = 0
            self._send(open_request)

    def detach(self) -> None:
        """Stop sending: the connection is lost, or another server owns the partition now.

        The requests stay open.
        """
        self._generation = None

    def add(self, token: object, request: ReadRequest) -> None:
        """Open a request, and send it if there is a connection.

        The transaction of a `ReadData` must be in the log. Once a server of Waltz 0.13.2 has not
        found one, it answers "not found" for its id forever (spec/behaviour.md section 7).
        """
        self._send(_OpenRequest(token, request))

    def cancel(self, token: object) -> None:
        """Drop the request of ``token``, if it is open."""
        for open_request in self._open.values():
            if open_request.token is token:
                self._forget_ids(open_request)
                return

    def received(self, message: Message) -> None:
        """Handle an answer. Ignore the answer to a request that is not open."""
        seq = message.req_id.seq
        open_request = self._open.get(seq)
        if open_request is None:
            return
        if seq != open_request.seqs[-1]:
            # This answers an earlier id: the answer was slow, not lost. Repeat new requests later.
            self._timeout_doublings = max(self._timeout_doublings, open_request.timeout_doublings)
        # The request ends here, unless a method that is called below sends it again or pauses it.
        self._forget_ids(open_request)
        match open_request.request, message:
            case ReadData(), TransactionDataResponse():
                self._data_received(open_request, message)
            case ReadMark(), HighWaterMarkResponse(transaction_id=mark):
                if mark < NO_TRANSACTION:
                    # The server has not opened the partition yet, or does not own it.
                    self._back_off(open_request)
                else:
                    self.effects.results.append(
                        Answer(open_request.token, AnswerKind.MARK, mark=mark)
                    )
            case ReadRecords(), RecordsResponse(error=error, high_water_mark=mark, records=records):
                if self._accept_range(open_request, error, mark, records.count):
                    self._records_received(open_request, mark, records)
            case ReadRecords(), StoredRecordsResponse() if open_request.trusts_disks:
                # This answer has a record: errors and empty ranges come as RecordsResponse.
                self._stored_received(open_request, message)
            case ReadHeaders(), HeadersResponse(error=error, high_water_mark=mark, headers=headers):
                if self._accept_range(open_request, error, mark, len(headers)):
                    self.effects.results.append(
                        Answer(open_request.token, AnswerKind.HEADERS, mark=mark, headers=headers)
                    )
            case _, RequestDenied(error=error):
                denial = error or "no reason given"
                self.effects.results.append(
                    Answer(open_request.token, AnswerKind.DENIED, denial=denial)
                )
            case _:
                # An answer of another type to this request id is an error of the server.
                self._back_off(open_request)

    def tick(self, now: float) -> None:
        """Send again the requests whose timeout or pause has passed at ``now``."""
        if self._generation is None:
            return
        due = []
        for open_request in self._open_requests():
            if open_request.waiting_since is None:
                open_request.waiting_since = now
            if now - open_request.waiting_since >= open_request.timeout_seconds:
                due.append(open_request)
        # `_send` takes a request that has ids for a repetition, and doubles its timeout. A request
        # that was paused is no repetition, so it forgets the id that it got for the pause.
        for open_request in due:
            if not open_request.sent:
                self._forget_ids(open_request)
            self._send(open_request)

    def close(self) -> list[object]:
        """Drop all open requests and return their tokens."""
        return [open_request.token for open_request in self._take_all()]

    def _data_received(self, open_request: _OpenRequest, message: TransactionDataResponse) -> None:
        """End a request for data if its checksum matches; otherwise keep it open or fail it."""
        if message.data is None:
            # The server could not read the data now, or does not own the partition.
            self._back_off(open_request)
        elif checksum(message.data) == message.checksum:
            self.effects.results.append(
                Answer(open_request.token, AnswerKind.DATA, data=message.data)
            )
        else:
            self._handle_mismatch(open_request, message.transaction_id)

    def _records_received(
        self, open_request: _OpenRequest, mark: int, records: RecordBatch
    ) -> None:
        """End a request for records if all checksums match; otherwise keep it open or fail it."""
        assert isinstance(open_request.request, ReadRecords)
        mismatch = records.mismatch(open_request.request.first_id)
        if mismatch is None:
            self.effects.results.append(
                Answer(open_request.token, AnswerKind.RECORDS, mark=mark, records=records)
            )
        else:
            self._handle_mismatch(open_request, mismatch)

    def _stored_received(self, open_request: _OpenRequest, message: StoredRecordsResponse) -> None:
        """Verify records in their form on disk; if any is wrong, request them in wire form."""
        request = open_request.request
        assert isinstance(request, ReadRecords)
        mark = message.high_water_mark
        # No more records than were requested, and none after ``mark``: it would not be committed.
        max_records = min(request.max_records, mark + 1 - request.first_id)
        records = verified(message.records, self._ids.partition, request.first_id, max_records)
        if records is not None:
            self.effects.results.append(
                Answer(open_request.token, AnswerKind.RECORDS, mark=mark, records=records)
            )
        else:
            self.wrong_stored_ranges += 1
            open_request.trusts_disks = False
            open_request.num_ahead = 0
            self._send(open_request)

    def _handle_mismatch(self, open_request: _OpenRequest, transaction_id: int) -> None:
        """Send a request again after a wrong checksum, or end it as CORRUPT after too many."""
        open_request.num_ahead = 0
        open_request.mismatches += 1
        if open_request.mismatches >= CHECKSUM_ATTEMPTS:
            self.effects.results.append(
                Answer(open_request.token, AnswerKind.CORRUPT, corrupt_id=transaction_id)
            )
        else:
            self._send(open_request)

    def _accept_range(
        self, open_request: _OpenRequest, error: str | None, mark: int, count: int
    ) -> bool:
        """Return whether an answer has a valid range. If not, pause the request or end it as AHEAD.

        A server that has lost the partition to another server, and has not read the new assignment
        yet, answers with an old end of the log. So the log counts as too short only after several
        answers in a row (`AHEAD_CONFIRMATIONS`). In the pauses the server can read the assignment.
        """
        assert isinstance(open_request.request, ReadRecords | ReadHeaders)
        if error is not None:
            self._back_off(open_request)
            return False
        if count == 0 and mark < open_request.request.first_id - 1:
            open_request.num_ahead += 1
            if open_request.num_ahead < AHEAD_CONFIRMATIONS:
                self._pause(open_request, NOT_READY_BACKOFF_SECONDS)
            else:
                self.effects.results.append(Answer(open_request.token, AnswerKind.AHEAD, mark=mark))
            return False
        return True

    def _send(self, open_request: _OpenRequest) -> None:
        """Send a request with a new id. If the server does not support it, end it as UNSUPPORTED.

        Without a connection, the request only gets the id, and stays open. A request that still has
        ids is a repetition on the same connection: it keeps them, and its timeout is doubled.
        """
        open_request.waiting_since = None
        open_request.sent = self._generation is not None
        if (
            open_request.sent
            and isinstance(open_request.request, ReadRecords | ReadHeaders)
            and self._version < RANGES_SINCE
        ):
            self.effects.results.append(
                Answer(open_request.token, AnswerKind.UNSUPPORTED, version=self._version)
            )
            return
        if open_request.seqs:
            open_request.timeout_doublings += 1
        else:
            open_request.timeout_doublings = self._timeout_doublings
        open_request.timeout_seconds = _timeout_seconds(
            open_request.request, open_request.timeout_doublings
        )
        req_id = self._register(open_request)
        if open_request.sent:
            may_be_stored = open_request.trusts_disks and self._version >= STORED_RANGES_SINCE
            self.effects.messages.append(_message(req_id, open_request.request, may_be_stored))

    def _back_off(self, open_request: _OpenRequest) -> None:
        """Keep the request open after an error answer. `tick` sends it after a backoff."""
        self._pause(open_request, ERROR_BACKOFF.delay(open_request.errors))
        open_request.errors += 1
        open_request.num_ahead = 0
        open_request.trusts_disks = False

    def _pause(self, open_request: _OpenRequest, seconds: float) -> None:
        """Keep the request open without sending it. `tick` sends it after ``seconds``."""
        self._register(open_request)  # Only with an id is the request in ``_open``.
        open_request.sent = False
        open_request.waiting_since = None
        open_request.timeout_seconds = seconds

    def _register(self, open_request: _OpenRequest) -> ReqId:
        """Give a request a new id. If it has `_MAX_IDS` already, forget the oldest."""
        if len(open_request.seqs) == _MAX_IDS:
            del self._open[open_request.seqs[0]]
            open_request.seqs = open_request.seqs[1:]
        req_id = self._ids.next(self._generation or 0)  # 0: without a connection, it is not sent.
        assert req_id.seq not in self._open, "request ids are unique among open requests"
        self._open[req_id.seq] = open_request
        open_request.seqs += (req_id.seq,)
        return req_id

    def _forget_ids(self, open_request: _OpenRequest) -> None:
        """Ignore the answers to all ids of a request. Until `_register`, it is not open."""
        for seq in open_request.seqs:
            del self._open[seq]
        open_request.seqs = ()

    def _open_requests(self) -> list[_OpenRequest]:
        """Return each open request once."""
        return [each for seq, each in self._open.items() if seq == each.seqs[-1]]

    def _take_all(self) -> list[_OpenRequest]:
        """Remove and return all open requests."""
        open_requests = self._open_requests()
        for open_request in open_requests:
            self._forget_ids(open_request)
        return open_requests


def _timeout_seconds(request: ReadRequest, doublings: int) -> float:
    """Return how long the answer may take if the timeout is doubled ``doublings`` times."""
    match request:
        case ReadMark():
            return MARK_TIMEOUTS_SECONDS.delay(doublings)
        case ReadRecords(wait_ms=wait_ms):
            return DATA_TIMEOUTS_SECONDS.delay(doublings) + wait_ms / 1000
        case ReadData() | ReadHeaders():
            return DATA_TIMEOUTS_SECONDS.delay(doublings)


def _message(req_id: ReqId, request: ReadRequest, may_be_stored: bool) -> Message:
    """Return the message that sends a request with the id ``req_id``.

    Records in their form on disk are requested if ``may_be_stored`` and the request allow them.
    """
    match request:
        case ReadData(transaction_id):
            return TransactionDataRequest(req_id, transaction_id)
        case ReadMark():
            return HighWaterMarkRequest(req_id)
        case ReadRecords(first_id, max_records, max_bytes, wait_ms, stored):
            stored = stored and may_be_stored
            return RecordsRequest(req_id, first_id, max_records, max_bytes, wait_ms, stored)
        case ReadHeaders(first_id, max_headers):
            return HeadersRequest(req_id, first_id, max_headers)
        case _:
            assert_never(request)
