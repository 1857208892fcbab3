"""The state of a mounted partition in a mock client."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from waltz.mock.faults import Draws
from waltz.protocol.records import ReqId


@dataclass(slots=True)
class MockPartition:
    """A partition that was mounted at the mark ``mounted_at``, and the appends to it."""

    mounted_at: int
    draws: Draws
    room: asyncio.Semaphore
    next: ReqId
    in_flight: int = 0

    def next_req_id(self) -> ReqId:
        """Return a request id that no earlier append has."""
        used = self.next
        self.next = replace(used, seq=used.seq + 1)
        return used
