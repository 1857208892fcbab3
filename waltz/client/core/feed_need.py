"""Decide when the appends of one client to one partition need the feed. Pure.

A server of a version before `APPEND_ANSWERS_SINCE` shows the outcome of an append in the feed. So
it feeds every transaction of the partition to every client that appends. A newer server answers
each append. Then the client needs the feed only for appends whose answer is lost: it looks for them
in the log, after a mark that was taken before they were sent (`SentAppend.log_mark`).

An append is *in doubt* from when it is sent until it has an outcome. Its *place* is its number in
the order in which the client sends its requests to the partition. A server answers committed
appends in this order.
"""

from __future__ import annotations

from waltz.client.core.mount import Mount, Phase
from waltz.client.core.sent_appends import SentAppend, SentAppends
from waltz.protocol.client_numbers import APPEND_ANSWERS_SINCE
from waltz.protocol.records import NO_TRANSACTION, ReqId


class FeedNeed:
    """Whether the appends of a partition need the feed, and the marks that follow from answers.

    ``mount`` and ``sent`` are those of the partition's `PartitionAppends`.
    """

    def __init__(self, mount: Mount, sent: SentAppends) -> None:
        self._mount = mount
        self._sent = sent
        self._noted_mark = NO_TRANSACTION
        """The largest mark that `note_log_mark` got."""
        self._unanswered_place = -1
        """No answer will come any more to appends in doubt up to this place."""
        self._requested_by: ReqId | None = None
        """The mount request whose feed was requested and has not been suspended since."""

    @property
    def server_answers(self) -> bool:
        """Whether the present server answers appends."""
        return self._mount.version >= APPEND_ANSWERS_SINCE

    @property
    def log_mark(self) -> int:
        """The largest id that this client knows to be in the log."""
        return max(self._noted_mark, self._mount.mark)

    def note_log_mark(self, mark: int) -> None:
        """Record that the log has reached ``mark``."""
        self._noted_mark = max(self._noted_mark, mark)

    def expect_no_answers(self, last_place: int) -> None:
        """Record that no answer will come to the appends sent up to ``last_place``."""
        self._unanswered_place = max(self._unanswered_place, last_place)

    def may_be_answered(self, sent: SentAppend) -> bool:
        """Whether an answer to an append in doubt is expected."""
        return sent.place > self._unanswered_place

    def has_skipped_append(self, place: int) -> bool:
        """Whether the answers, which have reached ``place``, have skipped an append before it.

        Such an append is in doubt, and an answer to it is still expected.
        """
        oldest = self._sent.oldest()
        return oldest is not None and oldest.place < place and self.may_be_answered(oldest)

    def needs_feed(self, version: int) -> bool:
        """Whether the appends need the feed of a server of ``version``.

        An append that an older server refused is settled when the feed has reached the transaction
        that took one of its locks.
        """
        if version < APPEND_ANSWERS_SINCE or self._sent.any_refused:
            return True
        oldest = self._sent.oldest()
        return oldest is not None and not self.may_be_answered(oldest)

    def may_request(self) -> bool:
        """Whether the feed is needed, can be requested now, and was not requested yet."""
        return (
            self._mount.phase is Phase.MOUNTED
            and self._requested_by != self._mount.request_id
            and self.needs_feed(self._mount.version)
        )

    def note_requested(self) -> None:
        """Record that the feed of the present mount is requested now."""
        self._requested_by = self._mount.request_id

    def note_suspended(self) -> None:
        """Record that the server feeds nothing more without another request."""
        self._requested_by = None

    def advance(self) -> None:
        """Advance the client's mark, but not to an id that an append in doubt may have.

        Otherwise a feed after the mark would not show this append. The client would take the append
        for absent and send it again, so that it could be in the log twice
        (tests/unit/client/test_client_answered_appends.py).
        """
        if not self.server_answers:
            return  # The feed of an older server advances the mark (`PartitionAppends.fed`).
        oldest = self._sent.oldest()
        mark = self.log_mark if oldest is None else oldest.log_mark
        if mark > self._mount.mark:
            self._mount.advance(mark)
