"""Decide when the appends of one client to one partition need the feed. Pure.

`waltz.client.core` defines the words, such as feed and mark. A server of a version before
`APPEND_ANSWERS_SINCE` shows the outcome of an append in the feed. So each client that appends needs
the feed with all transactions of the partition. A newer server answers each append. Then the client
needs the feed only for appends whose answer is lost. The feed begins after a mark that the log had
reached before these appends were sent (`SentAppend.log_mark`).

The *place* of an append is its number in the order in which the client sends its requests to the
partition. A server answers committed appends in this order.
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
        """The largest mark that was passed to `note_log_mark`."""
        self._unanswered_place = -1
        """The appends up to this place will get no answer any more."""
        self._requested_by: ReqId | None = None
        """The id of the mount whose feed was requested.

        None before the first request, and after the server has suspended the feed.
        """

    @property
    def server_answers(self) -> bool:
        """Whether the present server answers appends."""
        return self._mount.version >= APPEND_ANSWERS_SINCE

    @property
    def log_mark(self) -> int:
        """The largest id that this client knows to be in the log.

        Before the first mount, it can be a mark that the caller has named, beyond the log's end.
        """
        return max(self._noted_mark, self._mount.mark)

    def note_log_mark(self, mark: int) -> None:
        """Record that the log has reached ``mark``."""
        self._noted_mark = max(self._noted_mark, mark)

    def expect_no_answers(self, last_place: int) -> None:
        """Record that no answer will come to the appends sent up to ``last_place``."""
        self._unanswered_place = max(self._unanswered_place, last_place)

    def may_be_answered(self, sent: SentAppend) -> bool:
        """Whether the server may still answer an append in doubt."""
        return sent.place > self._unanswered_place

    def has_skipped_append(self, place: int) -> bool:
        """Whether an append before ``place`` is in doubt, and an answer to it is still expected.

        ``place`` is that of an append that was answered as committed. So the server has skipped the
        earlier append.
        """
        oldest = self._sent.oldest()
        return oldest is not None and oldest.place < place and self.may_be_answered(oldest)

    def needs_feed(self, version: int) -> bool:
        """Whether the appends need the feed of a server of ``version``. They do in three cases:

        * The server is older, and shows outcomes only in the feed.
        * An older server has refused an append, whose outcome is reported when the feed has reached
          the transaction that took one of its locks.
        * The oldest append in doubt gets no answer any more.
        """
        if version < APPEND_ANSWERS_SINCE or self._sent.has_refused:
            return True
        oldest = self._sent.oldest()
        return oldest is not None and not self.may_be_answered(oldest)

    def may_request(self) -> bool:
        """Whether the feed is needed, can be requested now, and is not under way."""
        return (
            self._mount.phase is Phase.MOUNTED
            and self._requested_by != self._mount.request_id
            and self.needs_feed(self._mount.version)
        )

    def note_requested(self) -> None:
        """Record that the feed of the present mount is requested now."""
        self._requested_by = self._mount.request_id

    def note_suspended(self) -> None:
        """Record that the server sends no more of the feed without another request."""
        self._requested_by = None

    def advance_mark(self) -> None:
        """Advance the client's mark, but not to an id that an append in doubt may have.

        Otherwise a feed after the mark would not show this append. The client would conclude that
        the append is absent, and send it again: it could be in the log twice
        (tests/unit/client/test_client_answered_appends.py).
        """
        if not self.server_answers:
            return  # The feed of an older server advances the mark (`feed_received`).
        oldest = self._sent.oldest()
        mark = self.log_mark if oldest is None else oldest.log_mark
        if mark > self._mount.mark:
            self._mount.advance(mark)
