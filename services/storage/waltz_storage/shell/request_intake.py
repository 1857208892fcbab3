"""Decide which requests of a connection begin now, and which wait. Touches the connection.

A connection may send more requests than the storage can have in memory. So there is a bound for the
requests that have begun and are not answered. While too many requests wait, nothing is read from
the connection. `shell.connections` has one intake for each connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from waltz.net import FrameConnection

T = TypeVar("T")

_MOST_WEIGHT = 64 << 20
"""The bound of the weight of a connection's unanswered reads, in bytes.

While their weight is this or more, no further read begins. The other requests of the connection
have the same bound, and are counted separately."""
MOST_WAITING_READS = 4096
"""While more reads of records than this wait, nothing is read from their connection."""


class WeightedRequest(NamedTuple, Generic[T]):
    """A request, its weight in bytes (`core.engine.request_weights`), and whether it only reads."""

    request: T
    weight: int
    is_read: bool


class RequestIntake(Generic[T]):
    """Begins the requests of one connection in their order, and bounds how many are unanswered.

    The bound is on the sum of their weights, separately for reads and for other requests. If a read
    waits because of the bound, later requests other than reads overtake it, so that reads do not
    delay appends. No request overtakes a waiting request that is not a read. Nothing is read from
    the connection while a request that is not a read waits, while too many reads wait, or while the
    peer does not read its answers.
    """

    def __init__(self, begin: Callable[[list[T]], None]) -> None:
        self.connection: FrameConnection | None = None
        """The connection, None before its handshake is complete."""
        self._begin = begin
        self._waiting: deque[WeightedRequest[T]] = deque()
        """The requests that wait, without those in ``_reads``, in the order of their arrival."""
        self._reads: deque[WeightedRequest[T]] = deque()
        """The reads that wait only because of other reads, in the order of their arrival."""
        self._weight = 0
        """The weight of the unanswered requests other than reads."""
        self._read_weight = 0
        """The weight of the unanswered reads."""
        self._is_paused = False
        """Whether the reading of the connection is paused."""
        self._is_beginning = False
        """Whether `proceed` is beginning requests."""

    def add(self, requests: Iterable[WeightedRequest[T]]) -> None:
        """Take the requests of one received chunk."""
        self._waiting.extend(requests)
        self.proceed()

    def note_answer(self, weight: int) -> None:
        """Subtract the weight of an answered request other than a read."""
        self._weight -= weight
        if self._waiting:
            self.proceed()

    def note_read_answer(self, weight: int) -> None:
        """Subtract the weight of an answered read."""
        self._read_weight -= weight
        if self._waiting or self._reads:
            self.proceed()

    def proceed(self) -> None:
        """Begin the requests that the bounds allow; then pause or resume reading."""
        connection = self.connection
        if connection is None or connection.closed:
            self._waiting.clear()
            self._reads.clear()
            return
        if self._is_beginning:
            # The loop below has begun a request that was answered at once, which called this method
            # again. The loop then continues with the requests that may begin now.
            return
        self._is_beginning = True
        begun = self._take(connection)
        while begun:
            self._begin(begun)
            begun = self._take(connection)
        self._is_beginning = False
        too_many_reads = len(self._reads) > MOST_WAITING_READS
        must_pause = bool(self._waiting) or too_many_reads or connection.congested
        if must_pause and not self._is_paused:
            connection.pause_reading()
        elif self._is_paused and not must_pause:
            connection.resume_reading()
        self._is_paused = must_pause

    def _take(self, connection: FrameConnection) -> list[T]:
        """Return the requests that may begin now, in order; add their weights."""
        taken: list[T] = []
        while self._reads and self._read_weight < _MOST_WEIGHT and not connection.congested:
            read = self._reads.popleft()
            self._read_weight += read.weight
            taken.append(read.request)
        # If reads are left in ``_reads``, the bound for reads is reached. So no read below begins
        # either, and no read overtakes another one.
        while self._waiting and not connection.congested:
            first = self._waiting[0]
            if first.is_read:
                if self._read_weight < _MOST_WEIGHT:
                    self._read_weight += first.weight
                    taken.append(first.request)
                else:
                    self._reads.append(first)
            elif self._weight < _MOST_WEIGHT:
                self._weight += first.weight
                taken.append(first.request)
            else:
                break
            self._waiting.popleft()
        return taken
