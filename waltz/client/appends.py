"""The appends of one partition: what is outstanding, what a message says about it. Pure.

The order of a partition's log is strict, and that of one client's appends on a connection too.
So an append is known to be in the log when the feed shows its request id, and known to be absent
when the feed shows a later one first, or when a flush that came after it has been answered and
everything up to the answer's mark has been fed (behaviour.md section 8). Nothing else counts: not
a lost connection, not time. An append is never sent twice under any id; whoever wants it again
makes a new one after `Outcome.ABSENT`.

Messages to send collect in ``outgoing`` and results in ``settled``; the shell takes them after
each call.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import NamedTuple

from waltz.client.codec import FeedRecord
from waltz.client.mount import Mount, Phase, RequestIds
from waltz.protocol.client_server import (
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
from waltz.protocol.records import ReqId

_READ_LOCKS_SINCE = 1
_APPEND_LOCKS_SINCE = 2


class Append(NamedTuple):
    """What to append. ``mark`` None: the locks are checked against what has been fed by then."""

    data: bytes
    checksum: int
    header: int = 0
    write_locks: tuple[int, ...] = ()
    read_locks: tuple[int, ...] = ()
    append_locks: tuple[int, ...] = ()
    mark: int | None = None


class Outcome(Enum):
    """What became of an append."""

    COMMITTED = "in the log"
    ABSENT = "not in the log, and it never will be"
    LOCK_FAILED = "refused; may be tried again"
    AHEAD = "refused: the log is shorter than what this client has seen"
    UNSUPPORTED = "not sent: the server's version lacks a kind of lock"
    UNSENT = "not sent"
    UNCERTAIN = "sent, and unknown"


class Settled(NamedTuple):
    """An append's end. ``number`` is the transaction id (COMMITTED), the one that took the lock
    (LOCK_FAILED), the log's mark (AHEAD) or the server's version (UNSUPPORTED).
    """

    token: object
    outcome: Outcome
    number: int = -1
    req_id: ReqId | None = None


class _Sent(NamedTuple):
    order: int
    token: object
    req_id: ReqId


class PartitionAppends:
    """One client's appends to one partition, and the feed that tells their fate.

    A token is whatever the shell wants to get back in `Settled`.
    """

    def __init__(self, ids: RequestIds, mark: int, long_wait_seconds: float) -> None:
        self.mount = Mount(ids, mark)
        self.outgoing: list[Message] = []
        self.settled: list[Settled] = []
        self._ids = ids
        self._long_wait_seconds = long_wait_seconds
        self._waiting: deque[tuple[object, Append]] = deque()
        self._sent: dict[int, _Sent] = {}
        self._order: deque[int] = deque()
        self._locked: list[tuple[int, _Sent]] = []
        self._flushing: dict[int, int] = {}
        self._flushed: list[tuple[int, int]] = []
        self._watched: tuple[int, float] | None = None

    @property
    def mark(self) -> int:
        """The last transaction id fed."""
        return self.mount.mark

    @property
    def idle(self) -> bool:
        """Whether time has no say: nothing is open and nothing needs mounting."""
        return not (self._sent or self._waiting) and self.mount.phase in (
            Phase.MOUNTED,
            Phase.DETACHED,
        )

    def attach(self, generation: int, connection_seq: int, version: int) -> None:
        """The partition has a connection; also when its generation changes on the same one."""
        self._flushing.clear()
        self.outgoing += self.mount.attach(generation, connection_seq, version)

    def detach(self) -> None:
        """The connection is gone. What was sent stays outstanding."""
        self._flushing.clear()
        self.mount.detach()

    def append(self, token: object, append: Append) -> None:
        """Send as soon as the partition is mounted."""
        if self.mount.log_mark_behind is not None:
            self.settled.append(Settled(token, Outcome.AHEAD, self.mount.log_mark_behind))
        elif self.mount.phase is Phase.MOUNTED:
            self._send(token, append)
        else:
            self._waiting.append((token, append))

    def withdraw(self, token: object) -> ReqId | None:
        """Forget an append if it was not sent yet; otherwise return its id: its fate is open."""
        for waiting in self._waiting:
            if waiting[0] is token:
                self._waiting.remove(waiting)
                return None
        return next((sent.req_id for sent in self._sent.values() if sent.token is token), None)

    def flush(self) -> None:
        """Ask for the fate of everything outstanding."""
        if self._sent and self.mount.phase is Phase.MOUNTED:
            self._ask_flush()

    def fed(self, records: list[FeedRecord]) -> None:
        """Take fed transactions; only the next in turn counts, others are repetitions."""
        mount, own, sent = self.mount, self._ids.client_id, self._sent
        mark = mount.mark
        for client, generation, _, seq, transaction_id, _ in records:
            if transaction_id != mark + 1:
                continue
            mark = transaction_id
            if client == own and seq in sent and sent[seq].req_id.generation == generation:
                self._commit(seq, transaction_id)
        mount.mark = mark
        mount.heard()
        if self._locked or self._flushed:
            self._settle_by_mark()

    def received(self, message: Message) -> None:
        """Take any message but FeedData."""
        match message:
            case MountResponse():
                was = self.mount.phase
                self.outgoing += self.mount.answered(message)
                if self.mount.phase is Phase.MOUNTED and was is not Phase.MOUNTED:
                    self._mounted()
            case FeedSuspended():
                if message.req_id == self.mount.session and self.mount.phase is Phase.MOUNTED:
                    self._ask_feed()
            case LockFailure():
                sent = self._sent.pop(message.req_id.seq, None)
                if sent is not None:
                    self._locked.append((message.transaction_id, sent))
                    self._settle_by_mark()
            case FlushResponse():
                order = self._flushing.pop(message.req_id.seq, None)
                if order is not None:
                    self._flushed.append((message.transaction_id, order))
                    self._settle_by_mark()
            case HighWaterMarkResponse():
                self.mount.log_mark_told(message)
                self._check_ahead()

    def tick(self, now: float) -> None:
        """Do what is due at ``now``: mount again, or ask for what takes suspiciously long.

        A server drops an append without a word when it has another generation.
        """
        self.outgoing += self.mount.tick(now)
        oldest = self._oldest()
        if oldest is None or self.mount.phase is not Phase.MOUNTED:
            self._watched = None
        elif self._watched is None or self._watched[0] != oldest.order:
            self._watched = (oldest.order, now)
        elif now - self._watched[1] >= self._long_wait_seconds:
            self._ask_flush()
            self._watched = (oldest.order, now)

    def close(self) -> None:
        """Settle everything as it stands."""
        self.detach()
        self.settled += (Settled(token, Outcome.UNSENT) for token, _ in self._waiting)
        self._waiting.clear()
        self._give_up_sent()
        self.settled += (Settled(s.token, Outcome.LOCK_FAILED, t) for t, s in self._locked)
        self._locked.clear()

    def _mounted(self) -> None:
        self._ask_feed()
        if self._sent:
            self._ask_flush()
        waiting, self._waiting = self._waiting, deque()
        for token, append in waiting:
            self._send(token, append)

    def _send(self, token: object, append: Append) -> None:
        data, checksum, header, write_locks, read_locks, append_locks, mark = append
        if (append_locks and self.mount.version < _APPEND_LOCKS_SINCE) or (
            read_locks and self.mount.version < _READ_LOCKS_SINCE
        ):
            self.settled.append(Settled(token, Outcome.UNSUPPORTED, self.mount.version))
            return
        req_id = self._ids.next(self.mount.generation)
        self._sent[req_id.seq] = _Sent(self._ids.last, token, req_id)
        self._order.append(req_id.seq)
        if mark is None:
            mark = self.mount.mark
        self.outgoing.append(
            AppendRequest(
                req_id, mark, write_locks, read_locks, append_locks, header, data, checksum
            )
        )

    def _commit(self, seq: int, transaction_id: int) -> None:
        """The log has ``seq``: whatever was sent earlier and is still open is not in it."""
        while True:
            earlier = self._order.popleft()
            sent = self._sent.pop(earlier, None)
            if sent is None:
                continue
            if earlier == seq:
                self.settled.append(Settled(sent.token, Outcome.COMMITTED, transaction_id))
                return
            self.settled.append(Settled(sent.token, Outcome.ABSENT))

    def _settle_by_mark(self) -> None:
        mark = self.mount.mark
        reached = [order for t, order in self._flushed if t <= mark]
        if reached:
            self._flushed = [(t, order) for t, order in self._flushed if t > mark]
            self._fail_up_to(max(reached))
        for t, sent in self._locked:
            if t <= mark:
                self.settled.append(Settled(sent.token, Outcome.LOCK_FAILED, t))
        self._locked = [(t, sent) for t, sent in self._locked if t > mark]

    def _fail_up_to(self, order: int) -> None:
        oldest = self._oldest()
        while oldest is not None and oldest.order <= order:
            del self._sent[self._order.popleft()]
            self.settled.append(Settled(oldest.token, Outcome.ABSENT))
            oldest = self._oldest()

    def _check_ahead(self) -> None:
        log_mark = self.mount.log_mark_behind
        if log_mark is None:
            return
        self.settled += (Settled(token, Outcome.AHEAD, log_mark) for token, _ in self._waiting)
        self._waiting.clear()
        self._give_up_sent()

    def _give_up_sent(self) -> None:
        self.settled += (
            Settled(sent.token, Outcome.UNCERTAIN, req_id=sent.req_id)
            for sent in self._sent.values()
        )
        self._sent.clear()

    def _ask_feed(self) -> None:
        assert self.mount.session is not None
        self.outgoing.append(FeedRequest(self.mount.session, self.mount.mark))

    def _ask_flush(self) -> None:
        req_id = self._ids.next(self.mount.generation)
        self._flushing[req_id.seq] = self._ids.last
        self.outgoing.append(FlushRequest(req_id))

    def _oldest(self) -> _Sent | None:
        while self._order:
            sent = self._sent.get(self._order[0])
            if sent is not None:
                return sent
            self._order.popleft()
        return None
