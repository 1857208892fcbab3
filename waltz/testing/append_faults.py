"""Faults of appends, caused on the connections between clients and servers. Touches thread locks.

An interceptor of each connection drops, answers or holds up the frames with appends and with their
answers. Each fault is one that a real cluster can have, and the real client decides what follows
from it:

* If an append is dropped, its client finds that it is not in the log, and sends it again.
* A client whose append is refused raises LockFailed.
* A client raises AppendUncertain after a timeout. To spare a test this wait, the client is made to
  *give up* the append at once (`GiveUp`).

A test can also *suspend the feed* of a partition: then the frames that would show clients newer
transactions are held up until the feed is resumed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from waltz.protocol import RecordBatch, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.batches import LOG_MARK, AppendAnswer, BatchedOutcome, OutcomeKind
from waltz.protocol.client_numbers import (
    ANSWERED_APPEND_TYPE,
    APPEND_ANSWERS_SINCE,
    APPEND_BATCH_TYPE,
    APPEND_TYPE,
)
from waltz.protocol.records import wrapped
from waltz.testing.faults import AppendDelivery, DeliveryDraws, Faults
from waltz.testing.frames import Frame, split_frames
from waltz.testing.interceptors import DialedConnection

_APPENDING_TYPES = (APPEND_TYPE, ANSWERED_APPEND_TYPE, APPEND_BATCH_TYPE)

GiveUp = Callable[[ReqId], None]
"""Lets the client of an append raise AppendUncertain; called on the client's event loop."""


class AppendFaults:
    """The faults of all appends of a cluster: rates, and single faults that a test has set."""

    def __init__(
        self, partitions: int, seed: int, give_up: GiveUp, log_mark: Callable[[int], int]
    ) -> None:
        self.rates = Faults()
        self.give_up = give_up
        self.log_mark = log_mark
        """Returns the high-water mark of a partition."""
        self.lock = threading.RLock()
        self.suspended: dict[int, int] = {}
        """The last transaction that feeds show, for each partition whose feed is suspended."""
        self.watched: dict[ReqId, tuple[ReqId, ...]] = {}
        """The appends that will raise AppendUncertain when they are in the log.

        Each id is mapped to the ids of all appends of its batch. When an answer or a client's feed
        shows that one of these appends is in the log, the client gives up all appends of its batch.
        """
        self._seed = seed
        self._draws: dict[tuple[int, int], DeliveryDraws] = {}
        """The random draws for each client id and partition."""
        self._next_deliveries: list[deque[AppendDelivery]] = [deque() for _ in range(partitions)]
        """For each partition the deliveries that `set_next` has set, except conflicts."""
        self._next_conflicts = [0] * partitions
        """For each partition the number of conflicts that `set_next` has set."""
        self._interceptors: dict[AppendInterceptor, None] = {}
        """The interceptors of open connections: a dictionary is used as an ordered set."""

    @property
    def is_idle(self) -> bool:
        """Whether no append gets a fault: no rate is set, and no single fault."""
        rates = self.rates
        return not (
            rates.lost + rates.uncertain + rates.conflict
            or any(self._next_deliveries)
            or any(self._next_conflicts)
        )

    def set_next(self, partition: int, delivery: AppendDelivery) -> None:
        """Deliver the next append of ``partition`` as ``delivery`` says.

        CONFLICT applies to the next append with write or read locks. Several calls affect as many
        appends, one each.
        """
        with self.lock:
            if delivery is AppendDelivery.CONFLICT:
                self._next_conflicts[partition] += 1
            else:
                self._next_deliveries[partition].append(delivery)

    def suspend_feed(self, partition: int, mark: int) -> None:
        """Hold up every transaction after ``mark``, the last one that clients may see.

        If the feed is suspended already, it keeps its earlier mark.
        """
        with self.lock:
            self.suspended.setdefault(partition, mark)

    def resume_feed(self, partition: int) -> None:
        """Let the frames of ``partition`` arrive that were held up."""
        with self.lock:
            self.suspended.pop(partition, None)
            interceptors = list(self._interceptors)
        for interceptor in interceptors:
            interceptor.release()

    def intercept(self, connection: DialedConnection) -> AppendInterceptor:
        """Return the interceptor of a new connection, and forget those of closed connections."""
        interceptor = AppendInterceptor(self, connection)
        with self.lock:
            still_open = [known for known in self._interceptors if not known.is_closed()]
            self._interceptors = dict.fromkeys((*still_open, interceptor))
        return interceptor

    def choose_delivery(self, req_id: ReqId, *, has_locks: bool) -> AppendDelivery:
        """Decide how an append, or a batch, is delivered.

        ``has_locks`` tells whether the append, or one of the batch, has write or read locks. A
        delivery of `set_next` takes precedence, if one applies, and is used up. The call makes a
        random draw in any case, so that `set_next` does not change the draws of later appends.
        """
        partition = req_id.partition
        with self.lock:
            key = (req_id.client_id, partition)
            if key not in self._draws:
                self._draws[key] = DeliveryDraws(self._seed, *key)
            drawn = self._draws[key].draw(self.rates, has_locks=has_locks)
            if has_locks and self._next_conflicts[partition]:
                self._next_conflicts[partition] -= 1
                return AppendDelivery.CONFLICT
            if self._next_deliveries[partition]:
                return self._next_deliveries[partition].popleft()
            return drawn


