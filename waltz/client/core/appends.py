"""The appends of one client to one partition, and how the outcome of each is determined. Pure.

A server writes the appends of one client to the log in the order in which the client sent them. An
append is

* in the log if the feed shows its request id,
* not in the log if the feed shows the request id of a later append before its own, or if a flush
  that was sent after the append is answered and the feed has reached the mark of this answer
  (spec/behaviour.md section 8).

Besides these signals, only a refusal or an AppendBatchResponse determines an outcome. A lost
connection and elapsed time leave an append in doubt. An append is never sent twice with the same
request id. It is sent again, with a new request id, only after `Outcome.ABSENT`. Otherwise a
transaction could be in the log twice (tests/unit/client/test_client_appends.py, tests/sim).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from waltz.client.core.append_values import Append, Outcome, SentAppend, Settled
from waltz.client.core.codec import FeedRecord
from waltz.client.core.effects import Effects
from waltz.client.core.mount import Mount, Phase, RequestIds
from waltz.protocol.batches import BatchedAppend, OutcomeKind
from waltz.protocol.client_numbers import APPEND_BATCH_SINCE, APPEND_LOCKS_SINCE, READ_LOCKS_SINCE
from waltz.protocol.client_server import (
    AppendBatchRequest,
    AppendBatchResponse,
    AppendRequest,
    FeedRequest,
    FeedSuspended,
    FlushRequest,
    FlushResponse,
    HighWaterMarkResponse,
    LockFailure,
    Message,
    MountResponse,
)
from waltz.protocol.records import ReqId, wrapped


class _Waiting(NamedTuple):
    """One append, or one batch, that waits until the partition is mounted."""

    tokens: Sequence[object]
    appends: Sequence[Append]
    batch: bool


class PartitionAppends:
    """One client's appends to one partition, and the feed that shows their outcomes.

    The caller passes a token, any object, with each append. ``effects.results`` gets a `Settled`
    with this token. After `withdraw` or `give_up` of an append, a second `Settled` may follow. The
    caller must ignore it.
    """

    def __init__(self, ids: RequestIds, mark: int, long_wait_seconds: float) -> None:
        self.effects: Effects[Settled] = Effects()
        self.mount = Mount(ids, mark, self.effects)
        self._ids = ids
        self._long_wait_seconds = long_wait_seconds
        self._waiting: deque[_Waiting] = deque()
        self._sent: dict[int, SentAppend] = {}
        """The appends in doubt, by sequence number."""
        self._order: deque[int] = deque()
        """The sequence numbers of sent appends, oldest first. Some may have an outcome by now."""
        self._refused: list[tuple[int, SentAppend]] = []
        """Refused appends, each with the transaction that took the lock.

        A refused append gets its outcome when the feed has reached this transaction.
        """
        self._open_flushes: dict[int, int] = {}
        """The flushes without an answer: sequence number, and place in the order of sending."""
        self._answered_flushes: list[tuple[int, int]] = []
        """The answered flushes: mark of the answer, and place in the order of sending."""
        self._oldest_since: tuple[int, float] | None = None
        """The ``order`` of the oldest append in doubt, and since when it has been the oldest."""

    @property
    def mark(self) -> int:
        """The id of the last transaction that was received in order; see `Mount.mark`."""
        return self.mount.mark

    @property
    def idle(self) -> bool:
        """Whether `tick` has nothing to do: no append waits or is in doubt, and no mount is due."""
        return not (self._sent or self._waiting) and self.mount.phase in (
            Phase.MOUNTED,
            Phase.DETACHED,
        )

    def attach(self, generation: int, connection_seq: int, version: int) -> None:
        """Mount the partition on a new connection, or in a new generation; see `Mount.attach`."""
        self._open_flushes.clear()
        self.mount.attach(generation, connection_seq, version)

    def detach(self) -> None:
        """Stop using the connection: it is lost, or another server owns the partition now.

        Appends that were sent stay in doubt, because the server may have written them. A flush that
        was not answered is dropped. After the next mount a new flush is sent.
        """
        self._open_flushes.clear()
        self.mount.detach()

    def append(self, token: object, append: Append) -> None:
        """Send an append, now or as soon as the partition is mounted."""
        if self.mount.phase is Phase.MOUNTED:
            self._send(token, append)
        else:
            self._wait(_Waiting((token,), (append,), False))

    def append_batch(self, tokens: Sequence[object], appends: Sequence[Append]) -> None:
        """Send appends in one message, now or as soon as the partition is mounted.

        Each append has its own outcome. All must have the same ``mark``. The locks of one append do
        not refuse the others.
        """
        if self.mount.phase is Phase.MOUNTED:
            self._send_batch(tokens, appends)
        else:
            self._wait(_Waiting(tokens, appends, True))

    def withdraw(self, tokens: Collection[object]) -> list[Settled]:
        """Return the outcomes that are known now, for a caller that does not wait any longer.

        The appends of ``tokens`` that were not sent are dropped and get UNSENT. Refused appends get
        LOCK_FAILED, even if the transaction that took the lock has not been received yet. Appends
        that the server has answered as committed get COMMITTED, even if the feed has not shown them
        yet. All others get UNCERTAIN.
        """
        wanted = set(tokens)
        unsent = [each for each in self._waiting if not wanted.isdisjoint(each.tokens)]
        for each in unsent:
            self._waiting.remove(each)
        known = [Settled(token, Outcome.UNSENT) for each in unsent for token in each.tokens]
        known += (_lock_failed(t, sent) for t, sent in self._refused if sent.token in wanted)
        known += (
            sent.outcome_without_feed() for sent in self._sent.values() if sent.token in wanted
        )
        return known

    def give_up(self, req_id: ReqId) -> None:
        """End the append ``req_id`` for its caller with UNCERTAIN, if the append was sent.

        The append itself stays open: its commit still settles the appends that were sent before it.
        """
        sent = self._sent.get(req_id.seq)
        if sent is not None and sent.req_id == req_id:
            self.effects.results.append(Settled(sent.token, Outcome.UNCERTAIN, req_id=req_id))

    def flush(self) -> None:
        """Request the outcomes of all appends that are in doubt."""
        if self._sent and self.mount.phase is Phase.MOUNTED:
            self._request_flush()

    def fed(self, records: list[FeedRecord]) -> None:
        """Handle transactions of the feed. Ignore a transaction whose id is not the next one.

        After a new mount the server can feed transactions again. Without this rule, a repeated
        transaction could be taken for that of a later append.
        """
        mount, own, sent = self.mount, self._ids.client_id, self._sent
        mark = mount.mark
        for client, generation, _, seq, transaction_id, _ in records:
            if transaction_id != mark + 1:
                continue
            mark = transaction_id
            if client == own and seq in sent and sent[seq].req_id.generation == generation:
                self._commit(seq, transaction_id)
        mount.advance(mark)
        if self._refused or self._answered_flushes:
            self._settle_by_mark()

    def received(self, message: Message) -> None:
        """Handle a message other than FeedData."""
        match message:
            case MountResponse():
                if self.mount.mount_received(message):
                    self._mounted()
            case FeedSuspended():
                if message.req_id == self.mount.session and self.mount.phase is Phase.MOUNTED:
                    self._request_feed()
            case LockFailure():
                sent = self._sent.pop(message.req_id.seq, None)
                if sent is not None:
                    self._refused.append((message.transaction_id, sent))
                    self._settle_by_mark()
            case AppendBatchResponse():
                self._batch_answered(message)
            case FlushResponse():
                order = self._open_flushes.pop(message.req_id.seq, None)
                if order is not None:
                    self._answered_flushes.append((message.transaction_id, order))
                    self._settle_by_mark()
            case HighWaterMarkResponse():
                self.mount.log_mark_received(message)
                self._check_ahead()

    def tick(self, now: float) -> None:
        """Do what is due at ``now``: mount again, or flush if the oldest append takes too long.

        A server drops an append of another generation without an answer. Without the flush, such an
        append would stay in doubt until a later append is committed.
        """
        self.mount.tick(now)
        oldest = self._oldest()
        if oldest is None or self.mount.phase is not Phase.MOUNTED:
            self._oldest_since = None
        elif self._oldest_since is None or self._oldest_since[0] != oldest.order:
            self._oldest_since = (oldest.order, now)
        elif now - self._oldest_since[1] >= self._long_wait_seconds:
            self._request_flush()
            self._oldest_since = (oldest.order, now)

    def close(self) -> None:
        """End every open append with the outcome that is known now."""
        self.detach()
        self._settle_waiting(Outcome.UNSENT)
        self.effects.results += (sent.outcome_without_feed() for sent in self._sent.values())
        self.effects.results += (_lock_failed(t, sent) for t, sent in self._refused)
        self._sent.clear()
        self._refused.clear()

    def _mounted(self) -> None:
        """Request the feed, flush if appends are in doubt, and send the appends that waited."""
        self._request_feed()
        if self._sent:
            self._request_flush()
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if each.batch:
                self._send_batch(each.tokens, each.appends)
            else:
                self._send(each.tokens[0], each.appends[0])

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if self.mount.log_mark_behind is not None:
            self._settle_waiting(Outcome.AHEAD, self.mount.log_mark_behind)

    def _settle_waiting(self, outcome: Outcome, number: int = -1) -> None:
        """Settle all appends that were not sent yet with ``outcome``."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            self.effects.results += (Settled(token, outcome, number) for token in each.tokens)

    def _send(self, token: object, append: Append) -> None:
        data, checksum, header, write_locks, read_locks, append_locks, mark = append
        if (append_locks and self.mount.version < APPEND_LOCKS_SINCE) or (
            read_locks and self.mount.version < READ_LOCKS_SINCE
        ):
            self.effects.results.append(Settled(token, Outcome.UNSUPPORTED, self.mount.version))
            return
        req_id = self._register(token)
        if mark is None:
            mark = self.mount.mark
        self.effects.messages.append(
            AppendRequest(
                req_id, mark, write_locks, read_locks, append_locks, header, data, checksum
            )
        )

    def _send_batch(self, tokens: Sequence[object], appends: Sequence[Append]) -> None:
        version = self.mount.version
        if version < APPEND_BATCH_SINCE:
            self.effects.results += (
                Settled(token, Outcome.UNSUPPORTED, version) for token in tokens
            )
            return
        first, *_ = [self._register(token) for token in tokens]
        mark = appends[0].mark
        items = tuple(
            BatchedAppend(a.write_locks, a.read_locks, a.append_locks, a.header, a.data, a.checksum)
            for a in appends
        )
        self.effects.messages.append(
            AppendBatchRequest(first, self.mount.mark if mark is None else mark, items)
        )

    def _register(self, token: object) -> ReqId:
        req_id = self._ids.next(self.mount.generation)
        assert req_id.seq not in self._sent, "request ids are unique among open appends"
        self._sent[req_id.seq] = SentAppend(self._ids.last, token, req_id)
        self._order.append(req_id.seq)
        return req_id

    def _batch_answered(self, message: AppendBatchResponse) -> None:
        """Handle the outcomes of a batch.

        COMMITTED is only recorded. The caller gets it when the feed shows the transaction, so that
        the client's mark has reached the transaction by then. `withdraw` returns it earlier.
        """
        first = message.req_id.seq
        for seq, outcome in enumerate(message.outcomes, first):
            sent = self._sent.get(wrapped(seq))
            if sent is None or sent.req_id.generation != message.req_id.generation:
                continue
            match outcome.kind:
                case OutcomeKind.REFUSED:
                    del self._sent[sent.req_id.seq]
                    self._refused.append((outcome.transaction_id, sent))
                case OutcomeKind.ABSENT:
                    del self._sent[sent.req_id.seq]
                    self.effects.results.append(Settled(sent.token, Outcome.ABSENT))
                case OutcomeKind.COMMITTED:
                    self._sent[sent.req_id.seq] = sent._replace(committed=outcome.transaction_id)
                case OutcomeKind.UNKNOWN:
                    pass
        self._settle_by_mark()

    def _commit(self, seq: int, transaction_id: int) -> None:
        """Settle the append ``seq``, which is in the log, and all open appends sent before it.

        The earlier appends are not in the log and never will be: a server writes one client's
        appends in the order in which they were sent, so an earlier append cannot follow
        (spec/behaviour.md section 8).
        """
        assert seq in self._sent, "a committed append is open"
        while True:
            earlier = self._order.popleft()
            sent = self._sent.pop(earlier, None)
            if sent is None:
                continue
            if earlier == seq:
                self.effects.results.append(Settled(sent.token, Outcome.COMMITTED, transaction_id))
                return
            self.effects.results.append(Settled(sent.token, Outcome.ABSENT))

    def _settle_by_mark(self) -> None:
        """Settle the appends whose outcome follows from the transaction that the feed has reached.

        An append in doubt is absent if the feed has reached the mark in the answer to a flush that
        was sent after the append. A refused append gets its outcome when the feed has reached the
        transaction that took the lock.
        """
        mark = self.mount.mark
        reached = [order for t, order in self._answered_flushes if t <= mark]
        if reached:
            self._answered_flushes = [(t, order) for t, order in self._answered_flushes if t > mark]
            self._settle_absent_up_to(max(reached))
        for t, sent in self._refused:
            if t <= mark:
                self.effects.results.append(_lock_failed(t, sent))
        self._refused = [(t, sent) for t, sent in self._refused if t > mark]

    def _settle_absent_up_to(self, order: int) -> None:
        """Settle the appends in doubt that were sent before the place ``order`` as ABSENT."""
        oldest = self._oldest()
        while oldest is not None and oldest.order <= order:
            del self._sent[self._order.popleft()]
            self.effects.results.append(Settled(oldest.token, Outcome.ABSENT))
            oldest = self._oldest()

    def _check_ahead(self) -> None:
        """Settle every open append if the log ends before the client's mark.

        The feed may never reach the transactions that took the locks of refused appends.
        """
        log_mark = self.mount.log_mark_behind
        if log_mark is None:
            return
        self._settle_waiting(Outcome.AHEAD, log_mark)
        # An answer that an append is committed is not used: the log may have lost the transaction.
        self.effects.results += (
            Settled(sent.token, Outcome.UNCERTAIN, req_id=sent.req_id)
            for sent in self._sent.values()
        )
        self.effects.results += (_lock_failed(t, sent) for t, sent in self._refused)
        self._sent.clear()
        self._refused.clear()

    def _request_feed(self) -> None:
        assert self.mount.session is not None
        self.effects.messages.append(FeedRequest(self.mount.session, self.mount.mark))

    def _request_flush(self) -> None:
        req_id = self._ids.next(self.mount.generation)
        self._open_flushes[req_id.seq] = self._ids.last
        self.effects.messages.append(FlushRequest(req_id))

    def _oldest(self) -> SentAppend | None:
        """Return the append in doubt that was sent first."""
        while self._order:
            sent = self._sent.get(self._order[0])
            if sent is not None:
                return sent
            self._order.popleft()
        return None


def _lock_failed(conflict: int, sent: SentAppend) -> Settled:
    return Settled(sent.token, Outcome.LOCK_FAILED, conflict)
