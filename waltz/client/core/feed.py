"""Track the position of a stream in one partition, and request more of the feed. Pure.

The *position* is the id of the last transaction that was received. Transaction ids have no gaps, so
the next transaction has the next id. Every other transaction in the feed is a repetition
(spec/behaviour.md section 8). After any fault of connections and servers, the partition is mounted
again after the position, and the feed continues with the next transaction.

For a mount, the server sends the transactions after the position, and then the answer READY. After
that it sends transactions only on request: for each FeedRequest one *fetch*, which has a limited
number of transactions and ends with FeedSuspended.
"""

from __future__ import annotations

from waltz.client.core.codec import FEED_TRANSACTION_ID, FeedRecord
from waltz.client.core.effects import Effects
from waltz.client.core.mount import Mount, Phase, RequestIds
from waltz.protocol.client_server import (
    FeedRequest,
    FeedSuspended,
    HighWaterMarkResponse,
    Message,
    MountResponse,
    RequestDenied,
)


class PartitionFeed:
    """The feed of one partition to one stream, which begins after the transaction ``mark``.

    ``effects.results`` gets each transaction once, in order.
    """

    def __init__(self, ids: RequestIds, mark: int) -> None:
        self.effects: Effects[FeedRecord] = Effects()
        self.mount = Mount(ids, mark, self.effects)
        self._wanted = True
        """The argument of the last `want`."""
        self._fetch_due = False
        """Whether a FeedRequest must be sent as soon as the stream wants more transactions."""

    @property
    def position(self) -> int:
        """The id of the last transaction that was received in order."""
        return self.mount.mark

    @property
    def log_mark_behind(self) -> int | None:
        """The end of the log, if it is known to be below the position; otherwise None."""
        return self.mount.log_mark_behind

    @property
    def denial(self) -> str | None:
        """Why the server denied the mount or the feed; None if it did not."""
        return self.mount.denial

    def attach(self, generation: int, connection_seq: int, version: int) -> None:
        """Mount the partition on a new connection, or in a new generation; see `Mount.attach`."""
        self._fetch_due = False
        # The mount is fed, which is the default: a stream consists of the feed.
        self.mount.attach(generation, connection_seq, version)

    def detach(self) -> None:
        """Stop using the connection: it is lost, or another server owns the partition now."""
        self._fetch_due = False
        self.mount.detach()

    def feed_received(self, records: list[FeedRecord]) -> None:
        """Handle transactions of the feed. A transaction with the next id becomes a result.

        All others are ignored: after a new mount the server can send transactions again, and the
        application must not get a transaction twice.
        """
        mark = self.mount.mark
        add = self.effects.results.append
        for record in records:
            if record[FEED_TRANSACTION_ID] == mark + 1:
                mark += 1
                add(record)
        self.mount.advance(mark)

    def received(self, message: Message) -> None:
        """Handle a message other than FeedData. Ignore messages of an earlier mount."""
        match message:
            case MountResponse():
                if self.mount.mount_received(message):
                    self._fetch_when_wanted()
            case FeedSuspended():
                if self.mount.phase is Phase.MOUNTED and message.req_id == self.mount.request_id:
                    self._fetch_when_wanted()
            case HighWaterMarkResponse():
                self.mount.log_mark_received(message)
            case RequestDenied():
                self.mount.request_denied(message)

    def want(self, wanted: bool) -> None:
        """Set whether the stream wants more transactions.

        While ``wanted`` is False, no FeedRequest is sent. If one is due, it is sent when ``wanted``
        becomes True.
        """
        self._wanted = wanted
        if not wanted:
            # The stream reads nothing from now on. The answer to a mount request cannot arrive, so
            # its timeout must not pass (`tick` also restarts it).
            self.mount.restart_wait()
        elif self._fetch_due:
            self._fetch_when_wanted()

    def tick(self, now: float) -> None:
        """Mount again if that is due at ``now``; see `Mount.tick`."""
        if not self._wanted:
            self.mount.restart_wait()
        self.mount.tick(now)

    def _fetch_when_wanted(self) -> None:
        """Send a FeedRequest now, or as soon as the stream wants more transactions.

        This is called when the server has answered the mount or ended a fetch: it sends no more
        transactions without a FeedRequest.
        """
        self._fetch_due = not self._wanted
        if self._wanted:
            assert self.mount.request_id is not None
            self.effects.messages.append(FeedRequest(self.mount.request_id, self.mount.mark))