class AppendInterceptor:
    """The faults of one connection; implements `waltz.testing.interceptors.Interceptor`.

    The methods whose names end with ``_sent`` handle what the client has sent; they return the
    bytes that the server gets. Those that end with ``_arrived`` handle what the server has sent;
    they return the bytes that the client gets now. They may also hold frames up, make the client
    give appends up, or answer in place of the server.
    """

    def __init__(self, faults: AppendFaults, connection: DialedConnection) -> None:
        self.is_closed = connection.is_closed
        self._faults = faults
        self._inject = connection.inject
        self._held: list[bytes] = []
        """The frames that are held up, in the order in which they arrived."""

    def to_listener(self, data: bytes) -> bytes:
        """Return the frames that the server gets."""
        if self._faults.is_idle:
            return data
        return b"".join(self._frame_sent(frame) for frame in split_frames(data))

    def to_dialer(self, data: bytes) -> bytes:
        """Return the frames that the client gets now."""
        faults = self._faults
        if not faults.suspended and not faults.watched:
            return data
        return b"".join(self._frame_arrived(frame) for frame in split_frames(data))

    def release(self) -> None:
        """Let everything arrive that was held up on this connection.

        The frames pass through `to_dialer` again. It holds up those of partitions whose feeds are
        still suspended.
        """
        with self._faults.lock:
            held, self._held = self._held, []
        if held:
            self._inject(b"".join(held))

    def _frame_sent(self, frame: Frame) -> bytes:
        """Return what the server gets for a frame, after the fault of the appends in it."""
        if not frame.body or frame.body[0] not in _APPENDING_TYPES:
            return frame.raw
        message = cs.decode(frame.body, frame.version)
        if isinstance(message, cs.AppendRequest):
            return self._append_sent(message, frame)
        assert isinstance(message, cs.AppendBatchRequest)
        return self._batch_sent(message, frame)

    def _append_sent(self, append: cs.AppendRequest, frame: Frame) -> bytes:
        """Return what the server gets for a frame with one append."""
        has_locks = bool(append.write_locks or append.read_locks)
        delivery = self._faults.choose_delivery(append.req_id, has_locks=has_locks)
        if delivery is AppendDelivery.CONFLICT:
            self._inject(cs.encode(self._refusal(append), frame.version))
            return b""
        return self._delivered(delivery, (append.req_id,), frame)

    def _batch_sent(self, batch: cs.AppendBatchRequest, frame: Frame) -> bytes:
        """Return what the server gets for a frame with a batch."""
        with_locks = [
            number
            for number, append in enumerate(batch.appends)
            if append.write_locks or append.read_locks
        ]
        delivery = self._faults.choose_delivery(batch.req_id, has_locks=bool(with_locks))
        if delivery is AppendDelivery.CONFLICT:
            return self._with_refusal(batch, with_locks[0], frame.version)
        req_ids = tuple(_id_in_batch(batch.req_id, number) for number in range(len(batch.appends)))
        return self._delivered(delivery, req_ids, frame)

    def _refusal(self, append: cs.AppendRequest) -> cs.LockFailure | cs.AppendAnswers:
        """Return the answer that refuses an append."""
        req_id, taken_by = append.req_id, self._committed_before(append)
        if not isinstance(append, cs.AnsweredAppendRequest):
            # The connection has a version before `APPEND_ANSWERS_SINCE`.
            return cs.LockFailure(req_id, taken_by)
        ids = (req_id.client_id, req_id.generation, req_id.partition, req_id.seq)
        answer = AppendAnswer(*ids, OutcomeKind.REFUSED, taken_by)
        return cs.AppendAnswers(req_id, taken_by, (answer,))

    def _committed_before(self, request: cs.AppendRequest | cs.AppendBatchRequest) -> int:
        """Return a transaction of the log, for a refusal to name as the one that took the lock.

        A client waits until it has applied the named transaction, so the log must have it.
        """
        mark = request.client_high_water_mark
        if mark == LOG_MARK:  # The client has no mark: the server uses that of the log.
            return self._faults.log_mark(request.req_id.partition)
        return mark

    def _delivered(
        self, delivery: AppendDelivery, req_ids: tuple[ReqId, ...], frame: Frame
    ) -> bytes:
        """Return what the server gets for the appends ``req_ids`` in ``frame``.

        If the delivery is UNCERTAIN_ABSENT, the client gives the appends up now. If it is
        UNCERTAIN_COMMITTED, the client gives them up when they are in the log. ARRIVES changes
        nothing. The caller has handled CONFLICT already.
        """
        match delivery:
            case AppendDelivery.LOST:
                return b""
            case AppendDelivery.UNCERTAIN_ABSENT:
                self._give_up(req_ids)
                return b""
            case AppendDelivery.UNCERTAIN_COMMITTED:
                with self._faults.lock:
                    self._faults.watched.update(dict.fromkeys(req_ids, req_ids))
        return frame.raw

    def _with_refusal(self, batch: cs.AppendBatchRequest, refused: int, version: int) -> bytes:
        """Refuse the append number ``refused`` of a batch; return what the server gets.

        The server gets two batches: the appends before the refused one, and the appends after it.
        One batch cannot have both, because the ids of its appends follow each other without a gap.
        """
        outcome = BatchedOutcome(OutcomeKind.REFUSED, self._committed_before(batch))
        answer = cs.AppendBatchResponse(_id_in_batch(batch.req_id, refused), (outcome,))
        self._inject(cs.encode(answer, version))
        parts = ((0, batch.appends[:refused]), (refused + 1, batch.appends[refused + 1 :]))
        remaining = [
            replace(batch, req_id=_id_in_batch(batch.req_id, first), appends=appends)
            for first, appends in parts
            if appends
        ]
        return b"".join(cs.encode(part, version) for part in remaining)

    def _frame_arrived(self, frame: Frame) -> bytes:
        """Return what the client gets for a frame.

        If the frame shows that a watched append is in the log, the client gives the append up.
        """
        if not frame.body:
            return frame.raw
        message = cs.decode(frame.body, frame.version)
        match message:
            case cs.FeedData(req_id, transaction_id):
                last_shown = self._faults.suspended.get(req_id.partition)
                if last_shown is not None and transaction_id > last_shown:
                    return self._hold(frame.raw)
                self._give_up(self._end_watch(req_id))
            case cs.AppendAnswers():
                return self._answers_arrived(message, frame)
            # A refused append is not in the log, so the client gets the refusal.
            case cs.RequestDenied(req_id):
                self._end_watch(req_id)
            case cs.LockFailure(req_id):
                self._end_watch(req_id)
            case cs.AppendBatchResponse():
                return self._batch_answer_arrived(message, frame)
            case cs.RecordsResponse():
                return self._records_arrived(message, frame)
            case cs.StoredRecordsResponse():
                return self._stored_arrived(message, frame)
        return frame.raw

    def _answers_arrived(self, message: cs.AppendAnswers, frame: Frame) -> bytes:
        """Return the answers that the client gets now.

        Answers to appends that a suspended feed does not show yet are held up.
        """
        last_shown = self._faults.suspended.get(message.req_id.partition)
        shown, held = [], []
        for answer in message.answers:
            is_committed = answer.kind == OutcomeKind.COMMITTED
            if is_committed and last_shown is not None and answer.transaction_id > last_shown:
                held.append(answer)
                continue
            shown.append(answer)
            # An AppendAnswer begins with the four fields of a ReqId.
            req_ids = self._end_watch(ReqId(*answer[:4]))
            if is_committed:
                self._give_up(req_ids)
        if not held:
            return frame.raw
        self._hold(cs.encode(replace(message, answers=tuple(held)), frame.version))
        if not shown:
            return b""
        return cs.encode(replace(message, answers=tuple(shown)), frame.version)

    def _batch_answer_arrived(self, message: cs.AppendBatchResponse, frame: Frame) -> bytes:
        """Return the answer to a batch, unless a suspended feed does not show all its appends yet.

        Then the answer is held up. Before the version `APPEND_ANSWERS_SINCE`, an answer is not held
        up, because the client waits for the feed anyway.
        """
        outcomes, req_id = message.outcomes, message.req_id
        if all(outcome.kind is not OutcomeKind.COMMITTED for outcome in outcomes):
            self._end_watch(req_id)
        elif frame.version >= APPEND_ANSWERS_SINCE:
            last = max(outcome.transaction_id for outcome in outcomes)
            last_shown = self._faults.suspended.get(req_id.partition)
            if last_shown is not None and last > last_shown:
                return self._hold(frame.raw)
            self._give_up(self._end_watch(req_id))
        return frame.raw

    def _records_arrived(self, message: cs.RecordsResponse, frame: Frame) -> bytes:
        """Return the records of a range that a suspended feed shows.

        A range that has no such records is held up as a whole.
        """
        last_shown = self._faults.suspended.get(message.req_id.partition)
        records = list(message.records)
        if last_shown is None or not records or records[-1].transaction_id <= last_shown:
            return frame.raw
        shown = [record for record in records if record.transaction_id <= last_shown]
        if not shown:
            return self._hold(frame.raw)
        return cs.encode(replace(message, records=RecordBatch.of(shown)), frame.version)

    def _stored_arrived(self, message: cs.StoredRecordsResponse, frame: Frame) -> bytes:
        """Do what `_records_arrived` does for records in their form on disk."""
        last_shown = self._faults.suspended.get(message.req_id.partition)
        if last_shown is None:
            return frame.raw
        records = message.records
        first_id = int.from_bytes(records.raw[:8], "big")  # A record begins with its id.
        num_shown = min(last_shown + 1 - first_id, records.count)
        if num_shown <= 0:
            return self._hold(frame.raw)
        return cs.encode(replace(message, records=records.first(num_shown)), frame.version)

    def _hold(self, raw: bytes) -> bytes:
        """Keep a frame for `release`; return no bytes, which is what the client gets now."""
        with self._faults.lock:
            self._held.append(raw)
        return b""

    def _end_watch(self, req_id: ReqId) -> tuple[ReqId, ...]:
        """End the watch of an append and its batch; return their ids, none if it is not watched."""
        with self._faults.lock:
            req_ids = self._faults.watched.get(req_id, ())
            for ended in req_ids:
                self._faults.watched.pop(ended, None)
        return req_ids

    def _give_up(self, req_ids: Sequence[ReqId]) -> None:
        """Let the client give up each of these appends."""
        for req_id in req_ids:
            self._faults.give_up(req_id)


def _id_in_batch(first: ReqId, number: int) -> ReqId:
    """Return the id of append ``number`` of the batch whose append 0 has the id ``first``."""
    return replace(first, seq=wrapped(first.seq + number))
