"""Clients in the simulation: the real cores of appending and of streaming."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tests.sim.checker import Checker, Op
from tests.sim.clock import Clock
from tests.sim.metadata import Metadata
from tests.sim.network import Channel
from tests.sim.promises import Promise, Violation
from tests.sim.server_node import ServerNode
from tests.sim.story import Story
from waltz.client.appends import Append, Outcome, PartitionAppends, Settled
from waltz.client.codec import FeedRecord, FeedRun, parse
from waltz.client.feed import PartitionFeed
from waltz.client.mount import RequestIds
from waltz.client.questions import Data, PartitionQuestions
from waltz.protocol import FrameDecoder, checksum
from waltz.protocol import client_server as cs
from waltz.protocol.client_server import Message
from waltz.protocol.frames import CLIENT_SERVER

RECONNECT_SECONDS = 0.02
TICK_SECONDS = 0.1
LONG_WAIT_SECONDS = 0.5
QUESTION_SECONDS = 0.02
LOCKS = 12

Surroundings = tuple[Clock, Mapping[str, ServerNode], Metadata, Checker, Story]
"""Whom and what a client meets."""


class _Connected:
    """What an appending client and a reader share: being connected to the partition's owner."""

    core: PartitionAppends | PartitionFeed

    def __init__(
        self,
        name: str,
        surroundings: Surroundings,
    ) -> None:
        self.name = name
        self.clock, self._servers, metadata, self._checker, self._story = surroundings
        self._channel: Channel | None = None
        self._decoder = FrameDecoder(CLIENT_SERVER)
        self._connection_seq = 0
        self._owner, self._generation = metadata.owner, metadata.generation
        metadata.watch_owner(name, self._owner_changed)
        self.clock.after(0.0, self._connect)
        self.clock.after(TICK_SECONDS, self._tick)

    def received(self, channel: Channel, message: bytes) -> None:
        if channel is not self._channel:
            return
        for item in parse(self._decoder.feed(message), 4):
            if isinstance(item, FeedRun):
                self._story.detail(
                    self.name, "is fed {} to {}", item.records[0][4], item.records[-1][4]
                )
                self.take(item.records)
            else:
                self._story.detail(self.name, "gets {}", item)
                self.told(item)
        self.settle()

    def lost(self, channel: Channel) -> None:
        if channel is self._channel:
            self._story.detail(self.name, "lost its connection")
            self._channel = None
            self.detach()
            self.clock.after(RECONNECT_SECONDS, self._connect)

    def take(self, records: list[FeedRecord]) -> None:
        raise NotImplementedError

    def told(self, message: Message) -> None:
        match message:
            case cs.MountResponse(state=cs.MountState.CLIENT_AHEAD):
                raise Violation(
                    Promise.DURABLE,
                    f"{self.name} has seen {self.core.mount.mark}, and {self._owner} takes that "
                    "for more than the log holds",
                )
            case cs.FlushResponse(transaction_id=mark) if mark < self.core.mount.mark:
                raise Violation(
                    Promise.DURABLE,
                    f"{self.name} has seen {self.core.mount.mark}, and {self._owner} says after a "
                    f"flush that the log ends at {mark}",
                )
        self.core.received(message)

    def attach(self) -> None:
        self.core.attach(self._generation, self._connection_seq, 4)

    def detach(self) -> None:
        self.core.detach()

    def outgoing(self) -> list[Message]:
        """Take what is to be sent."""
        messages, self.core.outgoing = self.core.outgoing, []
        return messages

    def settle(self) -> None:
        """Send what the cores want sent, in one chunk."""
        messages = self.outgoing()
        if messages and self._channel is not None:
            for message in messages:
                self._story.detail(self.name, "sends {}", message)
            self._channel.send(self, b"".join(cs.encode(m, 4) for m in messages))

    def _owner_changed(self, owner: str, generation: int) -> None:
        if generation <= self._generation:
            return
        moved = owner != self._owner
        self._owner, self._generation = owner, generation
        if self._channel is not None and moved:
            self._channel.drop(self)
            self._channel = None
            self.detach()
            self._connect()
        elif self._channel is not None:
            self.attach()
            self.settle()

    def _connect(self) -> None:
        if self._channel is not None:
            return
        server = self._servers.get(self._owner)
        self._channel = server.accept(self) if server is not None else None
        if self._channel is None:
            self.clock.after(RECONNECT_SECONDS, self._connect)
            return
        self._story.detail(self.name, "connects to {}", self._owner)
        self._decoder = FrameDecoder(CLIENT_SERVER)
        self._decoder.version = 4
        self._connection_seq += 1
        self.attach()
        self.settle()

    def _tick(self) -> None:
        self.core.tick(self.clock.now)
        self.settle()
        self.clock.after(TICK_SECONDS, self._tick)


