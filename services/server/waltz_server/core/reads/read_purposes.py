"""The purposes for which the parts of a partition read from replicas. Pure.

Each read of a replica has a purpose: `ReadPurpose`. The result of the read
(`store_reports.ReadDone`) contains the purpose. By it, `Partition` finds the part that wants the
result.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.protocol import client_server as cs
from waltz_server.core.peer import Peer
from waltz_server.core.reads.recent_records import Bounds

MAX_ANSWER_BYTES = 4 << 20
"""Maximum size of the records in the answer to a range read, unless its first record is larger.

In one turn, a connection gets answers of about this size together.
"""
MAX_ANSWER_RECORDS = 1 << 16
"""Maximum number of records in the answer to a range read."""
MAX_ANSWER_HEADERS = 1 << 12
"""Maximum number of headers in the answer to a range read."""

RangeRequest = cs.RecordsRequest | cs.HeadersRequest


@dataclass(frozen=True, slots=True)
class FeedHeaders:
    """The headers that the feed cache lacks. At most one such read is under way in a partition."""


@dataclass(frozen=True, slots=True)
class TransactionData:
    """The data of single transactions (`data_reads`). The read begins with ``first_id``."""

    first_id: int


@dataclass(eq=False, slots=True)
class RangeRead:
    """One client's request for a range of the log, which has not been answered (`range_reads`)."""

    peer: Peer
    request: RangeRequest
    ticks: int = 0
    """For how many more ticks (`range_reads.TICK_SECONDS`) the request waits for its first
    transaction to be committed."""

    @property
    def bounds(self) -> Bounds:
        """How many records or headers, and how many bytes, the answer may have."""
        request = self.request
        if isinstance(request, cs.HeadersRequest):
            return Bounds(_clamped(request.max_headers, MAX_ANSWER_HEADERS), MAX_ANSWER_BYTES)
        return Bounds(
            _clamped(request.max_records, MAX_ANSWER_RECORDS),
            _clamped(request.max_bytes, MAX_ANSWER_BYTES),
        )


ReadPurpose = FeedHeaders | TransactionData | RangeRead


def _clamped(number: int, most: int) -> int:
    """Return ``number``, at most ``most`` and at least 1, so that every reader makes progress."""
    return max(1, min(number, most))
