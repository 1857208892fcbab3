"""The position of a stream in one partition, and when to ask for more of it. Pure.

Ids have no gaps, so the position says all: the next transaction is the one after it, and anything
else that arrives is a repetition (spec/behaviour.md section 8). Whatever happens to connections and
servers, mounting at the position goes on exactly there.
"""

from __future__ import annotations

from waltz.client.core.codec import FeedRecord
from waltz.client.core.mount import Mount, Phase, RequestIds
from waltz.protocol.client_server import (
    FeedRequest,
    FeedSuspended,
    HighWaterMarkResponse,
    Message,
    MountResponse,
)


class PartitionFeed:
    """One stream's feed of one partition, after the transaction ``mark``."""

    def __init__(self, ids: RequestIds, mark: int) -> None:
        self.mount = Mount(ids, mark)
        self.outgoing: list[Message] = []
        self._wanted = True
        self._owed = False

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
        self._owed = False
        self.outgoing += self.mount.attach(generation, connection_seq, version)

    def detach(self) -> None:
        """The connection is gone."""
        self._owed = False
        self.mount.detach()

    def fed(self, records: list[FeedRecord]) -> list[FeedRecord]:
        """Return those of the fed transactions that are new, in order."""
        mark = self.mount.mark
        new: list[FeedRecord] = []
        for record in records:
            if record[4] == mark + 1:
                mark += 1
                new.append(record)
        self.mount.mark = mark
        self.mount.heard()
        return new

    def received(self, message: Message) -> None:
        """Take any message but FeedData; those of other sessions are ignored."""
        match message:
            case MountResponse():
                was = self.mount.phase
                self.outgoing += self.mount.answered(message)
                if self.mount.phase is Phase.MOUNTED and was is not Phase.MOUNTED:
                    self._fetched()
            case FeedSuspended():
                if self.mount.phase is Phase.MOUNTED and message.req_id == self.mount.session:
                    self._fetched()
            case HighWaterMarkResponse():
                self.mount.log_mark_told(message)

    def want(self, wanted: bool) -> None:
        """Say whether there is room for more; without it no further fetch is asked for."""
        self._wanted = wanted
        if not wanted:
            self.mount.heard()
        elif self._owed:
            self._fetched()

    def tick(self, now: float) -> None:
        """Do what is due at ``now``."""
        if not self._wanted:
            self.mount.heard()
        self.outgoing += self.mount.tick(now)

    def _fetched(self) -> None:
        """A fetch has ended: ask for the next one, now or when there is room."""
        self._owed = not self._wanted
        if self._wanted:
            assert self.mount.session is not None
            self.outgoing.append(FeedRequest(self.mount.session, self.mount.mark))
