"""Clients in the simulation: the real cores of appending and of streaming."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from tests.sim.checker import Checker, Op, Violation
from tests.sim.clock import Clock
from tests.sim.metadata import Metadata
from tests.sim.network import Channel
from tests.sim.server_node import ServerNode
from tests.sim.storage_node import PARTITION
from waltz.client.appends import Append, Outcome, PartitionAppends
from waltz.client.codec import FeedRun, parse
from waltz.client.feed import PartitionFeed
from waltz.client.mount import RequestIds
from waltz.protocol import FrameDecoder, checksum
from waltz.protocol import client_server as cs
from waltz.protocol.frames import CLIENT_SERVER

RECONNECT_SECONDS = 0.02
TICK_SECONDS = 0.1
LONG_WAIT_SECONDS = 0.5
LOCKS = 12


class _Connected:
    """What an appending client and a reader share: being connected to the partition's owner."""

    core: PartitionAppends | PartitionFeed

    def __init__(
        self, name: str, clock: Clock, servers: Mapping[str, ServerNode], metadata: Metadata
    ) -> None:
        self.name = name
        self.clock = clock
        self._servers = servers
        self._channel: Channel | None = None
        self._decoder = FrameDecoder(CLIENT_SERVER)
        self._connection_seq = 0
        self._owner, self._generation = metadata.owner, metadata.generation
        metadata.watch(self._owner_changed, None)
        clock.after(0.0, self._connect)
        clock.after(TICK_SECONDS, self._tick)

    def received(self, channel: Channel, message: bytes) -> None:
        if channel is not self._channel:
            return
        for item in parse(self._decoder.feed(message), 4):
            if isinstance(item, FeedRun):
                self.take(item.records)
            else:
                self.core.received(item)
        self.settle()

    def lost(self, channel: Channel) -> None:
        if channel is self._channel:
            self._channel = None
            self.core.detach()
            self.clock.after(RECONNECT_SECONDS, self._connect)

    def take(self, records: list[Any]) -> None:
        raise NotImplementedError

    def settle(self) -> None:
        """Send what the core wants sent, in one chunk."""
        outgoing, self.core.outgoing = self.core.outgoing, []
        if outgoing and self._channel is not None:
            self._channel.send(self, b"".join(cs.encode(m, 4) for m in outgoing))

    def _owner_changed(self, owner: str, generation: int) -> None:
        if generation <= self._generation:
            return
        moved = owner != self._owner
        self._owner, self._generation = owner, generation
        if self._channel is not None and moved:
            self._channel.drop(self)
            self._channel = None
            self.core.detach()
            self._connect()
        elif self._channel is not None:
            self.core.attach(generation, self._connection_seq, 4)
            self.settle()

    def _connect(self) -> None:
        if self._channel is not None:
            return
        server = self._servers.get(self._owner)
        self._channel = server.accept(self) if server is not None else None
        if self._channel is None:
            self.clock.after(RECONNECT_SECONDS, self._connect)
            return
        self._decoder = FrameDecoder(CLIENT_SERVER)
        self._decoder.version = 4
        self._connection_seq += 1
        self.core.attach(self._generation, self._connection_seq, 4)
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
        clock: Clock,
        random: Random,
        servers: Mapping[str, ServerNode],
        metadata: Metadata,
        checker: Checker,
        counters: Counter[str],
    ) -> None:
        self._random = random
        self._checker = checker
        self._counters = counters
        self._number = 0
        self.open = 0
        self.stopped = False
        self._client_id = client_id
        ids = RequestIds(client_id, PARTITION)
        self.core: PartitionAppends = PartitionAppends(ids, -1, LONG_WAIT_SECONDS)
        super().__init__(f"client{client_id}", clock, servers, metadata)
        for _ in range(random.choice((1, 4, 8))):
            self._later()

    def take(self, records: list[Any]) -> None:
        self._checker.fed(self.name, records)
        self.core.fed(records)

    def settle(self) -> None:
        settled, self.core.settled = self.core.settled, []
        for end in settled:
            op = end.token
            assert isinstance(op, Op)
            self.open -= 1
            self._counters[f"client: {end.outcome.name.lower()}"] += 1
            match end.outcome:
                case Outcome.COMMITTED:
                    self._checker.client_committed(op, end.number)
                case Outcome.ABSENT | Outcome.LOCK_FAILED:
                    self._checker.client_denied(op)
                case _:
                    raise Violation(
                        f"{self.name}: {end.outcome} {end.number}, own mark {self.core.mark}"
                    )
            self._later()
        super().settle()

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
    """Streams the partition from its beginning."""

    def __init__(
        self,
        client_id: int,
        clock: Clock,
        servers: Mapping[str, ServerNode],
        metadata: Metadata,
        checker: Checker,
    ) -> None:
        self._checker = checker
        self.core: PartitionFeed = PartitionFeed(RequestIds(client_id, PARTITION), -1)
        super().__init__(f"reader{client_id}", clock, servers, metadata)

    @property
    def position(self) -> int:
        """The last transaction seen."""
        return self.core.position

    def take(self, records: list[Any]) -> None:
        self._checker.fed(self.name, self.core.fed(records))
