"""Bound the memory of what the peers of a port do not read. Touches the event loop and the log.

Each connection queues only a bounded number of bytes for a peer that does not read. But a port may
have thousands of connections. Together their queues could use up the memory of the process. The
process would then end, and with it the connections of all peers. So the process closes some of the
slow connections instead. Their peers connect again and go on with what they have not received.

With TLS, bytes that are encrypted but not yet sent are not counted, because neither asyncio nor
uvloop tells how many there are. Only the bound of each connection holds for such bytes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Protocol

from waltz.net.core.log_interval import LogInterval
from waltz.protocol.frames import MAX_FRAME_BYTES

log = logging.getLogger(__name__)

MAX_UNSENT_BYTES = 2 * MAX_FRAME_BYTES
"""The default bound of the unsent bytes: room for two of the longest messages."""

CHECK_SECONDS = 1.0
"""The interval at which the unsent bytes are added up. A connection that has been slow for less
than this time is not closed: a fast reader, too, may request a large answer, but reads it soon."""

LEAST_UNSENT_BYTES = 1 << 18
"""A connection with at most this number of unsent bytes is not slow.

It is the number at which a connection is no longer congested (`waltz.net.connection`)."""


class Sender(Protocol):
    """What `SlowReaders` uses of a connection."""

    peer: str

    @property
    def unsent_bytes(self) -> int:
        """How many bytes wait to be written to the socket."""

    def abort(self, reason: str) -> None:
        """Close without sending what waits."""


class SlowReaders:
    """The connections of a port whose peers have not read what was sent to them.

    A connection is *slow* while more than `LEAST_UNSENT_BYTES` of it are unsent. While the slow
    connections together exceed ``max_unsent_bytes``, the one with the most unsent bytes is closed:
    it is the furthest from the end of its answers. Of those that could be closed, the one with the
    fewest unsent bytes is kept. So even an answer longer than ``max_unsent_bytes`` can be sent.
    """

    def __init__(self, max_unsent_bytes: int = MAX_UNSENT_BYTES) -> None:
        self.max_unsent_bytes = max_unsent_bytes
        self.closed = 0
        """The number of connections that were closed because of the bound."""
        self._since: dict[Sender, float] = {}
        """For each connection, the time on the event loop's clock since when it is slow.

        The time is infinite if the connection was not slow at the last check."""
        self._timer: asyncio.TimerHandle | None = None
        self._log_interval = LogInterval()

    def enter(self, sender: Sender) -> None:
        """Count the unsent bytes of ``sender``, which is congested, from now on."""
        loop = asyncio.get_running_loop()
        self._since.setdefault(sender, loop.time())
        if self._timer is None:
            self._timer = loop.call_later(CHECK_SECONDS, self._check)

    def leave(self, sender: Sender) -> None:
        """Stop counting ``sender``: its peer has read enough, or the connection has ended."""
        self._since.pop(sender, None)
        if not self._since and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        """Close connections that have been slow for `CHECK_SECONDS`, as far as the bound needs."""
        self._timer = None
        loop = asyncio.get_running_loop()
        unsent = {sender: sender.unsent_bytes for sender in self._since}
        for sender, size in unsent.items():
            if size <= LEAST_UNSENT_BYTES:
                # The connection stays in `_since`, because it may become slow again without a call
                # of `enter`: uvloop does not call `pause_writing` again before all bytes are sent.
                self._since[sender] = math.inf
            elif self._since[sender] == math.inf:
                self._since[sender] = loop.time()
        slow_before = loop.time() - CHECK_SECONDS
        slow = [sender for sender, since in self._since.items() if since <= slow_before]
        slow.sort(key=unsent.__getitem__, reverse=True)
        total = sum(size for size in unsent.values() if size > LEAST_UNSENT_BYTES)
        for sender in slow[:-1]:  # The last one, with the fewest unsent bytes, is kept.
            if total <= self.max_unsent_bytes:
                break
            self._close(sender, unsent[sender], total)
            total -= unsent[sender]
        if self._since and self._timer is None:
            self._timer = loop.call_later(CHECK_SECONDS, self._check)

    def _close(self, sender: Sender, size: int, total: int) -> None:
        self.closed += 1
        if self._log_interval.is_due(asyncio.get_running_loop().time()):
            log.warning(
                "closing the connection with %s, which has not read %d bytes: the slow readers "
                "have %d bytes together, more than maxUnsentBytes, %d (%d closed so far); increase "
                "it if there is memory for them",
                sender.peer,
                size,
                total,
                self.max_unsent_bytes,
                self.closed,
            )
        sender.abort(f"{size} bytes were not read, and slow readers together exceed the bound")
