"""Simulate clients that append, one by one or in batches, with the real client core."""

from __future__ import annotations

from random import Random

from tests.sim.connected import Environment, Mounted
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.operation import Batch, Op
from waltz.client.core.append_values import Append, Outcome, Settled
from waltz.client.core.appends import PartitionAppends
from waltz.client.core.codec import FeedRecord
from waltz.client.core.mount import RequestIds
from waltz.protocol import checksum
from waltz.protocol.client_server import AppendBatchRequest, AppendBatchResponse, Message

LONG_WAIT_SECONDS = 0.5
LOCKS = 12
BATCHES_SINCE = 5
_BATCHED = 0.25
"""Share of the attempts of a client that supports batches."""


class Appender(Mounted):
    """Keeps a few appends open, some under locks, and repeats those that were not committed."""

    def __init__(
        self, client_id: int, partition: int, random: Random, environment: Environment
    ) -> None:
        self._random = random
        self._number = 0
        self.open = 0
        self.stopped = False
        self.unanswered: dict[int, Batch] = {}
        """Batches sent on this connection, by the number of their first request."""
        self._client_id = client_id
        ids = RequestIds(client_id, partition)
        self.core: PartitionAppends = PartitionAppends(ids, -1, LONG_WAIT_SECONDS)
        super().__init__(f"client{client_id}", random.choice((4, 5)), environment)
        for _ in range(random.choice((1, 4, 8))):
            self._later(1)

    def take(self, records: list[FeedRecord]) -> None:
        self._checker.fed(self.name, records)
        self.core.fed(records)

    def handle(self, message: Message) -> None:
        if isinstance(message, AppendBatchResponse):
            batch = self.unanswered.pop(message.req_id.seq, None)
            if batch is None:
                raise Violation(
                    Guarantee.BATCH, f"{self.name} receives an answer to an unknown batch"
                )
            self._checker.batches.check_outcomes(batch, message.outcomes)
        super().handle(message)

    def detach(self) -> None:
        super().detach()
        self.unanswered.clear()

    def outgoing(self) -> list[Message]:
        messages = super().outgoing()
        for message in messages:
            if isinstance(message, AppendBatchRequest) and self._channel is not None:
                batch = self._checker.ops[message.appends[0].data].batch
                assert batch is not None
                self._checker.batches.sent(batch, message.req_id.generation)
                self.unanswered[message.req_id.seq] = batch
        return messages

    def settle(self) -> None:
        settled = self.core.effects.take_results()
        for end in settled:
            self._ended(end)
        super().settle()

    def _ended(self, end: Settled) -> None:
        op = end.token
        assert isinstance(op, Op)
        self.open -= 1
        self._history.counters[f"client: {end.outcome.name.lower()}"] += 1
        self._history.detail(self.name, "{}: {} {}", op.name, end.outcome.name, end.number)
        match end.outcome:
            case Outcome.COMMITTED:
                self._checker.client_committed(op, end.number)
            case Outcome.ABSENT | Outcome.UNSUPPORTED:
                self._checker.client_denied(op)
            case Outcome.LOCK_FAILED:
                self._checker.client_locked_out(op, end.number, self.core.mark)
            case _:
                raise Violation(
                    Guarantee.DURABLE,
                    f"{self.name} has seen {self.core.mark}, but is answered a log end of "
                    f"{end.number} ({end.outcome.name})",
                )
        if op.batch is None:
            self._later(1)
        elif all(each.ended for each in op.batch.ops):
            self._later(len(op.batch.ops))

    def _later(self, ended: int) -> None:
        """Append again after a pause, as long as ``ended`` single appends would take."""
        self.clock.after(self._random.expovariate(1 / (0.004 * ended)), self._begin)

    def _begin(self) -> None:
        if self.stopped:
            return
        if self._newest >= BATCHES_SINCE and self._random.random() < _BATCHED:
            batch = Batch(
                tuple(self._operation() for _ in range(self._random.choice((1, 2, 4, 12))))
            )
            for op in batch.ops:
                op.batch = batch
            self.core.append_batch(batch.ops, [_append_of(op) for op in batch.ops])
        else:
            op = self._operation()
            self.core.append(op, _append_of(op))
        self.settle()

    def _operation(self) -> Op:
        self._number += 1
        data = b"%d/%d/" % (self._client_id, self._number)
        data += bytes(self._random.choice((0, 10, 60, 300)))
        op = Op(data, *self._locks())
        if self._random.random() < 0.1:
            op.append = (self._random.randrange(LOCKS),)
        # The mark is fixed here for the checker; a later one would only be higher.
        op.mark = self.core.mark
        self._checker.ops[data] = op
        self.open += 1
        return op

    def _locks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        choice = self._random.random()
        a, b = self._random.randrange(LOCKS), self._random.randrange(LOCKS)
        if choice < 0.5:
            return (), ()
        if choice < 0.8:
            return (a,), ()
        return ((a,), (b,)) if choice < 0.9 else ((), (a, b))


def _append_of(op: Op) -> Append:
    return Append(op.data, checksum(op.data), 7, op.write, op.read, op.append, op.mark)
