"""Faults of appends, caused on the connections between clients and servers. Touches locks.

Each fault is one that a real cluster can have, and the real client decides what follows from it: an
append that does not arrive is looked up in the log and sent again; a refused append raises
LockFailed. Only AppendUncertain needs help, because it would otherwise be raised after a timeout:
the client is made to give the append up at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from waltz.protocol import RecordBatch, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz.protocol.client_numbers import APPEND_BATCH_TYPE, APPEND_TYPE
from waltz.protocol.records import wrapped
from waltz.testing.faults import Delivery, Draws, Faults
from waltz.testing.frames import Frame, split_frames
from waltz.testing.network import DialedConnection

GiveUp = Callable[[ReqId], None]
"""Lets the client of an append raise AppendUncertain; called on the client's event loop."""


class AppendFaults:
    """The faults of all appends of a cluster: rates, and single faults that a test orders."""

    def __init__(self, partitions: int, seed: int, give_up: GiveUp) -> None:
        self.rates = Faults()
        self.give_up = give_up
        self.lock = threading.RLock()
        self.suspended: dict[int, int] = {}
        """The last transaction that feeds show, for each partition whose feed is suspended."""
        self.watched: dict[ReqId, tuple[ReqId, ...]] = {}
        """The appends that will raise AppendUncertain when they are in the log.

        Each id is mapped to the ids of all appends of its batch. When the feed shows one of them,
        the client gives all of them up.
        """
        self._seed = seed
        self._draws: dict[tuple[int, int], Draws] = {}
        self._ordered: list[deque[Delivery]] = [deque() for _ in range(partitions)]
        self._ordered_conflicts = [0] * partitions
        self._interceptors: dict[AppendInterceptor, None] = {}

    @property
    def idle(self) -> bool:
        """Whether no append gets a fault."""
        rates = self.rates
        return not (
            rates.lost + rates.uncertain + rates.conflict
            or any(self._ordered)
            or any(self._ordered_conflicts)
        )

    def order(self, partition: int, delivery: Delivery) -> None:
        """Deliver the next append of ``partition`` as ``delivery`` says.

        CONFLICT applies to the next append with write or read locks. Each call affects one more
        append.
        """
        with self.lock:
            if delivery is Delivery.CONFLICT:
                self._ordered_conflicts[partition] += 1
            else:
                self._ordered[partition].append(delivery)

    def suspend_feed(self, partition: int, mark: int) -> None:
        """Hold up every transaction after ``mark``. Do nothing if the feed is suspended already."""
        with self.lock:
            self.suspended.setdefault(partition, mark)

    def resume_feed(self, partition: int) -> None:
        """Let everything of ``partition`` arrive that was held up."""
        with self.lock:
            self.suspended.pop(partition, None)
            interceptors = list(self._interceptors)
        for interceptor in interceptors:
            interceptor.release()

    def intercept(self, connection: DialedConnection) -> AppendInterceptor:
        """Return the interceptor of a new connection, and forget those of closed connections."""
        interceptor = AppendInterceptor(self, connection)
        with self.lock:
            open_ones = [each for each in self._interceptors if not each.is_closed()]
            self._interceptors = dict.fromkeys((*open_ones, interceptor))
        return interceptor

    def delivery(self, req_id: ReqId, *, checked: bool) -> Delivery:
        """Decide how an append is delivered; ``checked`` if it has write or read locks.

        Each call makes one random draw, and uses up an ordered delivery if there is one.
        """
        partition = req_id.partition
        with self.lock:
            key = (req_id.client_id, partition)
            if key not in self._draws:
                self._draws[key] = Draws(self._seed, *key)
            drawn = self._draws[key].delivery(self.rates, checked=checked)
            if checked and self._ordered_conflicts[partition]:
                self._ordered_conflicts[partition] -= 1
                return Delivery.CONFLICT
            if self._ordered[partition]:
                return self._ordered[partition].popleft()
            return drawn


