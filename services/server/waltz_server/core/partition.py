"""One partition on its server: appends, locks, mounts, feeds and reads. Pure.

Every input is a call of a method of `Partition` or of its `store`. An input adds effects to one
`Ready` (see `effects`): frames for clients, requests to storages, operations on the metadata. The
shell calls `take_ready` after each input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, assert_never

from waltz.metadata.core.formats import UNRESOLVED
from waltz.net.core.backoff import Backoff
from waltz.protocol import NO_TRANSACTION
from waltz.protocol import client_server as cs
from waltz_server.core.appends.append import HEADER_BYTES, Append
from waltz_server.core.appends.append_answers import OutcomeAnswers
from waltz_server.core.appends.append_batches import AppendBatch, absent_answer
from waltz_server.core.appends.append_queue import AppendQueue
from waltz_server.core.appends.mounted_clients import MountedClients
from waltz_server.core.effects import (
    DisconnectClient,
    Effect,
    RangeReadTick,
    Ready,
    RetryFeeds,
    SendToClient,
    Timer,
)
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.partition_counters import PartitionCounters
from waltz_server.core.peer import Peer
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.core.reads.data_reads import DataReads
from waltz_server.core.reads.feed_cache import FeedCache, feed_frames
from waltz_server.core.reads.feed_delivery import FeedDelivery
from waltz_server.core.reads.feed_schedule import Feed, FeedSchedule
from waltz_server.core.reads.range_reads import NOT_OPEN, RangeReads, refusal
from waltz_server.core.reads.read_purposes import (
    FeedHeaders,
    RangeRead,
    RangeRequest,
    TransactionData,
)
from waltz_server.core.reads.recent_records import RecentRecords
from waltz_server.core.replication.store_partition import StorePartition
from waltz_server.core.store_reports import (
    AppendsCommitted,
    AppendsFailed,
    AppendsUnresolved,
    ReadDone,
    SessionDelayed,
    SessionOpened,
    StoreReport,
    StoreReports,
)

_MAX_OPEN_APPENDS = 10_000  # Beyond one of these bounds, a partition is `overloaded`.
_MAX_OPEN_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """The settings of a partition; the byte sizes are its share of the memory of the server."""

    lock_table_size: int = 30_000
    min_fetch: int = 100
    """A FeedRequest is for the transactions up to the mark, or for this many if that is more."""
    realtime_threshold: int = 1000
    """A feed less than this many transactions behind the log's end is real-time."""
    feed_cache_bytes: int = 4 << 20
    recent_bytes: int = 4 << 20
    """How many bytes of the log's end are kept in memory, to answer reads of ranges."""
    replication: ReplicationLimits = field(default_factory=ReplicationLimits)
    retry: Backoff = field(default_factory=lambda: Backoff(0.1, 20.0))  # of sessions and replicas


