"""The position of a stream in one partition, and when to request more of its feed. Pure.

Transaction ids have no gaps. So the position is one number: the next transaction has the id after
it, and every other transaction that is fed is a repetition (spec/behaviour.md section 8). After any
fault of connections and servers, a mount at the position continues exactly there.
"""

from __future__ import annotations

from waltz.client.core.codec import FeedRecord
from waltz.client.core.effects import Effects
from waltz.client.core.mount import Mount, Phase, RequestIds
from waltz.protocol.client_server import (
    FeedRequest,
    FeedSuspended,
    HighWaterMarkResponse,
    Message,
    MountResponse,
)


class PartitionFeed:
    """The feed of one partition to one stream, after the transaction ``mark``.

    Its results are the fed transactions, each once and in order.
    """

    def __init__(self, ids: RequestIds, mark: int) -> None:
        self.effects: Effects[FeedRecord] = Effects()
        self.mount = Mount(ids, mark, self.effects)
        self._wanted = True
        self._fetch_due = False

    @property
    def position(self) -> int:
        """The last transaction id taken."""
        return self.mount.mark

    @property
    def log_mark_behind(self) -> int | None:
        """The log's mark, once it is known to be below the position."""
        return self.mount.log_mark_behind

    def attach(self, generation: int, connection_seq: int, version: int) -> None:
        """The partition has a connection; also when its generation changes on the same one."""
        self._fetch_due = False
        self.mount.attach(generation, connection_seq, version)

    def detach(self) -> None:
        """The connection is lost."""
        self._fetch_due = False
        self.mount.detach()

    def fed(self, records: list[FeedRecord]) -> None:
        """Handle fed transactions; new ones become results.

        A new mount repeats the transactions fed since the last one. Without this rule the
        application would get a transaction twice; a gap would mean that it misses one.
        """
        mark = self.mount.mark
        add = self.effects.results.append
        for record in records:
            if record[4] == mark + 1:
                mark += 1
                add(record)
        self.mount.advance(mark)

    def received(self, message: Message) -> None:
        """Handle any message but FeedData; ignore messages of other sessions."""
        match message:
            case MountResponse():
                if self.mount.mount_received(message):
                    self._fetch_ended()
            case FeedSuspended():
                if self.mount.phase is Phase.MOUNTED and message.req_id == self.mount.session:
                    self._fetch_ended()
            case HighWaterMarkResponse():
                self.mount.log_mark_received(message)

    def want(self, wanted: bool) -> None:
        """Set whether there is room for more; without room no further fetch is requested."""
        self._wanted = wanted
        if not wanted:
            self.mount.restart_wait()
        elif self._fetch_due:
            self._fetch_ended()

    def tick(self, now: float) -> None:
        """Do what is due at ``now``."""
        if not self._wanted:
            self.mount.restart_wait()
        self.mount.tick(now)

    def _fetch_ended(self) -> None:
        """Request the next fetch, now or when there is room."""
        self._fetch_due = not self._wanted
        if self._wanted:
            assert self.mount.session is not None
            self.effects.messages.append(FeedRequest(self.mount.session, self.mount.mark))
