"""Check the answers to reads of ranges, at clients and at servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.sim.guarantees import Guarantee, Violation
from tests.sim.loop_clock import LoopClock
from tests.support.stored_records import wire_form
from waltz.client.core.codec import FeedRecord
from waltz.client.core.stored_ranges import verified
from waltz.protocol import Record, RecordHeader
from waltz.protocol.client_server import (
    HeadersRequest,
    HeadersResponse,
    RecordsRequest,
    RecordsResponse,
    StoredRecordsResponse,
)
from waltz_server.core.peer import Peer

SLACK_SECONDS = 0.3
"""How much longer than requested a read may wait: it is answered at one of the server's ticks."""

RangeRequest = RecordsRequest | HeadersRequest
RangeResponse = RecordsResponse | StoredRecordsResponse | HeadersResponse


class LogChecks(Protocol):
    """The checks of single transactions: the part of `Checker` that `RangeChecks` uses."""

    mark: int

    def check_fed(self, who: str, records: list[FeedRecord]) -> None:
        """Check transactions that ``who`` received."""

    def check_data(self, who: str, transaction_id: int, data: bytes) -> None:
        """Check a transaction's data that ``who`` read."""


class RangeChecks:
    """Checks the ranges that clients of a partition receive."""

    def __init__(self, log_checks: LogChecks, counters: Counter[str]) -> None:
        self._log_checks = log_checks
        self._counters = counters

    def check_answer(
        self, who: str, request: RangeRequest, position: int, response: RangeResponse
    ) -> None:
        """Check an answer to ``who``, which had read up to ``position`` at its request."""
        if _error(response) is not None:
            return
        first_id, mark = request.first_id, response.high_water_mark
        _check_bounds(who, request, response)
        if isinstance(response, StoredRecordsResponse):
            partition = request.req_id.partition
            records = verified(response.records, partition, first_id, response.records.count)
            if records is None:
                # A disk has damaged them. The client notices it, and requests them again.
                self._counters["client: wrong records of a disk"] += 1
                return
            self._counters["client: right records of a disk"] += 1
            response = RecordsResponse(response.req_id, None, mark, wire_form(records))
        items = _items(response)
        ids = [item.transaction_id for item in items]
        if ids != list(range(first_id, first_id + len(ids))):
            raise Violation(
                Guarantee.RANGE, f"{who} requests {first_id} and receives {_brief(ids)}"
            )
        committed = self._log_checks.mark
        if (ids and ids[-1] > mark) or mark > committed:
            raise Violation(
                Guarantee.RANGE,
                f"{who} gets {_brief(ids)} and the mark {mark}; {committed} is committed",
            )
        if not ids and first_id <= mark:
            raise Violation(
                Guarantee.RANGE, f"{who} receives nothing from {first_id} on, up to {mark}"
            )
        if not ids and mark < position:
            raise Violation(
                Guarantee.RANGE,
                f"{who} has read {position} and receives the answer that the log ends at {mark}",
            )
        self._log_checks.check_fed(who, [_as_fed(item) for item in items])
        for item in items:
            if isinstance(item, Record):
                self._log_checks.check_data(who, item.transaction_id, item.data)


@dataclass(frozen=True, slots=True)
class _OpenRead:
    """An unanswered read of a range."""

    request: RangeRequest
    waits: bool
    """Whether it may wait, because it requested transactions beyond the log's end."""


