"""Check the answers to reads of ranges, at clients and at servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.sim.guarantees import Guarantee, Violation
from tests.sim.loop_clock import LoopClock
from waltz.client.core.codec import FeedRecord
from waltz.protocol import Record, RecordHeader
from waltz.protocol.client_server import (
    HeadersRequest,
    HeadersResponse,
    RecordsRequest,
    RecordsResponse,
)
from waltz_server.core.peer import Peer

SLACK_SECONDS = 0.3
"""How much longer than requested a read may wait, including the interval of ticks."""

RangeRequest = RecordsRequest | HeadersRequest
RangeResponse = RecordsResponse | HeadersResponse


class Log(Protocol):
    """The observed log of a partition."""

    mark: int

    def fed(self, who: str, records: list[FeedRecord]) -> None:
        """Check transactions that ``who`` received."""

    def data_read(self, who: str, transaction_id: int, data: bytes) -> None:
        """Check a transaction's data that ``who`` read."""


class RangeChecks:
    """Compares the answers that a client receives with the log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def check_answer(
        self, who: str, request: RangeRequest, position: int, response: RangeResponse
    ) -> None:
        """Check an answer to ``who``, which had read up to ``position`` at its request."""
        if response.error is not None:
            return
        first_id, mark = request.first_id, response.high_water_mark
        items = _items(response)
        ids = [item.transaction_id for item in items]
        if ids != list(range(first_id, first_id + len(ids))):
            raise Violation(
                Guarantee.RANGE, f"{who} requests {first_id} and receives {_brief(ids)}"
            )
        if (ids and ids[-1] > mark) or mark > self._log.mark:
            raise Violation(
                Guarantee.RANGE,
                f"{who} gets {_brief(ids)} and the mark {mark}; {self._log.mark} is committed",
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
        _check_bounds(who, request, response)
        self._log.fed(who, [_as_fed(item) for item in items])
        for item in items:
            if isinstance(item, Record):
                self._log.data_read(who, item.transaction_id, item.data)


@dataclass(frozen=True, slots=True)
class _Open:
    request: RangeRequest
    awaited: bool
    """Whether it requested transactions beyond the log's end."""


class OpenReads:
    """The unanswered reads of ranges of one server."""

    def __init__(
        self, name: str, clock: LoopClock, counters: Counter[str], mark: Callable[[], int | None]
    ) -> None:
        """``mark`` returns the server's mark, None while it has none."""
        self._name = name
        self._mark = mark
        self._clock = clock
        self._counters = counters
        self._open: dict[tuple[Peer, int], _Open] = {}

    @property
    def due(self) -> bool:
        """Whether a read requests transactions that are in the log."""
        mark = self._mark()
        return any(mark is None or each.request.first_id <= mark for each in self._open.values())

    def record_request(self, peer: Peer, request: RangeRequest) -> None:
        """Record a request that has arrived."""
        mark = self._mark()
        key = (peer, request.req_id.seq)
        wait_ms = request.wait_ms if isinstance(request, RecordsRequest) else 0
        awaited = mark is not None and request.first_id > mark and wait_ms > 0
        self._open[key] = opened = _Open(request, awaited)
        if awaited:
            self._clock.after(wait_ms / 1000 + SLACK_SECONDS, self._check_time, key, opened)

    def answered(self, peer: Peer, response: RangeResponse, *, confirmed: bool) -> None:
        """Check an answer; ``confirmed``: a session has opened in the server's generation."""
        opened = self._open.pop((peer, response.req_id.seq), None)
        if opened is None:
            raise Violation(Guarantee.RANGE, f"{self._name} answers a request that is not open")
        empty = not _items(response)
        if empty and response.error is None and not confirmed:
            raise Violation(
                Guarantee.RANGE,
                f"{self._name} says that the log ends at {response.high_water_mark}, and has no "
                "session of this generation",
            )
        if opened.awaited:
            end = "was refused" if response.error else "timed out" if empty else "was answered"
            self._counters[f"server: a read waited and {end}"] += 1

    def lost(self, peer: Peer) -> None:
        """Drop the reads of a lost connection."""
        self._open = {key: each for key, each in self._open.items() if key[0] is not peer}

    def ended(self) -> None:
        """Check that all reads are answered when the partition leaves this server."""
        if self._open:
            raise Violation(
                Guarantee.RANGE,
                f"{self._name} releases the partition with {len(self._open)} reads open",
            )

    def clear(self) -> None:
        """Drop all reads: the process has ended."""
        self._open.clear()

    def _check_time(self, key: tuple[Peer, int], opened: _Open) -> None:
        first_id, mark = opened.request.first_id, self._mark()
        if self._open.get(key) is opened and mark is not None and first_id > mark:
            raise Violation(
                Guarantee.RANGE, f"{self._name} lets a read of {first_id} wait for too long"
            )


def _items(response: RangeResponse) -> list[Record] | list[RecordHeader]:
    if isinstance(response, RecordsResponse):
        return list(response.records)
    return list(response.headers)


def _check_bounds(who: str, request: RangeRequest, response: RangeResponse) -> None:
    if isinstance(request, RecordsRequest) and isinstance(response, RecordsResponse):
        count, size = response.records.count, len(response.records.wire)
        kept = count <= 1 or (count <= request.max_records and size <= request.max_bytes)
    elif isinstance(request, HeadersRequest) and isinstance(response, HeadersResponse):
        count, kept = len(response.headers), len(response.headers) <= request.max_headers
    else:
        raise Violation(Guarantee.RANGE, f"{who} is answered by a {type(response).__name__}")
    if not kept:
        raise Violation(Guarantee.RANGE, f"{who} receives {count} of {request}")


def _as_fed(item: Record | RecordHeader) -> FeedRecord:
    r = item.req_id
    return (r.client_id, r.generation, r.partition, r.seq, item.transaction_id, item.header)


def _brief(ids: list[int]) -> str:
    return f"{ids[0]}..{ids[-1]} ({len(ids)})" if ids else "nothing"
