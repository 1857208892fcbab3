"""The purposes of reads of replicas. A read has one, and its result contains it.

Values only.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.protocol import client_server as cs
from waltz_server.core.peer import Peer
from waltz_server.core.reads.recent_records import Bounds

MAX_ANSWER_BYTES = 4 << 20
MAX_ANSWER_RECORDS = 1 << 16
MAX_ANSWER_HEADERS = 1 << 12

RangeRequest = cs.RecordsRequest | cs.HeadersRequest


@dataclass(frozen=True, slots=True)
class FeedHeaders:
    """Headers that feeds lack. At most one such read is under way in a partition."""


@dataclass(frozen=True, slots=True)
class TransactionData:
    """Data of single transactions: the read begins with ``first_id``."""

    first_id: int


@dataclass(eq=False, slots=True)
class RangeRead:
    """One client's request for a range, which has not been answered."""

    peer: Peer
    request: RangeRequest
    ticks: int = 0
    """The number of ticks until its wait ends."""

    @property
    def bounds(self) -> Bounds:
        """The bounds of its answer."""
        request = self.request
        if isinstance(request, cs.HeadersRequest):
            return Bounds(_clamped(request.max_headers, MAX_ANSWER_HEADERS), MAX_ANSWER_BYTES)
        return Bounds(
            _clamped(request.max_records, MAX_ANSWER_RECORDS),
            _clamped(request.max_bytes, MAX_ANSWER_BYTES),
        )


ReadPurpose = FeedHeaders | TransactionData | RangeRead


def _clamped(number: int, most: int) -> int:
    """At least one record, because a reader must make progress whatever its bounds are."""
    return max(1, min(number, most))