class OpenReads:
    """The unanswered reads of ranges of one partition on one server.

    ``mark`` returns the server's mark, None while it has none.
    """

    def __init__(
        self, name: str, clock: LoopClock, counters: Counter[str], mark: Callable[[], int | None]
    ) -> None:
        self._name = name
        self._mark = mark
        self._clock = clock
        self._counters = counters
        self._open: dict[tuple[Peer, int], _OpenRead] = {}
        """The reads by connection and sequence number."""
        self._killed = False
        """Whether the process was killed: what it still does is not seen by anyone."""

    @property
    def due(self) -> bool:
        """Whether a read requests transactions that are in the log."""
        mark = self._mark()
        return any(mark is None or each.request.first_id <= mark for each in self._open.values())

    def record_request(self, peer: Peer, request: RangeRequest) -> None:
        """Record a request that has arrived."""
        if self._killed:
            return
        mark = self._mark()
        key = (peer, request.req_id.seq)
        wait_ms = request.wait_ms if isinstance(request, RecordsRequest) else 0
        waits = mark is not None and request.first_id > mark and wait_ms > 0
        self._open[key] = read = _OpenRead(request, waits)
        if waits:
            self._clock.after(wait_ms / 1000 + SLACK_SECONDS, self._check_time, key, read)

    def check_answer(self, peer: Peer, response: RangeResponse, *, session_opened: bool) -> None:
        """Check an answer that is about to be sent.

        ``session_opened`` tells whether a store session has opened in the server's generation:
        before that, the server does not know where the log ends.
        """
        if self._killed:
            return
        read = self._open.pop((peer, response.req_id.seq), None)
        if read is None:
            raise Violation(Guarantee.RANGE, f"{self._name} answers a request that is not open")
        empty = not isinstance(response, StoredRecordsResponse) and not _items(response)
        error = _error(response)
        if empty and error is None and not session_opened:
            raise Violation(
                Guarantee.RANGE,
                f"{self._name} says that the log ends at {response.high_water_mark}, and has no "
                "session of this generation",
            )
        if read.waits:
            end = "was refused" if error else "timed out" if empty else "was answered"
            self._counters[f"server: a read waited and {end}"] += 1

    def lost(self, peer: Peer) -> None:
        """Drop the reads of a lost connection."""
        self._open = {key: each for key, each in self._open.items() if key[0] is not peer}

    def check_all_answered(self) -> None:
        """Check that no read is open, because this server has released the partition."""
        if self._open:
            raise Violation(
                Guarantee.RANGE,
                f"{self._name} releases the partition with {len(self._open)} reads open",
            )

    def killed(self) -> None:
        """Drop all reads, and check nothing any more: the process was killed.

        Its program runs on until its tasks have ended, and may answer reads, but its connections
        are cut.
        """
        self._killed = True
        self._open.clear()

    def _check_time(self, key: tuple[Peer, int], read: _OpenRead) -> None:
        first_id, mark = read.request.first_id, self._mark()
        if self._open.get(key) is read and mark is not None and first_id > mark:
            raise Violation(
                Guarantee.RANGE, f"{self._name} lets a read of {first_id} wait for too long"
            )


def _error(response: RangeResponse) -> str | None:
    return None if isinstance(response, StoredRecordsResponse) else response.error


def _items(response: RecordsResponse | HeadersResponse) -> list[Record] | list[RecordHeader]:
    if isinstance(response, RecordsResponse):
        return list(response.records)
    return list(response.headers)


def _check_bounds(who: str, request: RangeRequest, response: RangeResponse) -> None:
    """Check that an answer has the type of its request, and keeps the bounds in the request."""
    if isinstance(request, RecordsRequest) and isinstance(response, RecordsResponse):
        count, size = response.records.count, len(response.records.wire)
        # The first record is sent whatever its size.
        in_bounds = count <= 1 or (count <= request.max_records and size <= request.max_bytes)
    elif isinstance(request, RecordsRequest) and isinstance(response, StoredRecordsResponse):
        count, size = response.records.count, len(response.records.raw)
        last_id = request.first_id + count - 1
        in_bounds = (
            request.stored
            and last_id <= response.high_water_mark
            and (count == 1 or (1 < count <= request.max_records and size <= request.max_bytes))
        )
    elif isinstance(request, HeadersRequest) and isinstance(response, HeadersResponse):
        count = len(response.headers)
        in_bounds = count <= request.max_headers
    else:
        raise Violation(Guarantee.RANGE, f"{who} is answered by a {type(response).__name__}")
    if not in_bounds:
        raise Violation(Guarantee.RANGE, f"{who} receives {count} of {request}")


def _as_fed(item: Record | RecordHeader) -> FeedRecord:
    r = item.req_id
    return (r.client_id, r.generation, r.partition, r.seq, item.transaction_id, item.header)


def _brief(ids: list[int]) -> str:
    return f"{ids[0]}..{ids[-1]} ({len(ids)})" if ids else "nothing"
