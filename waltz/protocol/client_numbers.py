"""Numbers of the client protocol that stand for themselves: types of messages, and versions. Pure.

The table in `client_server` is made with them. Whoever reads or writes frequent messages without
it, or asks a peer only for what it knows, has them from here. Source: spec/wire.md
sections 4 and 9.
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
"""The first version in which a mount is told that the client has seen more than the log holds."""

RANGES_SINCE = 5
"""The first version with ranges of records and of headers."""

APPEND_BATCH_SINCE = 5
"""The first version with batches of appends."""

ALWAYS_ANSWERED_SINCE = 5
"""The first version in which a question about a partition that is elsewhere is answered, too."""
