"""Read the next range of a connection from a replica before the client requests it. Pure.

A client that reads a log requests one range after the other. Without this module, client, server
and storage would work in turns: the storage would read a range while the client waits, and the
client would verify it while the storage waits.

Only ranges in *disk form* are read ahead: records as they lie on the disk of a replica, which the
client verifies (`range_reads`). If an answer in disk form continues the previous range of the
connection, a read of the next range begins, with the bounds of the answered request. If the client
then requests exactly this next range, the result is the answer. Any other request for records of
the partition drops the result. A pause of `TICKS_HELD` ticks also drops it: the memory of a server
must not fill with the ranges of readers that pause. A connection has at most one range that is read
ahead, in all its partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from waltz.protocol import client_server as cs
from waltz_server.core.peer import Peer
from waltz_server.core.reads.read_purposes import RangeRead, RangeRequest
from waltz_server.core.replication.replica_reads import ReplicaReads
from waltz_server.core.store_reports import ReadDone

TICKS_HELD = 20
"""How many ticks (`range_reads.TICK_SECONDS`) a result waits for its request."""


@dataclass(eq=False, slots=True)
class RangeAhead(RangeRead):
    """A range that is read ahead. ``request`` is the request that the client should send next."""

    waiting: RangeRead | None = None
    """The client's request, if it has arrived before the result."""
    ticks_left: int = TICKS_HELD
    """For how many more ticks the result is held."""


class RangesAhead:
    """The ranges of one partition that are read ahead."""

    def __init__(self, replicas: ReplicaReads) -> None:
        self._replicas = replicas
        self._next_ids: dict[Peer, int] = {}
        """For each connection, the transaction after its last range in disk form."""
        self._ahead: dict[Peer, RangeAhead] = {}
        """The range that is read ahead for each connection."""
        self._results: dict[Peer, ReadDone] = {}
        """For each connection, the result of its read ahead, once it has arrived. It is no field of
        the `RangeAhead`, because the result refers to that object (``purpose``): such a cycle would
        keep the records in memory until the garbage collector runs, which is seldom
        (`runtime.memory`)."""
        self._reading: dict[RangeAhead, None] = {}
        """The reads under way, also those whose result is not wanted any more: an ordered set."""

    def begin(self, read: RangeRead, count: int, mark: int, most_reads: int) -> None:
        """Begin to read the range after ``read``, if the client will probably request it next.

        ``read`` is answered with ``count`` records in disk form, and the log ends at ``mark``. A
        read begins only if ``read`` continues the connection's previous range, and if the limits of
        the connection allow it. ``most_reads`` is the limit of its reads under way.
        """
        peer, request = read.peer, read.request
        assert isinstance(request, cs.RecordsRequest)
        next_id = request.first_id + count
        continues = self._next_ids.get(peer) == request.first_id
        self._next_ids[peer] = next_id
        if not continues or next_id > mark or peer.has_range_ahead:
            return
        if peer.congested or peer.range_reads >= most_reads:
            return
        ahead = RangeAhead(peer, replace(request, first_id=next_id))
        self._ahead[peer] = ahead
        self._reading[ahead] = None
        peer.has_range_ahead = True
        peer.range_reads += 1
        bounds = ahead.bounds
        next_count = min(bounds.max_records, mark + 1 - next_id)
        self._replicas.read_records(next_id, next_count, bounds.max_bytes, ahead, stored=True)

    def expects(self, read: RangeRead) -> bool:
        """Return whether the range of ``read`` is read ahead, and no earlier request waits for it.

        If ``read`` is another request for records, drop the range that is read ahead.
        """
        ahead = self._ahead.get(read.peer)
        if ahead is None or ahead.waiting is not None:
            return False
        if not isinstance(read.request, cs.RecordsRequest):
            return False
        if not _is_expected(read.request, ahead.request):
            self._drop(read.peer)
            return False
        return True

    def take(self, read: RangeRead) -> ReadDone | None:
        """Return the result of the read ahead that `expects` has found for ``read``.

        Return None if the read is under way. Then `done` will return ``read``.
        """
        ahead, result = self._ahead[read.peer], self._results.get(read.peer)
        if result is None:
            ahead.waiting = read
        else:
            self._drop(read.peer)
        return result

    def done(self, ahead: RangeAhead, result: ReadDone) -> RangeRead | None:
        """Note the result of a read; return the request that waits for it, None if none does."""
        if ahead not in self._reading:  # The connection was lost, or `stop` was called.
            return None
        del self._reading[ahead]
        ahead.peer.range_reads -= 1
        if self._ahead.get(ahead.peer) is ahead:
            # The result is held for a later request, unless one waits already or it is an error.
            if ahead.waiting is None and result.error is None:
                self._results[ahead.peer] = result
            else:
                self._drop(ahead.peer)
        return ahead.waiting

    @property
    def holds_results(self) -> bool:
        """Whether a result waits for its request: then the caller must call `tick`."""
        return bool(self._results)

    def tick(self) -> None:
        """Count one tick, and drop the results that have waited too long."""
        for peer in list(self._results):
            ahead = self._ahead[peer]
            ahead.ticks_left -= 1
            if ahead.ticks_left <= 0:
                self._drop(peer)

    def lost(self, peer: Peer) -> None:
        """Drop the range of a closed connection; nothing uses the counts in its `Peer` any more."""
        self._next_ids.pop(peer, None)
        self._ahead.pop(peer, None)
        self._results.pop(peer, None)
        self._reading = {ahead: None for ahead in self._reading if ahead.peer is not peer}

    def stop(self) -> list[RangeRead]:
        """Drop all ranges; return the requests that wait for one."""
        waiting = [a.waiting for a in self._ahead.values() if a.waiting is not None]
        for ahead in self._reading:
            ahead.peer.range_reads -= 1
        self._reading.clear()
        for peer in list(self._ahead):
            self._drop(peer)
        self._next_ids.clear()
        return waiting

    def _drop(self, peer: Peer) -> None:
        del self._ahead[peer]
        self._results.pop(peer, None)
        peer.has_range_ahead = False


def _is_expected(request: cs.RecordsRequest, expected: RangeRequest) -> bool:
    """Return whether ``request`` equals ``expected``, apart from request id and waiting time."""
    assert isinstance(expected, cs.RecordsRequest)
    return request == replace(expected, req_id=request.req_id, wait_ms=request.wait_ms)
