"""Send the appends of one client to one partition, and return their outcomes. Pure.

`waltz.client.core` defines the words, such as feed and flush. `SentAppends` determines the outcome
of each append that was sent. An append is never sent twice with the same request id. The caller
sends it again, with a new request id, only after an outcome that says "not in the log", such as
`Outcome.ABSENT`. Otherwise a transaction could be in the log twice
(tests/unit/client/test_client_appends.py, tests/sim).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from waltz.client.core.append_values import Append, AppendResult, Outcome
from waltz.client.core.codec import FeedRecord
from waltz.client.core.effects import Effects
from waltz.client.core.feed_need import FeedNeed
from waltz.client.core.mount import Mount, Phase, RequestIds
from waltz.client.core.sent_appends import SentAppend, SentAppends
from waltz.client.core.waiting_appends import WaitingAppends, WaitingQueue
from waltz.protocol.batches import LOG_MARK, OutcomeKind
from waltz.protocol.client_numbers import APPEND_BATCH_SINCE, APPEND_LOCKS_SINCE, READ_LOCKS_SINCE
from waltz.protocol.client_server import (
    AnsweredAppendRequest,
    AppendAnswers,
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
    RequestDenied,
)
from waltz.protocol.records import ReqId, wrapped


class PartitionAppends:
    """One client's appends to one partition, from the call to the outcome.

    The caller passes a token, any object, with each append. ``effects.results`` gets an
    `AppendResult` with this token. After `withdraw` or `give_up` of an append, a second
    `AppendResult` may follow. It does not replace the first (`AppendToken.settle`).

    An append *waits* until the partition is mounted. Then the append is sent, and it is *in doubt*
    until `SentAppends` *settles* it, that is, reports its outcome: by the server's answers, or by
    the feed. Until then the append is *open*.
    """

    def __init__(self, ids: RequestIds, mark: int, long_wait_seconds: float) -> None:
        self.effects: Effects[AppendResult] = Effects()
        self.mount = Mount(ids, mark, self.effects)
        self._ids = ids
        self._long_wait_seconds = long_wait_seconds
        self._waiting = WaitingQueue()
        self._sent = SentAppends(self.effects)
        self._feed_need = FeedNeed(self.mount, self._sent)
        self.denial = ""
        """The reason of the last denied request."""
        self._oldest_place: int | None = None
        """The place of the oldest append in doubt at the last `tick`.

        A place is a number in the order in which requests are sent (see `sent_appends`). None if no
        append was in doubt, or the partition was not mounted.
        """
        self._oldest_since = 0.0
        """When ``_oldest_place`` got its value; later, when `tick` last sent a flush for it."""

    @property
    def mark(self) -> int:
        """The id after which a mount begins; see `Mount.mark`."""
        return self.mount.mark

    @property
    def log_mark(self) -> int:
        """The largest id that this client knows to be in the log; see `FeedNeed`."""
        return self._feed_need.log_mark

    @property
    def idle(self) -> bool:
        """Whether `tick` has nothing to do: no append is open, and no mount is under way."""
        has_open_appends = bool(self._sent.in_doubt) or bool(self._waiting)
        return not has_open_appends and self.mount.phase in (Phase.MOUNTED, Phase.DETACHED)

    def attach(self, generation: int, connection_seq: int, version: int) -> None:
        """Mount the partition on a new connection, or in a new generation; see `Mount.attach`."""
        self._sent.drop_open_flushes()
        # Over this mount, the server does not answer appends that were sent over an earlier mount.
        # ``last`` is the place of the request that was sent last.
        self._feed_need.expect_no_answers(self._ids.last)
        fed = self._feed_need.needs_feed(version)
        self.mount.attach(generation, connection_seq, version, fed=fed)

    def detach(self) -> None:
        """Stop using the connection: it is lost, or another server owns the partition now.

        Appends that were sent stay in doubt, because the server may have written them. A flush that
        was not answered is dropped: a new flush is sent after the next mount.
        """
        self._sent.drop_open_flushes()
        self.mount.detach()

    def append(self, token: object, append: Append) -> None:
        """Send an append, now or as soon as the partition is mounted."""
        if self.mount.phase is Phase.MOUNTED:
            self._send(token, append)
        else:
            self._wait(WaitingAppends((token,), (append,), is_batch=False))

    def append_batch(self, tokens: Sequence[object], appends: Sequence[Append]) -> None:
        """Send appends in one message, now or as soon as the partition is mounted.

        Each append has its own outcome. All must have the same ``mark``. The locks of one append do
        not refuse the others.
        """
        if self.mount.phase is Phase.MOUNTED:
            self._send_batch(tokens, appends)
        else:
            self._wait(WaitingAppends(tuple(tokens), tuple(appends), is_batch=True))

    def withdraw(self, tokens: Collection[object]) -> list[AppendResult]:
        """Return the outcomes that the appends of ``tokens`` have now; their caller stops waiting.

        The appends that wait to be sent are dropped, and get UNSENT. The appends that were sent
        stay open. `SentAppends.known_outcomes` says which outcomes they get.
        """
        wanted = set(tokens)
        return self._waiting.withdraw(wanted) + self._sent.known_outcomes(wanted)

    def give_up(self, req_id: ReqId) -> None:
        """If the append ``req_id`` is in doubt, return UNCERTAIN as its result now.

        The append stays in doubt here. If the feed shows it later, the appends that were sent
        before it are settled as ABSENT (`SentAppends.commit`).
        """
        sent = self._sent.in_doubt.get(req_id.seq)
        if sent is not None and sent.req_id == req_id:
            self.effects.results.append(sent.uncertain())

    def is_in_doubt(self, req_id: ReqId) -> bool:
        """Whether the append ``req_id`` was sent, and its outcome is not known yet."""
        sent = self._sent.in_doubt.get(req_id.seq)
        return sent is not None and sent.req_id == req_id

    def flush(self) -> None:
        """Request the outcomes of all appends in doubt, if there are any.

        If the partition is not mounted, do nothing: `_mounted` sends a flush after the next mount.
        """
        if self._sent.in_doubt and self.mount.phase is Phase.MOUNTED:
            self._request_flush()

    def feed_received(self, records: list[FeedRecord]) -> None:
        """Handle transactions of the feed. Ignore a transaction whose id is not the next one.

        After a new mount the server can feed transactions again. A repeated transaction must not
        lower the mark. A transaction after a gap must not settle the appends that were sent before
        it as ABSENT (`SentAppends.commit`), because their transactions can be in the gap.
        """
        own_id, in_doubt = self._ids.client_id, self._sent.in_doubt
        mark = self.mount.mark
        for client_id, generation, _, seq, transaction_id, _ in records:
            if transaction_id != mark + 1:
                continue
            mark = transaction_id
            may_be_own = client_id == own_id and seq in in_doubt
            if may_be_own and in_doubt[seq].req_id.generation == generation:
                self._sent.commit(seq, transaction_id)
        self.mount.advance(mark)
        self._sent.settle_up_to_mark(mark)

    def received(self, message: Message) -> None:
        """Handle a message other than FeedData."""
        match message:
            case MountResponse():
                if self.mount.mount_received(message):
                    self._mounted()
            case FeedSuspended():
                # A message with another request id is about the feed of an earlier mount.
                if message.req_id == self.mount.request_id:
                    self._feed_need.note_suspended()
                    self._request_feed_if_needed()
            case LockFailure():
                self._sent.refuse(message.req_id.seq, message.transaction_id)
                self._sent.settle_up_to_mark(self.mark)
            case AppendAnswers():
                committed_place = self._settle_answers(message)
                self._advance()
                self._look_for_skipped(committed_place)
            case AppendBatchResponse():
                self._batch_answered(message)
                self._advance()
            case FlushResponse():
                self._flush_answered(message)
            case RequestDenied():
                self._request_denied(message)
            case HighWaterMarkResponse():
                self.mount.log_mark_received(message)
                self._check_ahead()

    def tick(self, now: float) -> None:
        """Do what is due at ``now``: mount again, or flush if the oldest append takes too long.

        ``now`` is in seconds and never goes back. A server drops an append of another generation
        without an answer. Without the flush, the dropped append would stay in doubt until a later
        append is committed.
        """
        self.mount.tick(now)
        oldest = self._sent.oldest() if self.mount.phase is Phase.MOUNTED else None
        place = None if oldest is None else oldest.place
        if place != self._oldest_place:
            self._oldest_place, self._oldest_since = place, now
        elif place is not None and now - self._oldest_since >= self._long_wait_seconds:
            self._request_flush()
            self._oldest_since = now

    def close(self) -> None:
        """End every open append with the outcome that is known now."""
        self.detach()
        self._settle_waiting(Outcome.UNSENT)
        self._sent.end()

    def _mounted(self) -> None:
        """Request the feed if needed, flush if appends are in doubt, and send those that waited."""
        self._request_feed_if_needed()
        # Before the waiting appends are sent: the answer to a flush waits for all earlier appends.
        self.flush()
        for waiting in self._waiting.take_all():
            if waiting.is_batch:
                self._send_batch(waiting.tokens, waiting.appends)
            else:
                self._send(waiting.tokens[0], waiting.appends[0])

    def _wait(self, waiting: WaitingAppends) -> None:
        """Keep appends until the mount; settle them if the log ends before the client's mark."""
        self._waiting.add(waiting)
        if self.mount.log_mark_behind is not None:
            self._settle_waiting(Outcome.AHEAD, self.mount.log_mark_behind)

    def _settle_waiting(self, outcome: Outcome, number: int = -1) -> None:
        """Settle all waiting appends; `AppendResult` says what ``number`` is."""
        self.effects.results += self._waiting.settle_all(outcome, number)

    def _send(self, token: object, append: Append) -> None:
        """Send an append; settle it as UNSUPPORTED if the server lacks a kind of its locks."""
        data, checksum, header, write_locks, read_locks, append_locks, mark = append
        version = self.mount.version
        if (append_locks and version < APPEND_LOCKS_SINCE) or (
            read_locks and version < READ_LOCKS_SINCE
        ):
            self.effects.results.append(AppendResult(token, Outcome.UNSUPPORTED, version))
            return
        req_id = self._register(token)
        if mark is None:
            mark = self._present_mark
        request = AnsweredAppendRequest if self._feed_need.server_answers else AppendRequest
        self.effects.messages.append(
            request(req_id, mark, write_locks, read_locks, append_locks, header, data, checksum)
        )

    def _send_batch(self, tokens: Sequence[object], appends: Sequence[Append]) -> None:
        """Send a batch; settle its appends as UNSUPPORTED if the server has no batches."""
        version = self.mount.version
        if version < APPEND_BATCH_SINCE:
            self.effects.results += (
                AppendResult(token, Outcome.UNSUPPORTED, version) for token in tokens
            )
            return
        req_ids = [self._register(token) for token in tokens]
        mark = appends[0].mark
        self.effects.messages.append(
            AppendBatchRequest(
                req_ids[0],
                self._present_mark if mark is None else mark,
                tuple(append.batched() for append in appends),
            )
        )

    @property
    def _present_mark(self) -> int:
        """The mark to send with an append whose caller has named none; see `Append`.

        `LOG_MARK` makes the server use the end of its log.
        """
        return LOG_MARK if self._feed_need.server_answers else self.mark

    def _register(self, token: object) -> ReqId:
        """Record an append that is sent now, and return its request id."""
        req_id = self._ids.next(self.mount.generation)
        self._sent.add(SentAppend(self._ids.last, token, req_id, self._feed_need.log_mark))
        return req_id

    def _settle_answers(self, message: AppendAnswers) -> int:
        """Settle the answered appends. Ignore answers to appends that are not in doubt.

        Return the place of the last append that was answered as committed, -1 if none was.
        """
        self._feed_need.note_log_mark(message.high_water_mark)
        in_doubt, committed_place = self._sent.in_doubt, -1
        for _, generation, _, seq, kind, number in message.answers:
            if seq in in_doubt and in_doubt[seq].req_id.generation == generation:
                if kind == OutcomeKind.COMMITTED:
                    committed_place = in_doubt[seq].place
                self._settle_by_answer(seq, OutcomeKind(kind), number)
        return committed_place

    def _look_for_skipped(self, committed_place: int) -> None:
        """Look in the log for appends before ``committed_place`` that got no answer.

        A server answers the commits of a connection in the order in which the appends were sent.
        Example: it has answered that the appends 1 and 3 are committed. Then no answer to 2 will
        come: the server has dropped it, or the answer was lost with an earlier connection. The feed
        shows whether it is in the log, and the answer to the flush how far the feed must be read.
        """
        if self._feed_need.has_skipped_append(committed_place):
            self._feed_need.expect_no_answers(committed_place)
            self.flush()
            self._request_feed_if_needed()

    def _settle_by_answer(self, seq: int, kind: OutcomeKind, number: int) -> None:
        """Settle the append ``seq`` by the server's answer alone, without the feed."""
        match kind:
            case OutcomeKind.COMMITTED:
                self._feed_need.note_log_mark(number)
                self._sent.settle(seq, Outcome.COMMITTED, number)
            case OutcomeKind.REFUSED:
                self._feed_need.note_log_mark(number)
                self._sent.settle(seq, Outcome.LOCK_FAILED, number)
            case OutcomeKind.ABSENT:
                self._sent.settle(seq, Outcome.ABSENT, number)
            case OutcomeKind.AHEAD:
                self._sent.settle(seq, Outcome.AHEAD, number)
            case OutcomeKind.UNKNOWN:
                pass  # The append stays in doubt, until the flush of a `tick` or of the next mount.

    def _advance(self) -> None:
        """Advance the client's mark after answers, and settle the appends that this decides."""
        self._feed_need.advance_mark()
        self._sent.settle_up_to_mark(self.mark)

    def _flush_answered(self, message: FlushResponse) -> None:
        """Settle appends sent before the flush; look in the log for those still in doubt."""
        place = self._sent.flush_answered(message.req_id.seq, message.transaction_id)
        if place is not None:
            self._feed_need.note_log_mark(message.transaction_id)
            self._feed_need.expect_no_answers(place)
        self._advance()
        self._request_feed_if_needed()

    def _batch_answered(self, message: AppendBatchResponse) -> None:
        """Record the outcomes of a batch's appends. Ignore appends that are not in doubt.

        The message has the request id of the first append. The sequence numbers of the batch's
        appends are consecutive.
        """
        first = message.req_id.seq
        for seq, outcome in enumerate(message.outcomes, first):
            sent = self._sent.in_doubt.get(wrapped(seq))
            if sent is None or sent.req_id.generation != message.req_id.generation:
                continue
            if self._feed_need.server_answers:
                self._settle_by_answer(sent.req_id.seq, outcome.kind, outcome.transaction_id)
            else:  # A server of version 5: its feed must confirm most outcomes.
                self._sent.note_batched(sent.req_id.seq, outcome)

    def _request_denied(self, message: RequestDenied) -> None:
        """Settle the append that was denied. If the mount was denied, settle all waiting appends.

        The denial of a mount, or of its feed, settles no append that was sent over an earlier
        mount: that append may be in the log.
        """
        self.denial = message.error or "no reason given"
        if self.mount.request_denied(message):
            self._settle_waiting(Outcome.DENIED)
        else:
            self._sent.deny(message.req_id.seq)

    def _check_ahead(self) -> None:
        """Settle every open append if the log ends before the client's mark."""
        log_mark = self.mount.log_mark_behind
        if log_mark is not None:
            self._settle_waiting(Outcome.AHEAD, log_mark)
            self._sent.end_uncertain()

    def _request_feed_if_needed(self) -> None:
        """Request the feed after the client's mark, unless this mount has requested it already."""
        if self._feed_need.may_request():
            assert self.mount.request_id is not None
            self._feed_need.note_requested()
            self.effects.messages.append(FeedRequest(self.mount.request_id, self.mark))

    def _request_flush(self) -> None:
        """Send a flush. The partition must be mounted."""
        req_id = self._ids.next(self.mount.generation)
        self._sent.flush_sent(req_id.seq, self._ids.last)
        self.effects.messages.append(FlushRequest(req_id))
