"""Bound the memory of what the peers of a port do not read. Touches the event loop and the log.

What a connection queues for a peer that does not read is bounded, but a port may have thousands of
connections. Together they could use up the memory of the process, which would end the connections
of all peers. So the process closes some of the slow connections instead. Their peers connect again
and go on with what they have not received.

With TLS, bytes that are encrypted and not sent are not counted, because neither asyncio nor uvloop
tells how many they are. For them there is only the bound of each connection.
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
"""How often the unsent bytes are added up. A connection that has fallen behind for less than this
time is not closed: an answer to a fast reader is large, too, and is sent soon."""

LEAST_UNSENT_BYTES = 1 << 18
"""A connection with no more unsent bytes than this is not slow."""


class Sender(Protocol):
    """A connection, as far as its unsent bytes matter."""

    peer: str

    @property
    def unsent_bytes(self) -> int:
        """How many bytes wait to be written to the socket."""

    def abort(self, reason: str) -> None:
        """Close without sending what waits."""


class SlowReaders:
    """The connections of a port whose peers have not read what was sent to them.

    While their unsent bytes exceed ``max_unsent_bytes`` together, those with the most unsent bytes
    are closed: they are the furthest from the end of their answers. The one with the fewest stays,
    so that an answer of any size can be sent.
    """

    def __init__(self, max_unsent_bytes: int = MAX_UNSENT_BYTES) -> None:
        self.max_unsent_bytes = max_unsent_bytes
        self.closed = 0
        """The number of connections that were closed because of the bound."""
        self._since: dict[Sender, float] = {}
        """For each connection, the time on the event loop's clock since when it is slow.

        It is infinite if few bytes were unsent at the last check."""
        self._timer: asyncio.TimerHandle | None = None
        self._log_interval = LogInterval()

    def enter(self, sender: Sender) -> None:
        """Count the unsent bytes of ``sender`` from now on: they may be many."""
        loop = asyncio.get_running_loop()
        self._since.setdefault(sender, loop.time())
        if self._timer is None:
            self._timer = loop.call_later(CHECK_SECONDS, self._check)

    def leave(self, sender: Sender) -> None:
        """Count ``sender`` no longer: its peer has read enough, or it has ended."""
        self._since.pop(sender, None)
        if not self._since and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        unsent = {sender: sender.unsent_bytes for sender in self._since}
        for sender, size in unsent.items():
            if size <= LEAST_UNSENT_BYTES:
                # It is kept: uvloop does not call `pause_writing` again before all is sent, even if
                # the connection sends another long answer meanwhile.
                self._since[sender] = math.inf
            elif self._since[sender] == math.inf:
                self._since[sender] = loop.time()
        slow_before = loop.time() - CHECK_SECONDS
        slow = [sender for sender, since in self._since.items() if since <= slow_before]
        slow.sort(key=unsent.__getitem__, reverse=True)
        total = sum(size for size in unsent.values() if size > LEAST_UNSENT_BYTES)
        for sender in slow[:-1]:
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