class Partition:
    """The state machine of one partition."""

    def __init__(self, partition: int, settings: PartitionSettings, data_cache: DataCache) -> None:
        self.id = partition
        self.generation = -1
        self.counters = PartitionCounters()
        self._ready = ready = Ready()
        self._reports = reports = StoreReports()
        self.store = StorePartition(partition, settings.replication, settings.retry, ready, reports)
        """The store. The shell passes answers of storages and metadata to the store directly."""
        self._settings = settings
        self._queue = AppendQueue(settings.lock_table_size)
        self._clients = MountedClients()
        self._mark: int | None = None
        """The last committed id that this server knows, None before its first session opens."""
        self._confirmed = False
        """Whether a store session of this generation has opened: only then is the mark the log's
        end. Before that, an append of an earlier owner may still be committed, so mounts wait
        (planted bug "an unconfirmed mark answers mounts")."""
        replicas, headers = self.store.reads, FeedCache(settings.feed_cache_bytes)
        feeds = FeedSchedule(settings.realtime_threshold)
        recent = RecentRecords(settings.recent_bytes)
        self._data = DataReads(partition, data_cache, recent, replicas, ready)
        self._feeding = FeedDelivery(partition, feeds, headers, replicas, ready)
        self._ranges = RangeReads(headers, recent, replicas, ready)
        self._answers = OutcomeAnswers(ready)

    # ---- state

    @property
    def high_water_mark(self) -> int | None:
        """The last committed transaction id, None until a session of this generation has opened.

        A mark of an older generation may be too low: other servers may have committed more since.
        """
        return self._mark if self._confirmed else None

    @property
    def overloaded(self) -> bool:
        """Whether too many appends are open: then the shell must not read clients that append."""
        queue = self._queue
        return queue.open_count > _MAX_OPEN_APPENDS or queue.open_bytes > _MAX_OPEN_BYTES

    @property
    def open_appends(self) -> int:
        """Number of appends accepted and not yet refused, resolved or dropped."""
        return self._queue.open_count

    @property
    def data_cache_misses(self) -> int:
        """Number of times that a request for transaction data waited for a read of a replica."""
        return self._data.data_cache_misses

    @property
    def feeds(self) -> FeedSchedule:
        """The open feeds, for metrics."""
        return self._feeding.feeds

    @property
    def feed_cache_misses(self) -> int:
        """Number of times that a feed needed a read of a replica."""
        return self._feeding.cache_misses

    def take_ready(self) -> list[Effect]:
        """Act on the reports of the store; return the effects to perform now, in order."""
        while reports := self._reports.take():
            for report in reports:
                self._act_on(report)
        return self._ready.take()

    # ---- ownership

    def set_generation(self, generation: int) -> None:
        """Own the partition in ``generation``; ignore a generation that is not newer."""
        if generation > self.generation:
            self.generation = generation
            self._confirmed = False
            self._ranges.begin_generation()
            self._queue.drop_ungranted()
            self._answers.dropped(self._queue.take_dropped())
            self.store.set_generation(generation)

    def set_replicas(self, replicas: Iterable[str]) -> None:
        """Replicate to these storages from the next session on."""
        self.store.set_replicas(replicas)

    def close(self) -> None:
        """Release the partition: end feeds, refuse reads, and leave open appends unresolved."""
        self.store.close()
        self._answers.close()
        self._data.close()
        self._ranges.close()
        for peer in self.feeds.peers:
            self.feeds.close(peer)

    # ---- clients

    def mount(self, peer: Peer, request: cs.MountRequest) -> None:
        """Register a client's newest connection; answer once no earlier append is open."""
        if request.req_id.generation > self.generation:
            # The client knows of a change of owner that has not reached this server yet.
            self._send(peer, cs.MountResponse(request.req_id, cs.MountState.NOT_READY))
            return
        barrier = self._clients.register(peer, request)
        if barrier is not None:
            self._queue.add_barrier(barrier)
            self._release_barriers()

    def append(self, peer: Peer, appends: list[Append]) -> None:
        """Accept the single appends of one received chunk of bytes.

        An append of another generation, or of a connection that is not its client's newest, is
        dropped without an answer. Its client learns by a flush that the append is not in the log.
        """
        generation = self.generation
        senders = {append.client_id for append in appends}
        current = {client for client in senders if self._clients.note_append(peer, client)}
        accepted = [a for a in appends if a.client_id in current and a.generation == generation]
        self.counters.accepted += len(accepted)
        self._queue.add(peer, accepted)
        self._decide_appends()

    def append_batch(self, batch: AppendBatch) -> None:
        """Accept a batch: each append has an outcome of its own, and all are in one answer."""
        req_id = batch.req_id
        is_current = self._clients.note_append(batch.peer, req_id.client_id)
        if req_id.generation != self.generation or not is_current:
            self._ready.add(absent_answer(batch.peer, req_id, len(batch.appends)))
            return
        self.counters.accepted += len(batch.appends)
        self._answers.open(batch)
        self._queue.add_batch(batch)
        self._decide_appends()

    def feed(self, peer: Peer, request: cs.FeedRequest) -> None:
        """Continue the client's feed after the mark in ``request``, on its newest connection."""
        if not self._clients.is_current(peer, request.req_id.client_id):
            return
        mark, position = self._mark, request.client_high_water_mark
        # Without a mark, no mount was answered: no client may request a feed yet.
        if mark is None or position > mark or position < NO_TRANSACTION:
            reason = f"feed request from {position}, the log ends at {mark}"
            self._ready.add(DisconnectClient(peer, reason))
            return
        remaining = max(mark - position, self._settings.min_fetch)
        self._feeding.open(Feed(peer, position, remaining, cs.FeedSuspended(request.req_id)))

    def flush(self, peer: Peer, request: cs.FlushRequest) -> None:
        """Answer once every append received before ``request`` is refused, resolved or dropped."""
        if request.req_id.generation > self.generation:
            return  # As in `mount`; but the protocol has no answer that refuses a flush.
        barrier = self._clients.flush(peer, request)
        if barrier is not None:
            self._queue.add_barrier(barrier)
            self._release_barriers()

    def read_mark(self, peer: Peer, request: cs.HighWaterMarkRequest) -> None:
        """Answer with the high-water mark, or that it is not known yet."""
        # As in `mount`, a client that knows of a newer owner gets no mark of this server.
        mark = self.high_water_mark if request.req_id.generation <= self.generation else None
        answer = cs.HighWaterMarkResponse(request.req_id, UNRESOLVED if mark is None else mark)
        self._send(peer, answer)

    def read_data(self, peer: Peer, request: cs.TransactionDataRequest) -> None:
        """Answer with a transaction's data, from the cache or from a replica."""
        self._data.read_data(peer, request, self._mark)  # Ids up to an old mark are committed, too.

    def read_range(self, peer: Peer, request: RangeRequest) -> None:
        """Answer with records or headers as soon as there are any."""
        if request.req_id.generation > self.generation:
            # As in `mount`, the client knows of a newer owner, which may have extended the log.
            self._ready.add(refusal(peer, request, NOT_OPEN, UNRESOLVED))
        else:
            self._ranges.read_range(peer, request)

    def writable(self, peer: Peer) -> None:
        """Send again to a connection that was congested."""
        self._feeding.writable(peer)
        self._data.writable(peer)
        self._ranges.writable(peer)

    def lost(self, peer: Peer) -> None:
        """Remove all that belongs to a closed connection, except its appends, which stay open."""
        self._clients.lost(peer)
        self._data.lost(peer)
        self._ranges.lost(peer)
        self.feeds.close(peer)
        self._queue.forget(peer)

    def turn(self) -> None:
        """Give one catch-up feed its turn, and continue to answer reads of data and of ranges."""
        self._feeding.turn()
        self._data.resume()
        self._ranges.resume()

    def timer_expired(self, timer: Timer) -> None:
        """Act on a timer that `StartTimer` started."""
        match timer:
            case RetryFeeds():
                self._feeding.resume()
            case RangeReadTick():
                self._ranges.tick()
            case _:
                self.store.timer_expired(timer)

    # ---- reports of the store

    def _act_on(self, report: StoreReport) -> None:
        match report:
            case AppendsCommitted():
                self._committed(report)
            case AppendsFailed(appends):
                assert self._mark is not None, "appends are sent after a session has opened"
                self._answers.absent(appends, self._mark)
                self._resolved(appends, None)
            case AppendsUnresolved(appends):
                self._answers.unresolved(appends)
                self._resolved(appends, None)
            case SessionOpened(mark):
                self._opened(mark)
            case SessionDelayed():
                self._data.session_delayed()
                self._ranges.session_delayed()
            case ReadDone():
                self._read_done(report)
            case _:
                assert_never(report)

    def _opened(self, mark: int) -> None:
        """Continue the waiting appends, feeds and reads: a session has opened at ``mark``."""
        assert self._mark is None or mark >= self._mark, "a committed id is never given up"
        if mark != self._mark:
            # Another server has written: own in-doubt appends were reported before, and have raised
            # `_mark`. The lock table lacks the other server's locks, and would grant stale
            # decisions: planted bug "commits of another owner leave no mark in the lock table".
            self._queue.take_every_lock(mark)
        self._mark = mark
        self._confirmed = True
        self._feeding.opened(mark)
        self._queue.open(mark)  # The first session makes the lock table; then appends are decided.
        self._decide_appends()
        self._feeding.serve()
        self._ranges.opened(mark)

    def _committed(self, committed: AppendsCommitted) -> None:
        """Feed and answer the committed appends; then `_resolved` may answer later flushes."""
        first_id, appends = committed.first_id, committed.appends
        assert self._mark is not None
        assert first_id == self._mark + 1, "committed ids have no gap"
        assert committed.records.count == len(appends)
        frames = feed_frames(first_id, [(a.req_id, a.record_tail[:HEADER_BYTES]) for a in appends])
        self._data.committed(committed.records)
        self.counters.committed += len(appends)
        self._mark = first_id + len(appends) - 1
        self._feeding.committed(self._mark, first_id, frames)
        self._answers.committed(appends, first_id, self._mark)
        self._resolved(appends, first_id)
        self._feeding.serve({first_id: frames})
        self._ranges.committed(self._mark, first_id, committed.records)

    def _resolved(self, appends: list[Append], first_id: int | None) -> None:
        self._queue.resolved(appends, first_id)
        self._decide_appends()

    def _decide_appends(self) -> None:
        """Decide the waiting appends: send the granted, answer the refused, and answer barriers.

        Until a session of this generation opens, all appends wait: appends that an earlier owner
        has sent may still be committed, and take locks.
        """
        mark = self.high_water_mark
        if mark is None:
            return
        granted, refused = self._queue.decide(mark)
        self.counters.refused += len(refused)
        for refused_append in refused:
            self._answers.refused(refused_append, mark)
        if granted:
            self.store.append(granted)
        self._release_barriers()

    def _release_barriers(self) -> None:
        """Answer the flushes and mounts before which no append is open any more."""
        if (mark := self.high_water_mark) is None:
            return
        for barrier in self._queue.take_passed_barriers():
            is_current = self._clients.barrier_passed(barrier)
            if isinstance(barrier.request, cs.FlushRequest):
                for req_id in barrier.req_ids():
                    self._send(barrier.peer, cs.FlushResponse(req_id, mark))
            elif is_current:
                self._mounted(barrier.peer, barrier.request, mark)

    def _mounted(self, peer: Peer, request: cs.MountRequest, mark: int) -> None:
        """Answer a mount. If the client wants a feed, first send the transactions it lacks."""
        position = request.client_high_water_mark
        mounted = cs.MountResponse(request.req_id, cs.MountState.READY)
        if position > mark:
            self._send(peer, cs.MountResponse(request.req_id, cs.MountState.CLIENT_AHEAD))
        elif position < NO_TRANSACTION:
            self._ready.add(DisconnectClient(peer, f"mount from {position}: no such transaction"))
        elif position == mark or not request.fed:
            self.feeds.close(peer)
            self._send(peer, mounted)
        else:
            self._feeding.open(Feed(peer, position, mark - position, mounted))

    def _read_done(self, done: ReadDone) -> None:
        match done.purpose:
            case RangeRead() as read:
                self._ranges.read_done(read, done)
            case FeedHeaders():
                self._feeding.read_done(done)
            case TransactionData() as data:
                self._data.read_done(data, done)
            case _:
                assert_never(done.purpose)

    def _send(self, peer: Peer, message: Any) -> None:
        self._ready.add(SendToClient(peer, cs.encode(message, peer.version)))