class Appender(_Connected):
    """Keeps a few appends open, some under locks, and tries again what did not get in."""

    def __init__(
        self,
        client_id: int,
        partition: int,
        random: Random,
        surroundings: Surroundings,
    ) -> None:
        self._random = random
        self._number = 0
        self.open = 0
        self.stopped = False
        self._client_id = client_id
        ids = RequestIds(client_id, partition)
        self.core: PartitionAppends = PartitionAppends(ids, -1, LONG_WAIT_SECONDS)
        super().__init__(f"client{client_id}", surroundings)
        for _ in range(random.choice((1, 4, 8))):
            self._later()

    def take(self, records: list[FeedRecord]) -> None:
        self._checker.fed(self.name, records)
        self.core.fed(records)

    def settle(self) -> None:
        settled, self.core.settled = self.core.settled, []
        for end in settled:
            self._ended(end)
            self._later()
        super().settle()

    def _ended(self, end: Settled) -> None:
        op = end.token
        assert isinstance(op, Op)
        self.open -= 1
        self._story.counters[f"client: {end.outcome.name.lower()}"] += 1
        self._story.detail(self.name, "{}: {} {}", op.name, end.outcome.name, end.number)
        match end.outcome:
            case Outcome.COMMITTED:
                self._checker.client_committed(op, end.number)
            case Outcome.ABSENT:
                self._checker.client_denied(op)
            case Outcome.LOCK_FAILED:
                self._checker.client_locked_out(op, end.number, self.core.mark)
            case _:
                raise Violation(
                    Promise.DURABLE,
                    f"{self.name} has seen {self.core.mark}, and is told that the log ends at "
                    f"{end.number} ({end.outcome.name})",
                )

    def _later(self) -> None:
        self.clock.after(self._random.expovariate(1 / 0.004), self._begin)

    def _begin(self) -> None:
        if self.stopped:
            return
        self._number += 1
        data = b"%d/%d/" % (self._client_id, self._number)
        data += bytes(self._random.choice((0, 10, 60, 300)))
        op = Op(data, *self._locks())
        if self._random.random() < 0.1:
            op.append = (self._random.randrange(LOCKS),)
        # The mark is fixed here so that the checker knows it; sent later it is only older.
        op.mark = self.core.mark
        self._checker.ops[data] = op
        self.open += 1
        append = Append(data, checksum(data), 7, op.write, op.read, op.append, op.mark)
        self.core.append(op, append)
        self.settle()

    def _locks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        choice = self._random.random()
        a, b = self._random.randrange(LOCKS), self._random.randrange(LOCKS)
        if choice < 0.5:
            return (), ()
        if choice < 0.8:
            return (a,), ()
        return ((a,), (b,)) if choice < 0.9 else ((), (a, b))


class Reader(_Connected):
    """Streams the partition from its beginning, and reads the data of some transactions."""

    def __init__(
        self,
        client_id: int,
        partition: int,
        random: Random,
        surroundings: Surroundings,
    ) -> None:
        self._random = random
        ids = RequestIds(client_id, partition)
        self.core: PartitionFeed = PartitionFeed(ids, -1)
        self.questions = PartitionQuestions(ids)
        super().__init__(f"reader{client_id}", surroundings)
        self.clock.after(QUESTION_SECONDS, self._ask)

    @property
    def position(self) -> int:
        """The last transaction seen."""
        return self.core.position

    def take(self, records: list[FeedRecord]) -> None:
        position = self.core.position
        new = self.core.fed(records)
        self._checker.streamed(self.name, position, new)
        self._checker.fed(self.name, new)

    def told(self, message: Message) -> None:
        super().told(message)
        self.questions.received(message)

    def attach(self) -> None:
        super().attach()
        self.questions.attach(self._generation, 4)

    def detach(self) -> None:
        super().detach()
        self.questions.detach()

    def outgoing(self) -> list[Message]:
        messages, self.questions.outgoing = self.questions.outgoing, []
        return super().outgoing() + messages

    def settle(self) -> None:
        answers, self.questions.answers = self.questions.answers, []
        for answer in answers:
            assert isinstance(answer.token, int)
            self._story.counters["client: data read"] += 1
            self._checker.data_read(self.name, answer.token, answer.data)
        super().settle()

    def _ask(self) -> None:
        self.questions.tick(self.clock.now)
        if self.position >= 0 and len(self.questions) < 3:
            wanted = self._random.randint(0, self.position)
            self.questions.ask(wanted, Data(wanted))
        self.settle()
        self.clock.after(QUESTION_SECONDS, self._ask)
