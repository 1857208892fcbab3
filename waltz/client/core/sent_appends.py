"""Determine the outcome of each append that one client has sent to one partition. Pure.

`waltz.client.core` defines the words, such as feed and flush. The client's *mark* is the id after
which it mounts the partition (`Mount.mark`). An append in doubt that is in the log has an id after
the mark (`FeedNeed.advance_mark`). So the feed, which begins after the mark, shows the append.

A server writes the appends of one client to the log in the order in which the client sent them. So
an append is

* in the log if the feed shows its request id,
* not in the log if the feed shows the request id of a later append before its own,
* not in the log if it was sent before a flush, is still in doubt, and the mark has reached the id
  in the answer to the flush (spec/behaviour.md section 8).

Otherwise only an answer of the server determines an outcome: LockFailure, RequestDenied,
AppendBatchResponse or AppendAnswers. A lost connection and elapsed time leave an append in doubt.

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

    ``log_mark`` is an id that the log had reached before the append was sent. So the transaction of
    the append, if there will be one, has a greater id. ``committed_id`` is the transaction id if
    the server has answered that the append is committed, and the feed has not shown the transaction
    yet. Otherwise it is None.
    """

    place: int
    token: object
    req_id: ReqId
    log_mark: int
    committed_id: int | None = None

    def uncertain(self) -> AppendResult:
        """Return the outcome UNCERTAIN, even if the server has answered."""
        return AppendResult(self.token, Outcome.UNCERTAIN, req_id=self.req_id)

    def outcome_without_feed(self) -> AppendResult:
        """Return the outcome that is known now, for a caller that does not wait for the feed."""
        if self.committed_id is not None:
            return AppendResult(self.token, Outcome.COMMITTED, self.committed_id)
        return self.uncertain()


class _RefusedAppend(NamedTuple):
    """An append that was refused, because the transaction ``conflict`` took one of its locks.

    Only the refusal by a server of a version before `APPEND_ANSWERS_SINCE` is kept so. The answer
    of a newer server settles the append at once (`SentAppends.settle`).
    """

    token: object
    conflict: int

    def outcome(self) -> AppendResult:
        """Return the outcome LOCK_FAILED."""
        return AppendResult(self.token, Outcome.LOCK_FAILED, self.conflict)


class _AnsweredFlush(NamedTuple):
    """A flush that the server has answered. ``mark`` is the id in the answer, the log's end."""

    place: int
    mark: int


class SentAppends:
    """The appends of one client to one partition that were sent and have no outcome yet.

    ``in_doubt`` has these appends by sequence number. It does not have the refused appends, whose
    outcome is reported later. As soon as an append gets its outcome, an `AppendResult` is added to
    ``effects.results``.
    """

    def __init__(self, effects: Effects[AppendResult]) -> None:
        self.in_doubt: dict[int, SentAppend] = {}
        self._effects = effects
        self._seqs: deque[int] = deque()
        """The sequence numbers of ``in_doubt``, oldest first.

        The numbers of settled appends stay until `oldest` or `commit` finds them at the beginning.
        """
        self._refused: list[_RefusedAppend] = []
        """The refused appends. Each gets its outcome when the mark has reached its conflict."""
        self._open_flushes: dict[int, int] = {}
        """The places of the flushes without an answer, by sequence number."""
        self._answered_flushes: list[_AnsweredFlush] = []
        """The answered flushes whose marks the client's mark has not reached."""

    def add(self, sent: SentAppend) -> None:
        """Record an append that is sent now."""
        seq = sent.req_id.seq
        assert seq not in self.in_doubt, "request ids are unique among open appends"
        self.in_doubt[seq] = sent
        self._seqs.append(seq)

    def oldest(self) -> SentAppend | None:
        """Return the append in doubt that was sent first, None if no append is in doubt.

        Afterwards ``_seqs`` begins with the sequence number of this append.
        """
        while self._seqs:
            sent = self.in_doubt.get(self._seqs[0])
            if sent is not None:
                return sent
            self._seqs.popleft()
        return None

    def commit(self, seq: int, transaction_id: int) -> None:
        """Settle the append ``seq``, which the feed has shown, and all appends sent before it.

        Those appends are not in the log and never will be: a server writes one client's appends in
        the order in which they were sent, so none of them can follow (spec/behaviour.md section 8).
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
        """Settle the append ``seq``, which is in doubt, by an answer of the server alone."""
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
        """Record the answer of a server of version 5 to an append of a batch.

        Such a server also shows the transaction of a committed append in the feed.
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

        The append stays in doubt until the feed shows the transaction. So the client's mark has
        reached the transaction when the caller gets COMMITTED. If the caller stops waiting earlier,
        `known_outcomes` returns COMMITTED.
        """
        self.in_doubt[seq] = self.in_doubt[seq]._replace(committed_id=transaction_id)

    def flush_sent(self, seq: int, place: int) -> None:
        """Record that the flush ``seq`` is sent now."""
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
        """Settle the appends whose outcome is certain because the client's mark is ``mark``.

        An append in doubt is absent if it was sent before a flush whose answer has an id up to
        ``mark``. A refused append gets its outcome when the mark has reached the transaction that
        took the lock. Before that, another attempt with this mark would be refused again.
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
    def has_refused(self) -> bool:
        """Whether a refused append waits until the client's mark has reached its conflict."""
        return bool(self._refused)

    def known_outcomes(self, tokens: Container[object]) -> list[AppendResult]:
        """Return the outcomes that are known now of those appends whose token is in ``tokens``.

        Refused appends get LOCK_FAILED, even if the mark has not reached the transaction that took
        the lock. Appends that the server has answered as committed get COMMITTED, even if the feed
        has not shown them. All others get UNCERTAIN. No append is removed.
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

        An earlier answer that an append is committed is ignored: its transaction may be lost. The
        refused appends get LOCK_FAILED now: the mark may never reach the transactions that took
        their locks.
        """
        self._end(sent.uncertain() for sent in self.in_doubt.values())

    def _end(self, results_in_doubt: Iterable[AppendResult]) -> None:
        """Report these results of the appends in doubt and those of the refused; drop all."""
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
        """Report the result of an append that was removed."""
        self._effects.results.append(result)
