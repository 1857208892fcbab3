"""The appends of one partition: what is outstanding, what a message says about it. Pure.

The order of a partition's log is strict, and that of one client's appends on a connection too.
So an append is known to be in the log when the feed shows its request id, and known to be absent
when the feed shows a later one first, or when a flush that came after it has been answered and
everything up to the answer's mark has been fed (spec/behaviour.md section 8). Nothing else counts:
not a lost connection, not time. An append is never sent twice under any id; whoever wants it again
makes a new one after `Outcome.ABSENT`.

Messages to send collect in ``outgoing`` and results in ``settled``; the shell takes them after
each call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple

from waltz.client.core.codec import FeedRecord
from waltz.client.core.mount import Mount, Phase, RequestIds
from waltz.protocol.batches import BatchedAppend, Fate
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


class Append(NamedTuple):
    """What to append. ``mark`` None: the locks are checked against what has been fed by then."""

    data: bytes
    checksum: int
    header: int = 0
    write_locks: tuple[int, ...] = ()
    read_locks: tuple[int, ...] = ()
    append_locks: tuple[int, ...] = ()
    mark: int | None = None

    @property
    def num_locks(self) -> int:
        """How many locks it names."""
        return len(self.write_locks) + len(self.read_locks) + len(self.append_locks)


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


class _Waiting(NamedTuple):
    """What is sent as soon as the partition is mounted: one append, or a batch."""

    tokens: Sequence[object]
    appends: Sequence[Append]
    batch: bool


class _Sent(NamedTuple):
    """What was sent. ``committed``: the transaction id, if the server told it before the feed."""

    order: int
    token: object
    req_id: ReqId
    committed: int | None = None

    def standing(self) -> Settled:
        """Return what is known of it without the feed."""
        if self.committed is not None:
            return Settled(self.token, Outcome.COMMITTED, self.committed)
        return Settled(self.token, Outcome.UNCERTAIN, req_id=self.req_id)


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
        self._waiting: deque[_Waiting] = deque()
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
        if self.mount.phase is Phase.MOUNTED:
            self._send(token, append)
        else:
            self._wait(_Waiting((token,), (append,), False))

    def append_batch(self, tokens: Sequence[object], appends: Sequence[Append]) -> None:
        """Send as one message, as soon as the partition is mounted; each is settled by itself.

        All have the same ``mark``; none is refused for a lock that another one took.
        """
        if self.mount.phase is Phase.MOUNTED:
            self._send_batch(tokens, appends)
        else:
            self._wait(_Waiting(tokens, appends, True))

    def withdraw(self, tokens: Collection[object]) -> list[Settled]:
        """Return how each of those stands that have not ended; what was not sent is forgotten.

        UNSENT, for a batch as a whole; LOCK_FAILED, even if what took the lock was not fed yet;
        COMMITTED, if the server said so and the feed is behind; all others are UNCERTAIN.
        """
        wanted = set(tokens)
        unsent = [each for each in self._waiting if not wanted.isdisjoint(each.tokens)]
        for each in unsent:
            self._waiting.remove(each)
        standing = [Settled(token, Outcome.UNSENT) for each in unsent for token in each.tokens]
        standing += (_refused(t, sent) for t, sent in self._locked if sent.token in wanted)
        standing += (sent.standing() for sent in self._sent.values() if sent.token in wanted)
        return standing

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
            case AppendBatchResponse():
                self._batch_answered(message)
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
        self._settle_waiting(Outcome.UNSENT)
        self.settled += (sent.standing() for sent in self._sent.values())
        self.settled += (_refused(t, sent) for t, sent in self._locked)
        self._sent.clear()
        self._locked.clear()

    def _mounted(self) -> None:
        self._ask_feed()
        if self._sent:
            self._ask_flush()
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
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            self.settled += (Settled(token, outcome, number) for token in each.tokens)

    def _send(self, token: object, append: Append) -> None:
        data, checksum, header, write_locks, read_locks, append_locks, mark = append
        if (append_locks and self.mount.version < APPEND_LOCKS_SINCE) or (
            read_locks and self.mount.version < READ_LOCKS_SINCE
        ):
            self.settled.append(Settled(token, Outcome.UNSUPPORTED, self.mount.version))
            return
        req_id = self._register(token)
        if mark is None:
            mark = self.mount.mark
        self.outgoing.append(
            AppendRequest(
                req_id, mark, write_locks, read_locks, append_locks, header, data, checksum
            )
        )

    def _send_batch(self, tokens: Sequence[object], appends: Sequence[Append]) -> None:
        version = self.mount.version
        if version < APPEND_BATCH_SINCE:
            self.settled += (Settled(token, Outcome.UNSUPPORTED, version) for token in tokens)
            return
        first, *_ = [self._register(token) for token in tokens]
        mark = appends[0].mark
        items = tuple(
            BatchedAppend(a.write_locks, a.read_locks, a.append_locks, a.header, a.data, a.checksum)
            for a in appends
        )
        self.outgoing.append(
            AppendBatchRequest(first, self.mount.mark if mark is None else mark, items)
        )

    def _register(self, token: object) -> ReqId:
        req_id = self._ids.next(self.mount.generation)
        self._sent[req_id.seq] = _Sent(self._ids.last, token, req_id)
        self._order.append(req_id.seq)
        return req_id

    def _batch_answered(self, message: AppendBatchResponse) -> None:
        """Take what the feed does not tell, and for whoever cannot wait for it, what it will."""
        first = message.req_id.seq
        for seq, outcome in enumerate(message.outcomes, first):
            sent = self._sent.get(wrapped(seq))
            if sent is None or sent.req_id.generation != message.req_id.generation:
                continue
            match outcome.fate:
                case Fate.REFUSED:
                    del self._sent[sent.req_id.seq]
                    self._locked.append((outcome.transaction_id, sent))
                case Fate.ABSENT:
                    del self._sent[sent.req_id.seq]
                    self.settled.append(Settled(sent.token, Outcome.ABSENT))
                case Fate.COMMITTED:
                    self._sent[sent.req_id.seq] = sent._replace(committed=outcome.transaction_id)
                case Fate.UNKNOWN:
                    pass
        self._settle_by_mark()

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
                self.settled.append(_refused(t, sent))
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
        self._settle_waiting(Outcome.AHEAD, log_mark)
        # Whatever a server said of them, the log that it meant is not this one.
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


def _refused(conflict: int, sent: _Sent) -> Settled:
    return Settled(sent.token, Outcome.LOCK_FAILED, conflict)