class AppendInterceptor:
    """The faults of one connection; implements `waltz.testing.network.Interceptor`."""

    def __init__(self, faults: AppendFaults, connection: DialedConnection) -> None:
        self.is_closed = connection.is_closed
        self._faults = faults
        self._inject = connection.inject
        self._held: list[bytes] = []

    def to_listener(self, data: bytes) -> bytes:
        """Return the frames that the server gets."""
        if self._faults.idle:
            return data
        return b"".join(self._sent(frame) for frame in split_frames(data))

    def to_dialer(self, data: bytes) -> bytes:
        """Return the frames that the client gets now."""
        faults = self._faults
        if not faults.suspended and not faults.watched:
            return data
        return b"".join(self._arrived(frame) for frame in split_frames(data))

    def release(self) -> None:
        """Let everything arrive that was held up on this connection.

        It passes through `to_dialer` again, which holds up partitions that are still suspended.
        """
        with self._faults.lock:
            held, self._held = self._held, []
        if held:
            self._inject(b"".join(held))

    def _sent(self, frame: Frame) -> bytes:
        """Return what the server gets for a frame, after the fault of the append in it."""
        if not frame.body:
            return frame.raw
        if frame.body[0] == APPEND_TYPE:
            append = cs.decode(frame.body, frame.version)
            assert isinstance(append, cs.AppendRequest)
            checked = bool(append.write_locks or append.read_locks)
            delivery = self._faults.delivery(append.req_id, checked=checked)
            if delivery is Delivery.CONFLICT:
                refusal = cs.LockFailure(append.req_id, append.client_high_water_mark)
                self._inject(cs.encode(refusal, frame.version))
                return b""
            return self._delivered(delivery, (append.req_id,), frame)
        if frame.body[0] == APPEND_BATCH_TYPE:
            batch = cs.decode(frame.body, frame.version)
            assert isinstance(batch, cs.AppendBatchRequest)
            locked = [n for n, a in enumerate(batch.appends) if a.write_locks or a.read_locks]
            delivery = self._faults.delivery(batch.req_id, checked=bool(locked))
            if delivery is Delivery.CONFLICT:
                return self._with_refusal(batch, locked[0], frame.version)
            req_ids = tuple(_later(batch.req_id, n) for n in range(len(batch.appends)))
            return self._delivered(delivery, req_ids, frame)
        return frame.raw

    def _delivered(self, delivery: Delivery, req_ids: tuple[ReqId, ...], frame: Frame) -> bytes:
        """Return what the server gets; let the client give ``req_ids`` up as ``delivery`` says."""
        match delivery:
            case Delivery.LOST:
                return b""
            case Delivery.UNCERTAIN_ABSENT:
                self._give_up(req_ids)
                return b""
            case Delivery.UNCERTAIN_COMMITTED:
                with self._faults.lock:
                    self._faults.watched.update(dict.fromkeys(req_ids, req_ids))
        return frame.raw

    def _with_refusal(self, batch: cs.AppendBatchRequest, refused: int, version: int) -> bytes:
        """Refuse one append of a batch; return two batches, of the appends before and after it."""
        outcome = BatchedOutcome(OutcomeKind.REFUSED, batch.client_high_water_mark)
        answer = cs.AppendBatchResponse(_later(batch.req_id, refused), (outcome,))
        self._inject(cs.encode(answer, version))
        parts = ((0, batch.appends[:refused]), (refused + 1, batch.appends[refused + 1 :]))
        rest = [
            replace(batch, req_id=_later(batch.req_id, first), appends=appends)
            for first, appends in parts
            if appends
        ]
        return b"".join(cs.encode(part, version) for part in rest)

    def _arrived(self, frame: Frame) -> bytes:
        """Return what the client gets for a frame; give up the appends that it shows in the log."""
        if not frame.body:
            return frame.raw
        message = cs.decode(frame.body, frame.version)
        match message:
            case cs.FeedData(req_id, transaction_id):
                if transaction_id > self._shown(req_id.partition, transaction_id):
                    return self._hold(frame.raw)
                self._give_up(self._unwatched(req_id))
            case cs.LockFailure(req_id):
                self._unwatched(req_id)
            case cs.AppendBatchResponse(req_id, outcomes):
                if all(outcome.kind is OutcomeKind.REFUSED for outcome in outcomes):
                    self._unwatched(req_id)
            case cs.RecordsResponse():
                return self._records(message, frame)
        return frame.raw

    def _records(self, message: cs.RecordsResponse, frame: Frame) -> bytes:
        """Return the part of a range that is shown now, and hold up a range without such a part."""
        records = list(message.records)
        if not records:
            return frame.raw
        shown = self._shown(message.req_id.partition, records[-1].transaction_id)
        if records[-1].transaction_id <= shown:
            return frame.raw
        first = [record for record in records if record.transaction_id <= shown]
        if not first:
            return self._hold(frame.raw)
        return cs.encode(replace(message, records=RecordBatch.of(first)), frame.version)

    def _shown(self, partition: int, last: int) -> int:
        """Return the last transaction that may be shown: ``last`` if no feed is suspended here."""
        return self._faults.suspended.get(partition, last)

    def _hold(self, raw: bytes) -> bytes:
        """Keep a frame for `release`; return no bytes, which is what the client gets now."""
        with self._faults.lock:
            self._held.append(raw)
        return b""

    def _unwatched(self, req_id: ReqId) -> tuple[ReqId, ...]:
        """End the watch of an append and its batch; return their ids, none if it is not watched."""
        with self._faults.lock:
            req_ids = self._faults.watched.get(req_id, ())
            for each in req_ids:
                self._faults.watched.pop(each, None)
        return req_ids

    def _give_up(self, req_ids: Sequence[ReqId]) -> None:
        for req_id in req_ids:
            self._faults.give_up(req_id)


def _later(first: ReqId, number: int) -> ReqId:
    """Return the id of append ``number`` of the batch whose append 0 has the id ``first``."""
    return replace(first, seq=wrapped(first.seq + number))
