"""Type bytes and versions of the protocol between client and server. Pure.

The table in `client_server` uses these numbers. Other code uses them to encode or decode frequent
messages without the table, or to check the peer's version. Source: spec/wire.md sections 4, 9,
12 and 13.
"""

from __future__ import annotations

APPEND_TYPE = 2
FEED_DATA_TYPE = 4
TRANSACTION_DATA_REQUEST_TYPE = 6
HEADERS_RESPONSE_TYPE = 26
APPEND_BATCH_TYPE = 27
REQUEST_DENIED_TYPE = 29
ANSWERED_APPEND_TYPE = 30
APPEND_ANSWERS_TYPE = 31
STORED_RECORDS_TYPE = 32

READ_LOCKS_SINCE = 1
"""The first version whose appends have read locks."""

APPEND_LOCKS_SINCE = 2
"""The first version whose appends have append locks (see spec/wire.md section 4)."""

CLIENT_AHEAD_SINCE = 3
"""The first version that answers a mount with CLIENT_AHEAD."""

RANGES_SINCE = 5
"""The first version that can read a range of records or of headers in one request."""

APPEND_BATCH_SINCE = 5
"""The first version with batches of appends."""

MARK_WITHOUT_OWNERSHIP_SINCE = 5
"""The first version whose servers answer every HighWaterMarkRequest.

A server of an older version answers only for partitions that it owns."""

DENIALS_SINCE = 5
"""The first version that has RequestDenied."""

APPEND_ANSWERS_SINCE = 6
"""The first version that has AppendAnswers. A client that uses them needs a feed only to find out
whether an append whose answer was lost is in the log."""

STORED_RANGES_SINCE = 7
"""The first version that can answer a range of records in their form on disk."""
