"""Determine the outcome of each append that one client has sent to one partition. Pure.

A server writes the appends of one client to the log in the order in which the client sent them. So
an append is

* in the log if the feed shows its request id,
* not in the log if the feed shows the request id of a later append before its own,
* not in the log if the feed has reached the mark in the answer to a flush that was sent after the
  append (spec/behaviour.md section 8).

Besides these signals, only an answer of the server determines an outcome: a refusal, an
AppendBatchResponse or AppendAnswers. A lost connection and elapsed time leave an append in doubt.

The client's *mark* is the id after which it mounts the partition (`Mount.mark`). No append in doubt
has an id at or below the mark. So a feed after the mark shows every append in doubt that is in the
log.

The *place* of an append or of a flush is its number in the order in which the client sends its
requests to the partition (`RequestIds.last`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from typing import NamedTuple

from waltz.client.core.append_values import AppendResult, Outcome
from waltz.client.core.effects import Effects
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz.protocol.records import ReqId


class SentAppend(NamedTuple):
    """An append that was sent and has no outcome yet.

    ``log_mark`` is a mark of the log before the append was sent: if the append is committed, its id
    is greater. ``committed_id`` is the transaction id if the server has answered that the append is
    committed, and the feed has not shown the transaction yet. Otherwise it is None.
    """

    place: int
    token: object
    req_id: ReqId
    log_mark: int
    committed_id: int | None = None

    def uncertain(self) -> AppendResult:
        """Return the outcome UNCERTAIN, whatever the server has answered."""
        return AppendResult(self.token, Outcome.UNCERTAIN, req_id=self.req_id)

    def outcome_without_feed(self) -> AppendResult:
        """Return the outcome that is known now, for a caller that does not wait for the feed."""
        if self.committed_id is not None:
            return AppendResult(self.token, Outcome.COMMITTED, self.committed_id)
        return self.uncertain()


class _RefusedAppend(NamedTuple):
    """An append that the server refused, and the transaction that took one of its locks."""

    token: object
    conflict: int

    def outcome(self) -> AppendResult:
        return AppendResult(self.token, Outcome.LOCK_FAILED, self.conflict)


class _AnsweredFlush(NamedTuple):
    """A flush that the server has answered with ``mark``, the end of the log."""

    place: int
    mark: int


class SentAppends:
    """The appends of one client to one partition that were sent and have no outcome yet.

    ``in_doubt`` has the appends that the feed has not shown and the server has not refused, by
    sequence number. As soon as an outcome is determined, its `AppendResult` is added to
    ``effects.results``.
    """

    def __init__(self, effects: Effects[AppendResult]) -> None:
        self.in_doubt: dict[int, SentAppend] = {}
        self._effects = effects
        self._seqs: deque[int] = deque()
        """The sequence numbers of ``in_doubt``, oldest first.

        Those of settled appends stay until `oldest` or `commit` finds them at the beginning.
        """
        self._refused: list[_RefusedAppend] = []
        """The refused appends. Each gets its outcome when the feed has reached its conflict."""
        self._open_flushes: dict[int, int] = {}
        """The places of the flushes without an answer, by sequence number."""
        self._answered_flushes: list[_AnsweredFlush] = []
        """The answered flushes whose marks the feed has not reached."""

    def add(self, sent: SentAppend) -> None:
        """Record an append that is sent now."""
        seq = sent.req_id.seq
        assert seq not in self.in_doubt, "request ids are unique among open appends"
        self.in_doubt[seq] = sent
        self._seqs.append(seq)

    def oldest(self) -> SentAppend | None:
        """Return the append in doubt that was sent first, None if no append is in doubt."""
        while self._seqs:
            sent = self.in_doubt.get(self._seqs[0])
            if sent is not None:
                return sent
            self._seqs.popleft()
        return None

    def commit(self, seq: int, transaction_id: int) -> None:
        """Settle the append ``seq``, which the feed has shown, and all appends sent before it.

        The earlier appends are not in the log and never will be: a server writes one client's
        appends in the order in which they were sent, so an earlier append cannot follow
        (spec/behaviour.md section 8).
        """
        assert seq in self.in_doubt, "a committed append is open"
        while True:
            next_seq = self._seqs.popleft()
            sent = self.in_doubt.pop(next_seq, None)
            if sent is None:
                continue
            if next_seq == seq:
                self._settle(AppendResult(sent.token, Outcome.COMMITTED, transaction_id))
                return
            self._settle(AppendResult(sent.token, Outcome.ABSENT))

    def refuse(self, seq: int, conflict: int) -> None:
        """Record that the server refused ``seq``, because transaction ``conflict`` took a lock."""
        sent = self.in_doubt.pop(seq, None)
        if sent is not None:
            self._refused.append(_RefusedAppend(sent.token, conflict))

    def settle(self, seq: int, outcome: Outcome, number: int) -> None:
        """Settle the append ``seq`` by an answer of the server that needs no feed."""
        self._settle(AppendResult(self.in_doubt.pop(seq).token, outcome, number))

    def deny(self, seq: int) -> None:
        """Settle the append ``seq``, for which the client has no right, or drop the flush ``seq``.

        A denied append is not in the log and never will be.
        """
        self._open_flushes.pop(seq, None)
        sent = self.in_doubt.pop(seq, None)
        if sent is not None:
            self._settle(AppendResult(sent.token, Outcome.DENIED))

    def note_batched(self, seq: int, outcome: BatchedOutcome) -> None:
        """Record the outcome of an append of a batch, whose transaction the feed will show.

        Only servers that have batches and do not answer single appends (version 5) need this.
        """
        match outcome.kind:
            case OutcomeKind.REFUSED:
                self.refuse(seq, outcome.transaction_id)
            case OutcomeKind.ABSENT:
                self.settle(seq, Outcome.ABSENT, outcome.transaction_id)
            case OutcomeKind.COMMITTED:
                self.note_committed(seq, outcome.transaction_id)
            case OutcomeKind.UNKNOWN | OutcomeKind.AHEAD:
                pass  # The append stays in doubt. A server of version 5 does not send AHEAD.

    def note_committed(self, seq: int, transaction_id: int) -> None:
        """Record the server's answer that the append ``seq`` is committed.

        The append stays in doubt until the feed shows the transaction, so that the client's mark
        has reached the transaction when the caller gets COMMITTED. `known_outcomes` returns
        COMMITTED earlier.
        """
        self.in_doubt[seq] = self.in_doubt[seq]._replace(committed_id=transaction_id)

    def flush_sent(self, seq: int, place: int) -> None:
        """Record a flush that is sent now."""
        self._open_flushes[seq] = place

    def flush_answered(self, seq: int, mark: int) -> int | None:
        """Record the answer to the flush ``seq``; return the flush's place.

        Ignore an answer to a flush that was dropped, and return None.
        """
        place = self._open_flushes.pop(seq, None)
        if place is not None:
            self._answered_flushes.append(_AnsweredFlush(place, mark))
        return place

    def drop_open_flushes(self) -> None:
        """Expect no more answers to the flushes that were sent, because the connection is lost."""
        self._open_flushes.clear()

    def settle_up_to_mark(self, mark: int) -> None:
        """Settle the appends whose outcome is certain because the feed has reached ``mark``.

        An append in doubt is absent if the feed has reached the mark in the answer to a flush that
        was sent after the append. A refused append gets its outcome when the feed has reached the
        transaction that took the lock.
        """
        if self._answered_flushes:
            reached = [flush.place for flush in self._answered_flushes if flush.mark <= mark]
            if reached:
                self._settle_absent_before(max(reached))
            self._answered_flushes = [
                flush for flush in self._answered_flushes if flush.mark > mark
            ]
        if self._refused:
            for refused in self._refused:
                if refused.conflict <= mark:
                    self._settle(refused.outcome())
            self._refused = [refused for refused in self._refused if refused.conflict > mark]

    @property
    def any_refused(self) -> bool:
        """Whether a refused append waits until the feed has reached its conflict."""
        return bool(self._refused)

    def known_outcomes(self, tokens: Container[object]) -> list[AppendResult]:
        """Return the outcomes that are known now of those appends whose token is in ``tokens``.

        Refused appends get LOCK_FAILED, even if the feed has not reached the transaction that took
        the lock. Appends that the server has answered as committed get COMMITTED, even if the feed
        has not shown them. All others get UNCERTAIN. The appends stay open.
        """
        known = [refused.outcome() for refused in self._refused if refused.token in tokens]
        known += (
            sent.outcome_without_feed() for sent in self.in_doubt.values() if sent.token in tokens
        )
        return known

    def end(self) -> None:
        """Settle every append with the outcome that is known now."""
        self._end(sent.outcome_without_feed() for sent in self.in_doubt.values())

    def end_uncertain(self) -> None:
        """Settle every append in doubt as UNCERTAIN, because the log has lost transactions.

        An answer that an append is committed is not used: the log may have lost the transaction.
        The refused appends are settled, too: the feed may never reach the transactions that took
        their locks.
        """
        self._end(sent.uncertain() for sent in self.in_doubt.values())

    def _end(self, results_in_doubt: Iterable[AppendResult]) -> None:
        """Settle the appends in doubt with these results, and the refused appends; drop all."""
        self._effects.results += results_in_doubt
        self._effects.results += (refused.outcome() for refused in self._refused)
        self.in_doubt.clear()
        self._refused.clear()

    def _settle_absent_before(self, place: int) -> None:
        """Settle the appends in doubt that were sent before ``place`` as ABSENT."""
        oldest = self.oldest()
        while oldest is not None and oldest.place < place:
            del self.in_doubt[self._seqs.popleft()]
            self._settle(AppendResult(oldest.token, Outcome.ABSENT))
            oldest = self.oldest()

    def _settle(self, result: AppendResult) -> None:
        self._effects.results.append(result)
