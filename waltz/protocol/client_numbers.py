"""Type bytes and versions of the client protocol. Pure.

The table in `client_server` uses them; so does code that encodes or decodes frequent messages
without the table, or that checks the peer's version. Source: spec/wire.md sections 4 and 9.
"""

from __future__ import annotations

APPEND_TYPE = 2
FEED_DATA_TYPE = 4
TRANSACTION_DATA_REQUEST_TYPE = 6
HEADERS_RESPONSE_TYPE = 26
APPEND_BATCH_TYPE = 27

READ_LOCKS_SINCE = 1
"""The first version whose appends have read locks."""

APPEND_LOCKS_SINCE = 2
"""The first version whose appends have append locks."""

CLIENT_AHEAD_SINCE = 3
"""The first version with the answer that the client's mark is beyond the log's end."""

RANGES_SINCE = 5
"""The first version with ranges of records and of headers."""

APPEND_BATCH_SINCE = 5
"""The first version with batches of appends."""

ALWAYS_ANSWERED_SINCE = 5
"""The first version that also answers requests about a partition of another server."""
